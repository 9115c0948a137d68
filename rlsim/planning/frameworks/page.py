"""docs/frameworks.md, from the mapping tables."""

from __future__ import annotations

from collections.abc import Iterator

from rlsim.planning.frameworks.mapping import NO_DEFAULT, PROGRAM, WRITTEN, Framework, Key, Mark, Mode, Row
from rlsim.planning.frameworks.tables import FRAMEWORKS
from rlsim.presets import preset_names

HEAD = """# Frameworks: their keys and ours

Written by `rlsim.planning.frameworks.page.page()` from the tables that import and export use; a test holds it to them.

```
rlsim import-config FILE --from verl > scenario.yaml    # YAML, JSON, TOML or a shell script
rlsim export-config scenario.yaml --to verl --arm ARM   # the command line or file of the framework
```

Import says on stderr which keys it used, which it left to the framework's defaults, what it assumed (a configuration
gives no GPU, no MFU and only the cap of the lengths) and what it ignored. Export says what the framework has no key
for. Nothing in a file is executed: references and sums are worked out where they stay inside the file, resolvers and
`_target_` are reported, Python files are refused.

A default is the framework's own, at the commit named. Keys without one are left out where a file does not have them.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for found in FRAMEWORKS.values() for line in _section(found))]).rstrip() + "\n"


def _section(found: Framework) -> Iterator[str]:
    yield f"## {found.name}\n"
    yield f"Keys of commit {found.version}. All modes:\n"
    yield from _table(found.rows)
    for mode in found.modes:
        if mode.preset in preset_names():
            yield f"\n### {found.name}: preset `{mode.preset}`\n"
            yield f"{_told(mode)}\n"
            yield from _table(mode.rows)
    yield ""


def _told(mode: Mode) -> str:
    marks = " and ".join(_mark(mark) for mark in mode.marks)
    return f"Recognised by {marks}." if marks else "Any other file."


def _mark(mark: Mark) -> str:
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
