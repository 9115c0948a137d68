"""Timing points on a machine that others use too: every point once a pass, many passes, raw samples kept at once.

The host is the noise: it is slow for seconds at a time, so repeats of one point in a row would all be slow together.
A pass visits every point once in an order of its own. Samples go to a journal as they come: an interrupted
calibration goes on where it stopped.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.measure.journal import LineFile, objects

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_PASSES = 4
"""Two to fit and two to judge, before a fit may be called tight."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Wall-clock seconds for the timing; ``clock`` is another one in tests."""

    seconds: float
    clock: Callable[[], float] = time.monotonic


class Journal:
    """Raw samples (pass, point, seconds), kept in a :class:`LineFile`.

    Raises ``ParameterError`` when the samples in ``file`` are of another set-up.
    """

    def __init__(self, file: Path, header: Mapping[str, Any]) -> None:
        self._lines = LineFile(file, header)
        self.samples = [(int(line["pass"]), int(line["point"]), float(line["seconds"])) for line in self._lines.lines]

    def add(self, number: int, point: int, seconds: float) -> None:
        """Keep a sample, on disk too."""
        self.samples.append((number, point, seconds))
        self._lines.add({"pass": number, "point": point, "seconds": seconds})

    def table(self, points: int) -> NDArray[np.float64]:
        """Seconds by pass and point; NaN where there is none yet."""
        passes = 1 + max((number for number, _, _ in self.samples), default=-1)
        table = np.full((passes, points), np.nan)
        for number, point, seconds in self.samples:
            table[number, point] = seconds
        return table


def stored_header(file: Path) -> dict[str, Any] | None:
    """The header of a journal that is there already."""
    found = objects(file)[0].get("header") if file.exists() and file.stat().st_size else None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class Progress:
    """After a pass: how far it is."""

    passes: int
    elapsed_seconds: float
    budget_seconds: float
    interval: float
    """Half width of the widest relative confidence interval; infinite where there is none yet."""

    def __str__(self) -> str:
        left = max(0.0, self.budget_seconds - self.elapsed_seconds)
        within = f", intervals within {self.interval:.1%}" if math.isfinite(self.interval) else ""
        return f"pass {self.passes}: at most {left:.0f} s left{within}"


def timed_passes(
    points: int,
    time_point: Callable[[int], float],
    journal: Journal,
    budget: Budget,
    interval: Callable[[NDArray[np.float64]], float],
    tight: float,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> NDArray[np.float64]:
    """Seconds by pass and point, from an even number of whole passes.

    Ends when ``interval`` of the samples is below ``tight`` after an even number of passes, or when two more passes
    would not fit the budget; two passes are always made.
    """
    start, made = budget.clock(), 0
    while True:
        table = journal.table(points)
        whole = int(np.isfinite(table).all(axis=1).sum())
        elapsed = budget.clock() - start
        width = interval(table) if whole >= 2 and whole % 2 == 0 else float("inf")
        if made or whole:
            tell(Progress(whole, elapsed, budget.seconds, width))
        if whole >= 2 and whole % 2 == 0:
            two_more = 2 * elapsed / made if made else 0.0
            if (whole >= LEAST_PASSES and width <= tight) or elapsed + two_more > budget.seconds:
                return table
        _one_pass(whole, points, time_point, journal)
        made += 1


def _one_pass(number: int, points: int, time_point: Callable[[int], float], journal: Journal) -> None:
    """Time the points that this pass lacks, in its own order."""
    order = list(range(points))
    random.Random(number).shuffle(order)
    made = {point for of, point, _ in journal.samples if of == number}
    for point in order:
        if point not in made:
            journal.add(number, point, time_point(point))
