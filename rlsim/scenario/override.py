"""Other values at some key paths: of a scenario that is resolved, or as a tree to lay over one that is written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlsim.core.errors import ParameterError, ScenarioError, shown
from rlsim.scenario.errors import refusals
from rlsim.scenario.tree import Node, Place, dotted, planted, value_fault

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario


class UnsetKeyError(ParameterError):
    """A key path that the scenario does not set, where only such paths may be changed."""


def override(scenario: Scenario, settings: Mapping[str, object], only_set: bool = False) -> Scenario:
    """The scenario with the values of ``settings`` at their key paths; nothing is merged into what stood there.

    Sections that the scenario leaves out are added, unless ``only_set``: a path that it does not set is an
    ``UnsetKeyError`` then. ``ParameterError`` names the path of a value that the schema refuses.
    """
    from pydantic import ValidationError

    tree: dict[str, Any] = scenario.model_dump(mode="json")
    for path, value in settings.items():
        *sections, last = path.split(".")
        node: Any = tree
        for section in sections:
            if not only_set and isinstance(node, dict) and node.get(section) is None:
                node[section] = {}
            node = node.get(section) if isinstance(node, dict) else None
        if not isinstance(node, dict) or (only_set and last not in node):
            raise UnsetKeyError(path, value, "a key path of this scenario")
        node[last] = value
    try:
        return type(scenario).model_validate(tree)
    except ValidationError as refused:
        raise refusals(refused, type(scenario).model_json_schema())[0] from None


def paths(nested: Mapping[str, Any], under: str = "") -> dict[str, object]:
    """Nested sections as values by key path: ``{"a": {"b": 1}}`` as ``{"a.b": 1}``."""
    flat: dict[str, object] = {}
    for key, value in nested.items():
        path = f"{under}{key}"
        flat |= paths(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return flat


def settings_tree(settings: Mapping[str, object]) -> Node:
    """Values by key path as the tree that ``Document.with_settings`` lays over a document.

    Faults name a setting as its ``--set`` argument. ``ScenarioError`` for a path with an empty name and for numbers
    that are not finite, ``ParameterError`` for a value that no scenario file can hold.
    """
    root = Node({}, Place("--set", None))
    for name, value in settings.items():
        path = tuple(part.strip() for part in name.split("."))
        text = f"--set {name}={json.dumps(value, default=repr)}"
        if not all(path):
            raise ScenarioError([f"{text}: found no key path and value; allowed: key.path=value"])
        root = planted(root, path, _node(value, Place(text, None, path)))
    return root


def _node(value: object, place: Place) -> Node:
    if isinstance(value, Mapping):
        return Node({str(key): _node(item, _below(place, str(key))) for key, item in value.items()}, place)
    if isinstance(value, list | tuple):
        return Node([_node(item, _below(place, index)) for index, item in enumerate(value)], place)
    if isinstance(value, float) and not math.isfinite(value):
        raise ScenarioError([str(value_fault(Node(value, place), f"found {shown(value)}; allowed: a finite number"))])
    if isinstance(value, float):
        return Node(float(value), place)
    if value is None or isinstance(value, str | int):
        return Node(value, place)
    allowed = "text, a number, true, false, null, a list or a mapping"
    raise ParameterError(dotted(place.path), value, allowed)


def _below(place: Place, key: str | int) -> Place:
    return replace(place, path=(*place.path, key))
