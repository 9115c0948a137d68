"""A scenario as the text of the file that it came from, with only what differs changed; comments stay.

Without a file: the keys that differ from the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from rlsim.core.errors import ScenarioError
from rlsim.scenario.comparable import changed_keys
from rlsim.scenario.document import KEY, Document, load, names_file, resolved_yaml
from rlsim.scenario.tree import CHOICES

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario

Tree = MutableMapping[str, Any]
WIDTH = 120


@dataclass(frozen=True, slots=True)
class Original:
    """The file that a scenario came from, and which arm of it."""

    document: Document
    arm: str | None = None

    def scenario(self) -> Scenario:
        """The scenario that the file says."""
        return self.document.resolve(self.arm)


def write_edited(
    scenario: Scenario,
    file: Path,
    original: Original | None = None,
    comments: Mapping[str, str] | None = None,
    header: Sequence[str] = (),
) -> None:
    """Write ``scenario``, ``comments`` beside the keys that they are of and ``header`` as comments at the top.

    Published numbers of the original are left out where its model, cluster, workload or policy changed.

    A text that would not load to the same scenario (anchors that several sections share) is written in full instead.
    """
    if original is not None and changed_keys(original.scenario(), scenario):
        scenario = scenario.model_copy(update={"published": ()})
    yaml = YAML()
    yaml.width = WIDTH
    yaml.preserve_quotes = True
    tree = _differing_keys(scenario) if original is None else _edited(yaml, scenario, original, file.parent)
    for path, comment in (comments or {}).items():
        _commented(tree, path.split("."), comment)
    text = StringIO()
    yaml.dump(tree, text)
    top = "".join(f"# {line}\n" for line in header)
    file.write_text(top + text.getvalue(), encoding="utf-8")
    if _loaded(file) != _loaded_from_dump(scenario, file):
        file.write_text(top + resolved_yaml(scenario), encoding="utf-8")


def _loaded(file: Path) -> object:
    try:
        return load(file).resolve()
    except ScenarioError:
        return None


def _loaded_from_dump(scenario: Scenario, file: Path) -> object:
    """The scenario as it loads from ``file``, names of files beside it made absolute."""
    dump = scenario.model_dump(mode="json")
    for node, key in _named_files(dump):
        node[key] = os.path.abspath(os.path.join(file.parent, node[key]))
    return type(scenario).model_validate(dump)


def _differing_keys(scenario: Scenario) -> Tree:
    tree = CommentedMap()
    for key, value in scenario.model_dump(mode="json", exclude_defaults=True).items():
        tree[key] = _shortened(value)
    return tree


def _edited(yaml: YAML, scenario: Scenario, original: Original, folder: Path) -> Tree:
    file = Path(original.document.file)
    tree: Tree = yaml.load(file.read_text(encoding="utf-8"))
    arms = tree.pop("arms", None)
    if arms and (chosen := arms[original.document.chosen(original.arm)]):
        _lay(tree, chosen)
    for node, key in _named_files(tree):
        node[key] = os.path.relpath(os.path.join(file.parent, node[key]), folder)
    before = original.scenario().model_dump(mode="json")
    after, short = scenario.model_dump(mode="json"), scenario.model_dump(mode="json", exclude_defaults=True)
    for path, value in _differences(before, after):
        _change(tree, path, value, short)
    return tree


def _lay(tree: Tree, over: Mapping[str, Any]) -> None:
    """Keys of an arm over those of the file, as loading merges them."""
    if any(key in over and tree.get(key) != over[key] for key in CHOICES):
        for key in [key for key in tree if key not in over]:
            del tree[key]
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(tree.get(key), MutableMapping):
            _lay(tree[key], value)
        else:
            tree[key] = value


def _named_files(tree: Tree) -> Iterator[tuple[Tree, str]]:
    """Every key whose value is a path, with its mapping."""
    for key, value in tree.items():
        if isinstance(value, MutableMapping):
            yield from _named_files(value)
        elif isinstance(value, str) and (names_file(key, value) or key == KEY):
            yield tree, key


def _differences(before: object, after: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Paths whose value differs, with the new one; None for those that are gone."""
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        if before != after:
            yield path, after
        return
    for key in dict.fromkeys([*before, *after]):
        yield from _differences(before.get(key), after.get(key), (*path, key))


def _change(tree: Tree, path: tuple[str, ...], value: object, short: Mapping[str, Any]) -> None:
    """Set one key, or take it out where its value is the default."""
    node, wanted = tree, short
    for key in path[:-1]:
        wanted = wanted.get(key, {})
        below = node.setdefault(key, CommentedMap())
        if not isinstance(below, MutableMapping):
            node[key] = _shortened(wanted)
            return
        if hasattr(below, "fa"):
            below.fa.set_block_style()
        node = below
    if path[-1] in wanted:
        node[path[-1]] = _shortened(wanted[path[-1]])
    elif tree.get(KEY) is None:
        node.pop(path[-1], None)
    else:
        node[path[-1]] = value


def _shortened(value: object) -> object:
    """Constant laws as bare numbers, lists on one line."""
    if isinstance(value, list):
        items = CommentedSeq(_shortened(item) for item in value)
        items.fa.set_flow_style()
        return items
    if isinstance(value, Mapping):
        if value.get("law") == "constant" and len(value) == 2:
            return next(number for key, number in value.items() if key != "law")
        return {key: _shortened(item) for key, item in value.items()}
    return value


def _commented(tree: Tree, path: Iterable[str], comment: str) -> None:
    *sections, last = path
    node: Any = tree
    for section in sections:
        node = node.get(section) if isinstance(node, MutableMapping) else None
    if isinstance(node, CommentedMap) and last in node:
        node.yaml_add_eol_comment(comment, last)
