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


def descriptions() -> dict[str, str]:
    """What each task asks, in a line, with its sizes."""
    return {name: f"{_first_line(rule)} ({_sizes(rule)})" for name, rule in RULES.items()}


def make_task(
    name: str, sizes: Mapping[str, int] | None = None, seed: int = 0, partial_credit: bool = True
) -> Verifiable:
    """A task; raises ``ParameterError`` at ``task`` and ``task.<size>``."""
    if name not in RULES:
        raise unknown("task", name, RULES)
    return Verifiable(_rule(RULES[name], sizes or {}), seed, partial_credit)


def _rule(rule: type[Successor | Counting | Sorting | Arithmetic], sizes: Mapping[str, int]) -> Rule:
    known = {field.name for field in fields(rule)}
    for name, value in sizes.items():
        if name not in known:
            raise unknown(f"task.{name}", name, known)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ParameterError(f"task.{name}", value, "a whole number")
    return rule(**sizes)


def _first_line(rule: type) -> str:
    return str(rule.__doc__).splitlines()[0].removesuffix(".")


def _sizes(rule: type[Successor | Counting | Sorting | Arithmetic]) -> str:
    return ", ".join(f"{field.name} {field.default}" for field in fields(rule))
