"""Campaigns: points timed pass by pass on a machine that others use too, within a budget, each kept at once.

The host is the noise: it is slow for seconds at a time, so repeats of one point in a row would all be slow together.
A pass measures its points in a random order of its own. What was measured is in a journal as it comes: an interrupted
calibration goes on where it stopped.
"""

from __future__ import annotations

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from calibration.measure.journal import MeasurementJournal
from calibration.measure.measurements import MeasurementT, Timing, timing_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

PointT = TypeVar("PointT", bound=Hashable)
LEAST_PASSES = 4
"""Two to fit and two to judge, before a fit may be called tight."""


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """Wall-clock seconds for measuring; ``clock`` is another one in tests."""

    seconds: float
    clock: Callable[[], float] = time.monotonic


@dataclass(kw_only=True)
class Campaign(ABC, Generic[PointT, MeasurementT]):
    """Passes over points until the fit is tight or the budget is used; a subclass is the bench that times a point."""

    journal: MeasurementJournal[MeasurementT]
    budget: TimeBudget
    report: Callable[[str], None] = lambda line: None
    seed: int = 0
    begun: float | None = None
    """On the budget's clock, when it began to be used; None: now."""
    used_before: float = field(init=False, default=0.0)
    """Seconds of the budget that runs before this one have used."""

    def __post_init__(self) -> None:
        self.begun = self.budget.clock() if self.begun is None else self.begun

    @abstractmethod
    def measure(self, point: PointT, number: int) -> MeasurementT | None:
        """The point's measurement in pass ``number``; None where the bench cannot be put there."""

    @property
    def used_seconds(self) -> float:
        """Seconds of the budget used so far."""
        assert self.begun is not None
        return self.used_before + self.budget.clock() - self.begun

    @property
    def left_seconds(self) -> float:
        """Seconds of the budget that are left; negative once it is overdrawn."""
        return self.budget.seconds - self.used_seconds

    def run_pass(self, number: int, points: Sequence[PointT]) -> Iterator[int]:
        """Measure the points that the pass lacks, in an order of its own; yields how many are done after each."""
        order = list(points)
        random.Random(f"{self.seed}/{number}").shuffle(order)
        measured = {measurement.point for measurement in self.journal.measurements if measurement.number == number}
        for done, point in enumerate(order, start=1):
            if point not in measured and (measurement := self.measure(point, number)) is not None:
                self.journal.add(measurement)
            yield done

    def report_progress(self, passes: int, done: str = "", reached: str = "") -> None:
        """Say how far the campaign is."""
        self.report(f"pass {passes}: {done}at most {max(self.left_seconds, 0.0):.0f} s left{reached}")


@dataclass(kw_only=True)
class RepeatedCampaign(Campaign[int, Timing]):
    """Numbered points, all of them in every pass, until ``interval`` of their table is below ``tight``."""

    points: int
    seconds_of: Callable[[int], float]
    """Does the work of a point and gives its seconds."""
    interval: Callable[[NDArray[np.float64]], float]
    """Half width of the widest relative confidence interval of a fit to a table of seconds by pass and point."""
    tight: float

    def measure(self, point: int, number: int) -> Timing:
        """The point's seconds in pass ``number``."""
        return Timing(number, point, self.seconds_of(point))

    def run(self) -> NDArray[np.float64]:
        """Seconds by pass and point, from an even number of whole passes.

        Ends when the interval is tight after an even number of passes, or when two more would not fit the budget; two
        passes are always made.
        """
        completed = 0
        while True:
            table = timing_table(self.journal.measurements, self.points)
            whole = int(np.isfinite(table).all(axis=1).sum())
            is_even = whole >= 2 and whole % 2 == 0
            width = self.interval(table) if is_even else math.inf
            if whole:
                self.report_progress(whole, reached=f", intervals within {width:.1%}" if math.isfinite(width) else "")
            if is_even:
                two_more = 2 * self.used_seconds / completed if completed else 0.0
                if (
                    whole >= LEAST_PASSES and width <= self.tight
                ) or self.used_seconds + two_more > self.budget.seconds:
                    return table
            for _ in self.run_pass(whole, range(self.points)):
                pass
            completed += 1
