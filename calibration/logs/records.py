"""What a run's log holds, whatever its format: numbers by name, one row a training step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlsim.core.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LIMIT_BYTES = 500_000_000


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

    def column(self, name: str) -> NDArray[np.float64]:
        """One value a step, NaN where the step does not have it."""
        return np.array([row.get(name, math.nan) for row in self.rows.values()])


def gather(
    origin: str, kind: str, parts: Iterable[tuple[int, Mapping[str, object]]], notes: Iterable[str]
) -> TrainingLog:
    """One row a step of the parts of it that a log spreads over lines; what is not a finite number is left out.

    A value that comes again replaces the earlier one (a run that was resumed). Raises ``ParameterError`` without any.
    """
    rows: dict[int, dict[str, float]] = {}
    again = 0
    for step, values in parts:
        row, numbers = (
            rows.setdefault(step, {}),
            {
                name: float(value)
                for name, value in values.items()
                if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            },
        )
        again += any(name in row and row[name] != value for name, value in numbers.items())
        row.update(numbers)
    rows = {step: rows[step] for step in sorted(rows) if rows[step]}
    if not rows:
        raise ParameterError(origin, "no training steps", f"the numbers of a run, as {kind}")
    said = [f"{again} lines came again with other values (a resumed run?): the last ones count"] if again else []
    return TrainingLog(origin, kind, rows, (*notes, *said))


def read_text(file: Path) -> str:
    """The file's text, faulty bytes replaced; ``ParameterError`` when it cannot be read or is too large."""
    try:
        if file.stat().st_size > LIMIT_BYTES:
            raise ParameterError(file.name, f"{file.stat().st_size} bytes", f"at most {LIMIT_BYTES} bytes")
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ParameterError(file.name, str(file), f"a readable file ({error.strerror})") from error


def json_object(text: str, path: str) -> dict[str, Any]:
    """The object that ``text`` is; ``ParameterError`` at ``path`` for anything else."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParameterError(path, text[:80], "a JSON object") from error
    if not isinstance(tree, dict):
        raise ParameterError(path, text[:80], "a JSON object")
    return tree
