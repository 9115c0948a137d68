"""Tasks by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from rlsim.core.errors import ParameterError, unknown
from rlsim.live.tasks.rules import Arithmetic, Counting, Rule, Sorting, Successor
from rlsim.live.tasks.verifiable import Verifiable

RULES: dict[str, type[Successor | Counting | Sorting | Arithmetic]] = {
    "successor": Successor,
    "counting": Counting,
    "sorting": Sorting,
    "arithmetic": Arithmetic,
}


def make_task(name: str, parameters: Mapping[str, object] | None = None, seed: int = 0) -> Verifiable:
    """A task by name, with sizes of its rule and ``partial_credit``; ``ParameterError`` at ``task.<parameter>``."""
    if name not in RULES:
        raise unknown("task.name", name, RULES)
    sizes = dict(parameters or {})
    partial_credit = sizes.pop("partial_credit", True)
    if not isinstance(partial_credit, bool):
        raise ParameterError("task.partial_credit", partial_credit, "true or false")
    return Verifiable(_rule(RULES[name], sizes), seed, partial_credit)


def _rule(rule: type[Successor | Counting | Sorting | Arithmetic], parameters: Mapping[str, object]) -> Rule:
    known = {field.name for field in fields(rule)}
    sizes: dict[str, int] = {}
    for name, value in parameters.items():
        if name not in known:
            raise unknown(f"task.{name}", name, {*known, "partial_credit"})
        if not isinstance(value, int) or isinstance(value, bool):
            raise ParameterError(f"task.{name}", value, "a whole number")
        sizes[name] = value
    return rule(**sizes)
