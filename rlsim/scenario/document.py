"""A scenario file with its overlays, ``--set`` arguments and arms, and the scenarios they resolve to.

Later wins: file, overlays in order, the arm, ``--set``. An arm that is asked for by name is checked for itself alone;
without a name nothing is resolved while any arm has a fault. All faults are reported at once, with their arms.

Settings that several scenarios share: ``extends: FILE`` takes what the scenario leaves unsaid from another file.

The file is looked for beside the one that names it. It gives defaults: whatever the scenario, its arm or ``--set`` says
wins, key by key.

The scenario as it was understood, defaults and all, as text that loads to the same scenario.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from io import StringIO
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

from rlsim.core.errors import ParameterError, ScenarioError, nearest
from rlsim.scenario.comparable import changed_keys
from rlsim.scenario.errors import parameter_fault, parsed_path, schema_faults
from rlsim.scenario.reader import parse_file, read_all, shown_kind
from rlsim.scenario.tree import (
    Fault,
    Node,
    Path,
    Place,
    Plain,
    dotted,
    find,
    key_fault,
    merge,
    plain,
    value_fault,
    walk,
    without,
)

if TYPE_CHECKING:
    from rlsim.scenario.published import Published
    from rlsim.scenario.schema import Scenario


MOST_KEYS = 3
"""Changed keys that a line names."""
KEY = "extends"


def extended(root: Node, file: str) -> Node:
    """The tree of ``file`` with what it extends, arms aside; ``ScenarioError`` where that cannot be read."""
    shared = _shared(root, file)
    return root if shared is None else _filled(without(root, KEY), without(shared, "arms"))


def with_arms(root: Node, file: str) -> Node:
    """The tree of ``file`` with the arms of the file that it extends where it has none; raises as ``extended``."""
    shared = None if "arms" in root.children else _shared(root, file)
    if shared is None or "arms" not in shared.children:
        return root
    return replace(root, value={**root.children, "arms": shared.children["arms"]})


def _shared(root: Node, file: str) -> Node | None:
    named = root.children.get(KEY)
    if named is None:
        return None
    if not isinstance(named.value, str):
        raise ScenarioError([str(value_fault(named, "found no text; allowed: the path of a scenario file"))])
    path = os.path.join(os.path.dirname(file), named.value)
    shared = _read(path, os.stat(path).st_mtime_ns if os.path.exists(path) else 0)
    if KEY in shared.children:
        raise ScenarioError([str(value_fault(named, f"found a file with {KEY}; allowed: one that extends no other"))])
    return shared


@lru_cache(maxsize=32)
def _read(path: str, changed_ns: int) -> Node:
    root, faults = parse_file(path)
    if faults:
        raise ScenarioError(str(fault) for fault in faults)
    return root


def _filled(node: Node, defaults: Node) -> Node:
    """Keys that ``node`` lacks, from ``defaults``, at any depth."""
    if not (isinstance(node.value, dict) and isinstance(defaults.value, dict)):
        return node
    filled = dict(node.value)
    for key, child in defaults.value.items():
        filled[key] = _filled(filled[key], child) if key in filled else child
    return replace(node, value=filled)


_FILE_KEYS = frozenset({"model", "profile", "file"})
_FILE_SUFFIXES = (".json", ".csv", ".txt")


@dataclass(frozen=True, slots=True)
class Document:
    """What was written, before an arm is chosen."""

    file: str
    root: Node
    """The file with its overlays and what ``--set`` says inside arms; arms are not applied."""
    settings: Node
    """What ``--set`` says outside arms: it wins over every arm."""
    written: Node
    """The file itself, without overlays and ``--set``."""

    @property
    def tree(self) -> Plain:
        """Plain values as written, arms under ``arms``."""
        return plain(merge(self.root, self.settings))

    @property
    def where(self) -> dict[Path, Place]:
        """The place of every key and list item of ``tree``, by path; ``()`` is the document."""
        return {path: node.place for path, node in walk(merge(self.root, self.settings))}

    def arms(self) -> list[str]:
        """Names of the arms, in the order written; empty when the file has none."""
        written = self.root.children.get("arms")
        return list(written.children) if written else []

    def resolve(self, arm: str | None = None) -> Scenario:
        """The scenario of one arm (of the only one, or of a file without arms, when None).

        ScenarioError with its own faults, whatever is wrong with other arms, or when the arm is unknown or left open.
        """
        name = self.chosen(arm)
        return self.resolve_all(() if name is None else (name,))[name]

    def resolve_all(self, only: Collection[str] = ()) -> dict[str | None, Scenario]:
        """The scenario of every arm, or of ``only`` some, by name; under None when the file has no arms.

        ScenarioError with the faults of all these arms.
        """
        scenarios, faults = self._validated(only)
        if faults:
            raise _refusal(faults)
        return scenarios

    def faults(self) -> list[Fault]:
        """Everything the schema refuses, in all arms."""
        return self._validated()[1]

    def locate(self, path: str, arm: str | None = None) -> Place:
        """Where ``path`` (``rollout.gpus``) of the arm was written, or the mapping that would hold it."""
        return find(self._root(self.chosen(arm)), parsed_path(path))[0].place

    def scenario_error(self, errors: Sequence[ParameterError], arm: str | None = None) -> ScenarioError:
        """Errors of what was built from an arm, as ``scenario_errors``."""
        return self.scenario_errors({self.chosen(arm): errors})

    def scenario_errors(self, by_arm: Mapping[str | None, Sequence[ParameterError]]) -> ScenarioError:
        """Errors of what was built from arms, with file, line and arms; paths are from the scenario's top."""
        from rlsim.scenario.schema import Scenario

        schema = Scenario.model_json_schema()
        refused: dict[Fault, list[str | None]] = {}
        for arm, errors in by_arm.items():
            for fault in dict.fromkeys(parameter_fault(error, self._root(arm), schema) for error in errors):
                refused.setdefault(fault, []).append(arm)
        return _refusal([self._in_arms(fault, arms) for fault, arms in refused.items()])

    def with_settings(self, settings: Node) -> Document:
        """The document with a tree of further settings laid over it, as ``--set`` is.

        ScenarioError for settings of an arm that it does not have.
        """
        faults: list[Fault] = []
        laid = _with_settings(replace(self, settings=settings), faults)
        if faults:
            raise _refusal(faults)
        return replace(laid, settings=merge(self.settings, laid.settings))

    def dropped_rows(self, only: Collection[str] = ()) -> list[str]:
        """Published numbers of the arms, or of ``only`` some, that are left out, and which keys were changed."""
        dropped = []
        arms: list[str | None] = [name for name in self.arms() if not only or name in only]
        for arm in arms or [None]:
            outcome = _outcome(self._root(arm))
            rows = [] if isinstance(outcome, list) else self._rows(arm, outcome)
            for row, changed in rows:
                if changed:
                    keys = ", ".join(changed[:MOST_KEYS]) + ", ..." * (len(changed) > MOST_KEYS)
                    whose = f"{arm}: the" if arm else "the"
                    dropped.append(f"{whose} published {row.of} of {row.measured:g} is left out: {keys} changed.")
        return dropped

    def _with_rows_that_hold(self, arm: str | None, scenario: Scenario) -> Scenario:
        """The scenario less the published numbers that were measured with something else."""
        rows = tuple(row for row, changed in self._rows(arm, scenario) if not changed)
        return scenario if rows == scenario.published else scenario.model_copy(update={"published": rows})

    def _rows(self, arm: str | None, scenario: Scenario) -> Iterator[tuple[Published, list[str]]]:
        """Published numbers of a scenario and the keys that differ from what the file that gives them states."""
        if not scenario.published:
            return
        root = self._root(arm)
        listed = root.children["published"].value
        for row, node in zip(scenario.published, listed if isinstance(listed, list) else (), strict=True):
            stated = self._stated(node.place, arm)
            outcome = scenario if stated is None or plain(stated) == plain(root) else _outcome(stated)
            if isinstance(outcome, list):  # A file that other layers complete.
                outcome = _outcome(_filled(stated or root, root))
            yield row, [] if isinstance(outcome, list) else changed_keys(outcome, scenario)

    def _stated(self, place: Place, arm: str | None) -> Node | None:
        """What is said as far as the file of ``place`` and those that it builds on go; None for a ``--set``."""
        if place.line is None:
            return None
        shared = _shared(self.written, self.file)
        is_shared = shared is not None and shared.place.file == place.file
        base = self.written if place.file == self.file else self.root
        base = shared if shared is not None and is_shared else base
        root, arms = without(base, "arms"), base.children.get("arms")
        own = arms.children.get(arm) if arms is not None and arm is not None and place.path[0] == "arms" else None
        root = root if own is None else merge(root, own)
        return root if is_shared else extended(root, self.file)

    def _root(self, arm: str | None) -> Node:
        base = without(self.root, "arms")
        override = self.root.children["arms"].children[arm] if arm is not None else None
        if override is not None and override.value is not None:
            base = merge(base, override)
        return extended(merge(base, self.settings), self.file)

    def chosen(self, arm: str | None) -> str | None:
        """The name of the arm, or of the only one; ScenarioError when it is unknown or left open."""
        names = self.arms()
        if arm is None and len(names) <= 1:
            return names[0] if names else None
        if arm in names:
            return arm
        node = self.root.children.get("arms", self.root)
        choice = "no choice of arm" if arm is None else f"arm '{arm}'"
        raise ScenarioError([str(key_fault(node, f"found {choice}; {_allowed_arms(arm, names)}"))])

    def _validated(self, only: Collection[str] = ()) -> tuple[dict[str | None, Scenario], list[Fault]]:
        named = self.root.children["arms"].children if self.arms() else {}
        usable = [name for name, node in named.items() if not _is_unusable(node)]
        arms: list[str | None] = [name for name in usable if not only or name in only]
        outcomes = {arm: _outcome(self._root(arm)) for arm in arms or [None]}
        refused: dict[Fault, list[str | None]] = {fault: [] for fault in self._arm_faults(only)}
        for outcome in outcomes.values():
            refused |= {fault: [] for fault in outcome} if isinstance(outcome, list) else {}
        if refused:
            outcomes |= {arm: _outcome(self._root(arm)) for arm in usable if arm not in outcomes}
        for arm, outcome in outcomes.items():
            for fault in outcome if isinstance(outcome, list) else ():
                if fault in refused:
                    refused[fault].append(arm)
        scenarios = {
            arm: self._with_rows_that_hold(arm, outcome)
            for arm, outcome in outcomes.items()
            if not isinstance(outcome, list)
        }
        return scenarios, [self._in_arms(fault, of) for fault, of in refused.items()]

    def _in_arms(self, fault: Fault, refused: Sequence[str | None]) -> Fault:
        """The fault with the arms that it is in; as it is where these are all arms or its key names the arm."""
        if len(refused) in (0, len(self.arms())) or refused == [None] or fault.key.startswith("arms."):
            return fault
        names = ", ".join(f"'{arm}'" for arm in self.arms() if arm in refused)
        return replace(fault, text=f"{fault.text} (in arm {names})")

    def _arm_faults(self, only: Collection[str]) -> list[Fault]:
        """What is wrong with the mapping of arms, and with the form of every arm or of ``only`` some."""
        written = self.root.children.get("arms")
        if written is None:
            return []
        if not written.children:
            return [value_fault(written, f"found {_kind(written)}; allowed: a mapping of arm names to overrides")]
        arms = [node for name, node in written.children.items() if not only or name in only]
        allowed = "allowed: a mapping of overrides"
        return [value_fault(node, f"found {_kind(node)}; {allowed}") for node in arms if _is_unusable(node)]


def load(
    path: str | os.PathLike[str], overlays: Sequence[str | os.PathLike[str]] = (), sets: Sequence[str] = ()
) -> Document:
    """The document of a scenario file, overlay files laid over it in order, and ``key.path=value`` settings.

    A value is YAML (``8``, ``lognormal``, ``[1, 2]``). Overlays and settings replace a mapping whose ``law``,
    ``preset`` or ``source`` they change, and extend it otherwise. Raises ScenarioError for files that cannot
    be read, text that is not YAML, duplicate keys, tags and numbers that are not finite; with the latter
    come all other faults of the document.
    """
    layers, settings, faults = read_all([path, *overlays], sets)
    file = os.fspath(path)
    root = with_arms(reduce(merge, layers), file)
    document = _with_settings(Document(file, root, settings, with_arms(layers[0], file)), faults)
    if faults:
        raise _refusal(_all_faults(document, faults))
    return document


def _with_settings(document: Document, faults: list[Fault]) -> Document:
    """Settings inside arms go into the arms, which must exist."""
    root, overrides = document.root, document.settings.children.get("arms")
    if overrides is None:
        return document
    arms = root.children.get("arms")
    known = arms.children if arms is not None else {}
    for name, node in overrides.children.items():
        if name not in known:
            faults.append(key_fault(node, f"unknown arm; {_allowed_arms(name, known)}"))
    if arms is not None:
        named = replace(overrides, value={k: v for k, v in overrides.children.items() if k in known})
        root = replace(root, value={**root.children, "arms": merge(arms, named)})
    return replace(document, root=root, settings=without(document.settings, "arms"))


def _allowed_arms(arm: str | None, names: Iterable[str]) -> str:
    names = list(names)
    guess = nearest(arm, names) if arm is not None else None
    hint = f"; did you mean '{guess}'?" if guess else ""
    return f"allowed: {', '.join(names) or 'none, the file has no arms'}{hint}"


def _all_faults(document: Document, faults: list[Fault]) -> list[Fault]:
    """Faults of the text, and of the schema where the text has none."""
    reported = {(fault.file, fault.line, fault.key) for fault in faults}
    later = [fault for fault in document.faults() if (fault.file, fault.line, fault.key) not in reported]
    return [*faults, *later]


def _refusal(faults: Sequence[Fault]) -> ScenarioError:
    ordered = sorted(dict.fromkeys(faults), key=lambda fault: (fault.line is None, fault.file, fault.line or 0))
    return ScenarioError(str(fault) for fault in ordered)


def _outcome(root: Node) -> Scenario | list[Fault]:
    from pydantic import ValidationError

    from rlsim.scenario.schema import Scenario

    try:
        return Scenario.model_validate(plain(_anchored(root)))
    except ValidationError as refused:
        return schema_faults(refused.errors(), root, Scenario.model_json_schema())


def _is_unusable(arm: Node) -> bool:
    return not isinstance(arm.value, dict) and arm.value is not None


def _kind(node: Node) -> str:
    return "an empty mapping" if node.value == {} else shown_kind(node)


def _anchored(node: Node) -> Node:
    """The tree with names of files made absolute, each relative to the file that names it."""
    if isinstance(node.value, dict):
        return replace(node, value={key: _anchored(child) for key, child in node.value.items()})
    if isinstance(node.value, list):
        return replace(node, value=[_anchored(child) for child in node.value])
    if isinstance(node.value, str) and names_file(dotted(node.place.path[-1:]), str(node.value)):
        beside = os.path.dirname(node.place.file) if node.place.line is not None else ""
        return replace(node, value=os.path.abspath(os.path.join(beside, node.value)))
    return node


def names_file(key: str, value: str) -> bool:
    """Whether the text at a key is the path of a file, relative to the file that says it."""
    return key in _FILE_KEYS and value.endswith(_FILE_SUFFIXES)


def resolved_yaml(scenario: Scenario) -> str:
    """ASCII YAML 1.2 in the order of the schema; equal scenarios give equal text."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    # Unescaped, the line breaks of Unicode (U+0085, U+2028) would be folded away on loading.
    yaml.allow_unicode = False
    yaml.width = 4096
    text = StringIO()
    yaml.dump(scenario.model_dump(mode="json"), text)
    return text.getvalue()
