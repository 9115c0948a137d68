"""From what the schema and the parts refuse to faults: file, line, key, what was found, allowed and nearest.

Invariant: one cause is one fault. A required key that is missing beside an unknown key much like it is a
misspelling, and is reported as the unknown key alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlsim.core.errors import ContradictionError, ParameterError, nearest, shown, unknown
from rlsim.scenario.tree import Fault, Node, Path, dotted, find, key_fault, value_fault

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
}
_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
    "minLength": "of length at least",
}


class Rules:
    """What the schema allows at a key path, read from its JSON schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    def keys(self, path: Path) -> list[str]:
        """The named keys of the mapping at ``path``."""
        names = sorted(self._at(path).get("properties", {}))
        return names if path else sorted([*names, "arms", "extends"])

    def is_open(self, path: Path) -> bool:
        """Whether the mapping at ``path`` takes parameters that the schema does not name."""
        return bool(self._at(path).get("additionalProperties"))

    def allowed(self, path: Path) -> str:
        """What may stand at ``path``, in words."""
        rule = self._at(path)
        if "allowed" in rule:
            return str(rule["allowed"])
        if "enum" in rule or "const" in rule:
            return ", ".join(self.choices(path))
        bounds = [f"{word} {rule[bound]}" for bound, word in _BOUNDS.items() if bound in rule]
        kind = _KINDS.get(rule.get("type", ""), "a value")
        return f"{kind}, {' and '.join(bounds)}" if bounds else kind

    def choices(self, path: Path) -> list[str]:
        """The names allowed at ``path``; empty where any value of the kind may stand."""
        rule = self._at(path)
        return list(rule.get("enum", [rule["const"]] if "const" in rule else []))

    def _at(self, path: Path) -> Mapping[str, Any]:
        rule = self._opened(self._schema)
        for key in path:
            below = rule.get("items") if isinstance(key, int) else rule.get("properties", {}).get(key)
            rule = self._opened(below or {})
        return rule

    def _opened(self, rule: Mapping[str, Any]) -> Mapping[str, Any]:
        """The rule behind references and optional values."""
        if "$ref" in rule:
            return self._opened(self._schema["$defs"][rule["$ref"].rpartition("/")[2]])
        for one in (*rule.get("anyOf", ()), *rule.get("allOf", ())):
            if one.get("type") != "null":
                return self._opened(one)
        return rule


def schema_faults(details: Sequence[ErrorDetails], root: Node, schema: Mapping[str, Any]) -> list[Fault]:
    """The faults behind pydantic's errors for the tree ``root``, each once."""
    rules = Rules(schema)
    return list(dict.fromkeys(fault for one in details for fault in _faults(one, root, rules)))


def refusals(refused: ValidationError, schema: Mapping[str, Any]) -> list[ParameterError]:
    """The errors behind pydantic's, each at its key path, for values that no file holds; sections are never shown."""
    rules, errors = Rules(schema), []
    for detail in refused.errors():
        path, cause = detail["loc"], detail.get("ctx", {}).get("error")
        if isinstance(cause, ContradictionError):
            under = f"{dotted(path)}." if path else ""
            errors += [ParameterError(under + error.path, error.found, error.allowed) for error in cause.errors]
        elif detail["type"] == "extra_forbidden":
            errors.append(unknown(dotted(path[:-1]), str(path[-1]), rules.keys(path[:-1])))
        else:
            value = None if detail["type"] == "missing" else detail["input"]
            errors.append(ParameterError(dotted(path), value, rules.allowed(path)))
    return errors


def _faults(detail: ErrorDetails, root: Node, rules: Rules) -> list[Fault]:
    path = detail["loc"]
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, ContradictionError):
        return [_parameter_fault(error, root, rules, path) for error in cause.errors]
    if detail["type"] == "extra_forbidden":
        return [_unknown_key(path, root, rules)]
    if detail["type"] == "missing":
        return [_missing(path, root, rules, rules.allowed(path))]
    value = detail["input"]
    node, rest = find(root, path)
    guess = nearest(value, rules.choices(path)) if isinstance(value, str) else None
    text = f"found {shown(value)}; allowed: {rules.allowed(path)}{_hint(guess)}"
    return [(key_fault(node, text, rest) if rest else value_fault(node, text))]


def _missing(path: Path, root: Node, rules: Rules, allowed: str) -> Fault:
    for depth in range(len(path)):
        twin = _misspelt(path[: depth + 1], root, rules)
        if twin is not None:
            return _unknown_key((*path[:depth], twin), root, rules)
    node, rest = find(root, path)
    return key_fault(node, f"missing; allowed: {allowed}", rest)


def _misspelt(path: Path, root: Node, rules: Rules) -> str | None:
    """The unknown key that was meant for ``path``, which is missing or holds only what an arm adds."""
    inside, rest = find(root, path[:-1])
    known = rules.keys(path[:-1])
    twin = nearest(str(path[-1]), [key for key in inside.children if key not in known])
    return twin if not rest and twin and nearest(twin, known) == path[-1] else None


def _unknown_key(path: Path, root: Node, rules: Rules, others: Sequence[str] = ()) -> Fault:
    node, _ = find(root, path)
    known = set(rules.keys(path[:-1])) | set(others)
    if len(node.place.path) > 1:
        known.discard("arms")
    names = sorted(known)
    more = ", and the parameters of that choice" if rules.is_open(path[:-1]) and not others else ""
    guess = nearest(str(path[-1]), names)
    return key_fault(node, f"unknown key; allowed: {', '.join(names)}{more}{_hint(guess)}")


def _hint(guess: str | None) -> str:
    return f"; did you mean '{guess}'?" if guess else ""


def parameter_fault(error: ParameterError, root: Node, schema: Mapping[str, Any]) -> Fault:
    """The fault behind an error that names its key path from the top of the scenario.

    An unknown key may be named by its own path, or by that of its mapping with the key as what was found.
    """
    return _parameter_fault(error, root, Rules(schema), ())


def _parameter_fault(error: ParameterError, root: Node, rules: Rules, under: Path) -> Fault:
    path = under + parsed_path(error.path)
    node, rest = find(root, path)
    stranger = _stranger(error, path, node, rest)
    if stranger is not None:
        return _unknown_key(stranger, root, rules, _names(error.allowed))
    if rest and error.found is None:
        named = path[-1] in rules.keys(path[:-1])
        return (
            _missing(path, root, rules, error.allowed)
            if named
            else key_fault(node, f"missing; allowed: {error.allowed}", rest)
        )
    text = f"found {shown(error.found)}; allowed: {error.allowed}"
    return key_fault(node, text, rest) if rest else value_fault(node, text)


def _stranger(error: ParameterError, path: Path, node: Node, rest: Path) -> Path | None:
    """The path of the key that the error calls unknown, if it is about a key."""
    if rest or not isinstance(error.found, str):
        return None
    if error.found in node.children:
        return (*path, error.found)
    return path if path and path[-1] == error.found and node.value != error.found else None


def _names(allowed: str) -> list[str]:
    return [name for name in re.sub(r" \(did you mean '.*'\?\)$", "", allowed).split(", ") if name]


def parsed_path(text: str) -> Path:
    """``published[0].source`` or ``published.0.source`` as ``("published", 0, "source")``."""
    parts = [part for part in re.sub(r"\[(\d+)\]", r".\1", text).split(".") if part]
    return tuple(int(part) if part.isdigit() else part for part in parts)
