"""What a run's log holds, whatever its format: numbers by name, one row a training step."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rlsim.core.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEP_NAMES = (
    "step",
    "rollout/step",
    "train/global_step",
    "trainer/global_step",
    "training_step",
    "system/step",
    "global_step",
    "_step",
    "Step",
)
"""Where a row of several values says which step it is, in order of preference.

The counters of calls (W&B's ``_step`` and ``Step``) come last: a framework may log one step in several calls.
"""
LARGEST_STEP = 2**53
STEP = r"(\d{1,15})"
REAL = r"(-?\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?)"
"""Numbers as consoles print them, in patterns."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_LONGEST_NUMBER = 40


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """Rows in the order of their steps."""

    origin: str
    """The file's name, for messages."""
    format: str
    rows: Mapping[int, Mapping[str, float]]
    notes: tuple[str, ...] = ()
    """What the reader left out or put together."""

    def names(self) -> set[str]:
        """Every column that any row has."""
        return {name for row in self.rows.values() for name in row}

    def having(self, names: Iterable[str]) -> TrainingLog:
        """The rows that have any of these columns."""
        wanted = set(names)
        rows = {step: row for step, row in self.rows.items() if not wanted.isdisjoint(row)}
        left = len(self.rows) - len(rows)
        note = f"rows without any of the framework's columns: {left}, left out (evaluations, optimizer steps)"
        return replace(self, rows=rows, notes=(*self.notes, note)) if left else self

    def column(self, name: str) -> NDArray[np.float64]:
        """One value a step, NaN where the step does not have it."""
        return np.array([row.get(name, math.nan) for row in self.rows.values()])


def number(value: object) -> float | None:
    """The finite number that ``value`` is, or is written as; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and (len(value) > _LONGEST_NUMBER or _NUMBER.fullmatch(value.strip()) is None):
        return None
    try:
        finite = float(value)
    except OverflowError:
        return None
    return finite if math.isfinite(finite) else None


def step_number(value: object) -> int | None:
    """The number of a step that ``value`` is; None for what cannot be one."""
    real = number(value)
    return int(real) if real is not None and 0 <= real < LARGEST_STEP and real.is_integer() else None


def gather(
    origin: str, kind: str, parts: Iterable[tuple[int, Mapping[str, object]]], notes: Iterable[str] = ()
) -> TrainingLog:
    """One row a step of the parts of it that a log spreads over lines; what is not a finite number is left out.

    A part that comes again (a restart, a second process) replaces the earlier one as a whole. ``notes`` is read after
    ``parts``. Raises ``ParameterError`` without any step.
    """
    steps, again = _parts_by_step(parts)
    rows = {step: {name: value for part in steps[step] for name, value in part.items()} for step in sorted(steps)}
    said = list(notes)
    if not rows:
        nothing = "no training steps" + "".join(f"; {note}" for note in said)
        raise ParameterError(origin, nothing, f"the numbers of a run, as {kind}")
    if again:
        reach = f"from {min(again)} to {max(again)}" if len(again) > 1 else f"step {min(again)}"
        said.append(
            f"steps that came again with other values: {len(again)}, {reach} (a restart, or several processes); "
            "the last ones count"
        )
    return TrainingLog(origin, kind, rows, tuple(said))


def _parts_by_step(
    parts: Iterable[tuple[int, Mapping[str, object]]],
) -> tuple[dict[int, list[dict[str, float]]], set[int]]:
    """The parts that count, and the steps some part of which came with other values before."""
    steps, again = dict[int, list[dict[str, float]]](), set[int]()
    for step, values in parts:
        part = {name: real for name, value in values.items() if (real := number(value)) is not None}
        if not part:
            continue
        others = [earlier for earlier in steps.get(step, ()) if not _repeats(earlier, part)]
        if any(_repeats(earlier, part) and earlier != part for earlier in steps.get(step, ())):
            again.add(step)
        steps[step] = [*others, part]
    return steps, again


def _repeats(earlier: Mapping[str, float], later: Mapping[str, float]) -> bool:
    """Whether both are the same part of a step: they share at least half of the names of the smaller one."""
    first, second = _measured(earlier), _measured(later)
    smaller = min(len(first), len(second))
    return smaller > 0 and 2 * len(first & second) >= smaller


def _measured(part: Mapping[str, float]) -> set[str]:
    return {name for name in part if name not in STEP_NAMES and not name.startswith("_")}


def json_object(text: str, path: str) -> dict[str, Any]:
    """The object that ``text`` is; ``ParameterError`` at ``path`` for anything else."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParameterError(path, text[:80], "a JSON object") from error
    if not isinstance(tree, dict):
        raise ParameterError(path, text[:80], "a JSON object")
    return tree
