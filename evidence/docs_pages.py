"""Reference pages as Markdown: the keys of a scenario, of frameworks and of their logs, and the deliberate faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rlsim.frameworks.catalogue import choice_texts, part_texts, preset_texts
from rlsim.frameworks.mapping import NO_DEFAULT, PROGRAM, WRITTEN, Condition, Framework, Key, Mark, Row
from rlsim.frameworks.registry import FRAMEWORKS
from rlsim.presets import preset_names
from rlsim.scenario.schema import Law, PolicyConfig, Scenario
from rlsim.studies.text.policies import parameter_defaults
from rlsim.workload.spec import LATENCY_FIELDS, LENGTH_FIELDS

UNITS = {
    "_bytes_per_second": "bytes/s",
    "_seconds": "s",
    "seconds_per_step": "s",
    "seconds_per_update": "s",
    "seconds_per_micro_batch": "s",
    "_tokens": "tokens",
    "_usd_per_gpu_hour": "USD",
    "_updates": "updates",
    "_versions": "versions",
    "gpus": "GPUs",
    "gpus_per_node": "GPUs",
    "block_size": "tokens",
    "max_model_len": "tokens",
    "max_num_seqs": "sequences",
    "kv_blocks": "blocks",
    "steps": "steps",
    "prompts_per_step": "prompts",
    "group_size": "samples",
    "dataset_prompts": "prompts",
}
"""By the end of a key: the name of a quantity says its unit."""
_HEAD = """# Scenario keys

Generated from the schema in `rlsim/scenario/`. `rlsim run`, `compare` and others take any key with
`--set path.to.key=value`. `arms:` has overrides by name, and `extends:` names a file whose settings are included. An
unknown key is refused with the nearest spelling. *Needed* keys have no default. In a path, `N` is a position in a
list and `NAME` is a name of yours.

The parameters of a preset are set beside `policy.preset`. [Policies](policies.md) lists them and the parts of
`policy.parts`.
"""


def scenario_page() -> str:
    """docs/scenario.md: every key of a scenario with type, unit, default and range."""
    return "\n".join([_HEAD, *_section("", Scenario, {}), *_laws()])


def _section(path: str, model: type[BaseModel], described: dict[type[BaseModel], str]) -> Iterator[str]:
    """A table of its keys, then the sections in it; one that stands in several places is described once."""
    yield f"## `{path}`\n" if path else "## Top level\n"
    if model in described:
        yield f"As `{described[model]}`.\n"
        return
    described[model] = path
    yield f"{_first_line(model)}\n"
    yield "| key | type | unit | default | range | meaning |\n|---|---|---|---|---|---|"
    yield from (_row(name, field) for name, field in model.model_fields.items())
    if model is PolicyConfig:
        yield "| any other | a preset's parameter | | as the preset says | | [policies.md](policies.md) |"
    yield ""
    for name, field in model.model_fields.items():
        below = _model(field.annotation)
        if below is not None and below is not Law:
            yield from _section(f"{path}.{name}{_each(field.annotation)}".removeprefix("."), below, described)


def _first_line(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def _row(name: str, field: FieldInfo) -> str:
    cells = (f"`{name}`", _type(field.annotation), _unit(name), _default(field), _range(field), _meaning(field))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _meaning(field: FieldInfo) -> str:
    if field.description:
        return field.description
    below = _model(field.annotation)
    return _first_line(below).removesuffix(".") if below else ""


def _unit(name: str) -> str:
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "*needed*"
    if isinstance(value, BaseModel):
        return "the section's own"
    if value is None or value in ((), {}, ""):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _range(field: FieldInfo) -> str:
    """Bounds in words, without those that a stricter one makes idle."""
    found = dict.fromkeys(_bounds(field.metadata, field.annotation))
    idle = {words.replace("above", "at least") for words in found if words.startswith("above")}
    return ", ".join(words for words in found if words not in idle)


_BOUNDS = ((Ge, "ge", "at least"), (Gt, "gt", "above"), (Le, "le", "at most"), (Lt, "lt", "below"))


def _bounds(metadata: Sequence[Any], annotation: Any) -> Iterator[str]:
    """In words; also those inside ``Annotated`` and of the parts of a union."""
    for bound in metadata:
        if isinstance(bound, FieldInfo):
            yield from _bounds(bound.metadata, annotation)
        yield from (f"{words} {getattr(bound, name):g}" for kind, name, words in _BOUNDS if isinstance(bound, kind))
        if isinstance(bound, MinLen) and bound.min_length:
            yield "not empty"
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        yield from _bounds(more, inner)
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _bounds((), part)


_NAMES = {int: "whole number", float: "number", str: "text", bool: "true or false", Any: "any", type(None): "none"}


def _type(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(parts[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(part) for part in parts if part is not type(None)))
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin is tuple:
        return f"list of {_type(parts[0])}s"
    if origin is dict:
        return f"mapping of names to {_type(parts[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Law):
        return "[law](#laws)"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return _NAMES.get(annotation, str(getattr(annotation, "__name__", annotation)))


def _model(annotation: Any) -> type[BaseModel] | None:
    """The section that an annotation holds, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model(part)) is not None), None)


def _each(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return ".N"
    if origin is dict:
        return ".NAME"
    return next((found for part in parts if (found := _each(part))), "")


def _laws() -> Iterator[str]:
    yield "## Laws\n"
    yield "A bare number is the constant law. Of a lognormal's `median_tokens`, `mean_tokens`, `sigma` two are given."
    yield ""
    for title, laws in (("Lengths, in tokens (or turns)", LENGTH_FIELDS), ("Times, in seconds", LATENCY_FIELDS)):
        yield f"| {title} | needed | may be given |"
        yield "|---|---|---|"
        for law, keys in laws.items():
            needed, free = ([f"`{key}`" for key, must in keys.items() if must is wanted] for wanted in (True, False))
            yield f"| `{law}` | {', '.join(needed)} | {', '.join(free)} |"
        yield ""


POLICIES_HEAD = """# Policies

Generated from the parts and presets. `rlsim policies` prints the same, and `rlsim policies show NAME` prints one of
them with all its parameters.
"""


def policies_page() -> str:
    """Choices, presets and parts."""
    presets = [
        (f"`{one.name}`", one.summary, one.version or one.source, one.bound, parameter_defaults(one.parameters, "`"))
        for one in preset_texts()
    ]
    parts = [
        (part.choice, f"`{part.name}`", part.summary, parameter_defaults(part.parameters, "`")) for part in part_texts()
    ]
    return "\n".join(
        [
            POLICIES_HEAD,
            "## Choices\n",
            *_markdown(("choice", "question"), choice_texts().items()),
            "\n## Presets\n",
            *_markdown(("preset", "what it does", "version or source", "staleness bound", "parameters"), presets),
            "\n## Parts\n",
            *_markdown(("choice", "part", "what it does", "parameters"), parts),
            "",
        ]
    )


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"


FRAMEWORKS_HEAD = """# Frameworks: their keys and ours

Generated from the tables that import and export use.

```
rlsim import-config FILE --from verl > scenario.yaml    # YAML, JSON, TOML or a shell script
rlsim export-config scenario.yaml --to verl --arm ARM   # the command line or file of the framework
```

Import reports on standard error which keys it used, which it left to the framework's defaults, what it assumed (a
configuration has no GPU, no MFU and only the cap of the lengths) and what it ignored. Export reports what the
framework has no key for. Nothing in a file is executed: references and sums are computed where they stay inside the
file, resolvers and `_target_` are reported, of Python files the keyword arguments of TRL's classes are read.

A default is the framework's own, at the commit named. Keys without one are left out where a file does not have them.
"""


def frameworks_page() -> str:
    """docs/frameworks.md: the keys of every framework beside ours."""
    sections = (line for framework in FRAMEWORKS.values() for line in _framework(framework))
    return "\n".join([FRAMEWORKS_HEAD, *sections]).rstrip() + "\n"


def _framework(framework: Framework) -> Iterator[str]:
    yield f"## {framework.name}\n"
    yield f"Keys of commit {framework.version}. All modes:\n"
    yield from _table(framework.rows)
    for mode in framework.modes:
        if mode.preset in preset_names():
            marks = " and ".join(_mark(mark) for mark in mode.marks)
            yield f"\n### {framework.name}: preset `{mode.preset}`\n"
            yield f"Recognised by {marks}.\n" if marks else "Any other file.\n"
            yield from _table(mode.rows)
    for backend in (*framework.trainers, *framework.engines):
        if backend.rows:
            yield f"\n### {framework.name} on {backend.name}\n"
            yield f"Active by {' and '.join(_mark(mark) for mark in backend.marks)}.\n" if backend.marks else ""
            yield from _table(backend.rows)
    if framework.unmodelled:
        yield f"\nRead from {framework.name} and not simulated:\n"
        yield from (f"- `{one.key}`: {one.words}" for one in framework.unmodelled)
    yield ""


def _mark(mark: Mark | Condition) -> str:
    if isinstance(mark, Condition):
        return mark.words
    if mark.value is WRITTEN:
        return f"`{mark.key}` being written"
    name = "the program" if mark.key == PROGRAM else f"`{mark.key}`"
    default = ", the default" if mark.default == mark.value else ""
    return f"{name} = `{mark.value}`{default}"


def _table(rows: tuple[Row, ...]) -> Iterator[str]:
    if not rows:
        return
    yield "| framework key (default) | rlsim key | relation |"
    yield "|---|---|---|"
    for row in rows:
        relation = f"{row.codec.words}; read only" if row.legacy else row.codec.words
        keys = ", ".join(_key(key) for key in row.keys)
        yield f"| {keys} | {', '.join(f'`{path}`' for path in row.paths)} | {relation} |"


def _key(key: Key) -> str:
    if key.default is NO_DEFAULT:
        return f"`{key.name}`"
    return f"`{key.name}` ({'null' if key.default is None else key.default})"


def log_columns() -> str:
    """What is read of each framework's log, from which columns, and which names mislead."""
    from calibration.logs.frameworks import FRAMEWORKS as LOGS
    from calibration.logs.frameworks import as_markdown

    traps = [f"- {log.name}: {trap}." for log in LOGS for trap in log.traps]
    head = "# Columns of run logs\n\nGenerated from the tables that `rlsim calibrate logs` uses.\n"
    return "\n".join([head, as_markdown(), "## Names that mislead\n", *traps, ""])


def deliberate_faults() -> str:
    """The lines of the engine that tests make wrong, and the test that catches each."""
    from pathlib import Path
    from runpy import run_path

    faults = run_path(str(Path(__file__).parents[1] / "tests" / "engine" / "faults.py"))["FAULTS"]
    head = (
        "# Deliberate faults\n\nEach of these lines is made wrong in a copy of the package, and the named test must"
        " catch it (`pytest -m slow tests/engine`).\n\n| file | what the fault breaks | caught by |\n|---|---|---|"
    )
    return "\n".join([head, *(fault.row() for fault in faults), ""])
