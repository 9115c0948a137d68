"""A calibration campaign: rounds over points, each followed by a fit that says which points to visit next.

A round is two passes over the same points in different random orders, one to be fitted and one to judge by. It knows
the engine only as a bench that can be asked for a point, so the same campaign runs on a real engine and on a
made-up one.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from calibration.fitting.step_model import predicted_seconds
from calibration.fitting.step_model_robust import (
    RobustFit,
    effects,
    fit_visits,
    information,
    law_intervals,
    richest,
)
from calibration.measure.design import StepDesign, choose
from calibration.measure.journal import SampleStore
from calibration.measure.measurements import Visit, best_reference, is_calm, never_calm, split, summarise, worth_of
from calibration.measure.points import StepPoint, TimedStep
from rlsim.core.errors import RlsimError
from rlsim.costs.evidence import Provenance

if TYPE_CHECKING:
    from numpy.typing import NDArray

VISIT_SECONDS = 0.25
"""Steps of a visit take about this long, if that is not too few or too many of them."""
FEWEST_STEPS, MOST_STEPS = 3, 12
VISIT_OVERHEAD_SECONDS = 0.05
"""Entering a point and leaving it, for the price of a visit."""
FEWEST_ROUNDS = 3
TELL_SECONDS = 5.0
PATIENCE = 6
"""Visits after which a point that is always disturbed is taken as it is."""
CAMPAIGN = Provenance("measured", "campaign under way")


class Bench(Protocol):
    """Something that can be put into a point and timed."""

    own_cpu: bool
    """Whether the steps are this process's own CPU time, so that interruptions show."""

    def measure(self, point: StepPoint, repeats: int) -> list[TimedStep]:
        """So many steps of the point's composition, or fewer."""

    def reference_seconds(self) -> float:
        """The time of a fixed piece of work on the device."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a campaign is."""

    number: int
    """Of the pass."""
    done: int
    points: int
    used_seconds: float
    left_seconds: float

    def __str__(self) -> str:
        return (
            f"pass {self.number + 1}: {self.done} of {self.points} points, "
            f"{self.used_seconds:.0f} s used, at most {max(self.left_seconds, 0):.0f} s left"
        )


@dataclass
class Campaign:
    """Visits points of ``design`` on ``bench`` until the coefficients are tight or the budget is used."""

    bench: Bench
    design: StepDesign
    store: SampleStore
    budget_seconds: float
    tolerance: float = 0.05
    """Tight: no coefficient's 95 % interval moves the time of any step of the domain by more than this, and every
    point was seen undisturbed."""
    clock: Callable[[], float] = time.monotonic
    report: Callable[[str], None] = lambda line: print(line, file=sys.stderr)
    seed: int = 0
    begun: float | None = None
    """On ``clock``, when the budget began to be used; None: now."""
    _used_before: float = field(init=False)
    _told: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.begun = self.clock() if self.begun is None else self.begun
        self._used_before = self.store.used_seconds

    @property
    def used_seconds(self) -> float:
        """Of the budget, by this run and those that it resumes."""
        assert self.begun is not None
        return self._used_before + self.clock() - self.begun

    @property
    def left_seconds(self) -> float:
        """Of the budget."""
        return self.budget_seconds - self.used_seconds

    def run(self) -> bool:
        """Rounds until it is tight (True), or until the budget is used."""
        while self.left_seconds > 0:
            number = self.store.next_number
            if number >= 2 * FEWEST_ROUNDS and self._is_tight():
                self.report(f"tight: ends after {self.used_seconds:.0f} s of {self.budget_seconds:.0f} s")
                return True
            points = self._points(number)
            for pass_number in (number, number + 1):
                self._pass(pass_number, points)
        self.report(f"the budget of {self.budget_seconds:.0f} s is used before every interval is tight")
        return False

    def _points(self, number: int) -> list[StepPoint]:
        """The grid for the rounds that must be; afterwards what no visit found calm, and what the fit needs most."""
        if number < 2 * FEWEST_ROUNDS:
            return [*self.design.initial, *self.design.checks]
        return [*self._unsettled(), *self._wanted(), *self.design.checks]

    def _unsettled(self) -> list[StepPoint]:
        """Points disturbed in all their visits of the passes that are fitted, or of those that judge."""
        halves = (never_calm(half, PATIENCE) for half in split(self.store.visits) if half)
        return sorted({point for half in halves for point in half} - set(self.design.checks))

    def _pass(self, number: int, points: Sequence[StepPoint]) -> None:
        order = list(points)
        random.Random(f"{self.seed}/{number}").shuffle(order)
        before = self.bench.reference_seconds()
        for done, point in enumerate(order, start=1):
            if self.left_seconds <= 0:
                return
            steps = self.bench.measure(point, self._repeats(point))
            after = self.bench.reference_seconds()
            if steps:
                used = round(self.used_seconds, 3)
                visit = summarise(point, number, steps, self.bench.own_cpu, max(before, after), used)
                self.store.add_visit(visit)
            else:
                self.report(f"no step of {point}: the engine composed it otherwise")
            before = after
            self._tell(Progress(number, done, len(order), self.used_seconds, self.left_seconds))

    def _tell(self, progress: Progress) -> None:
        """Now and then, and at the end of a pass."""
        if progress.done == progress.points or progress.used_seconds - self._told >= TELL_SECONDS:
            self._told = progress.used_seconds
            self.report(str(progress))

    def _repeats(self, point: StepPoint) -> int:
        known = [visit.seconds for visit in self.store.visits if visit.point == point]
        if not known:
            return FEWEST_STEPS if point.chunks else MOST_STEPS // 2
        return int(_steps(np.array([min(known)]))[0])

    def fitted(self) -> list[Visit]:
        """Visits that a fit may use: even passes, less the points that are only checks."""
        checks = set(self.design.checks)
        return [visit for visit in split(self.store.visits)[0] if visit.point not in checks]

    def held_out(self) -> list[Visit]:
        """Visits that judge it: odd passes."""
        return split(self.store.visits)[1]

    def fit(self, provenance: Provenance = CAMPAIGN) -> RobustFit:
        """The law of the fitted visits. Raises ``RlsimError`` before there are enough."""
        if not self.held_out():
            raise RlsimError(
                f"the budget of {self.budget_seconds:.0f} s ended before every point was visited twice; "
                f"the samples are kept: give the same command a larger --budget"
            )
        return fit_visits(self.fitted(), provenance)

    def _is_tight(self) -> bool:
        fit = self.fit()
        intervals = law_intervals(fit, times=60)
        widest = effects(intervals, fit.law, [point.sample(1.0) for point in self.design.domain])
        name, unsettled = max(widest, key=lambda key: widest[key]), len(self._unsettled())
        self.report(
            f"after pass {self.store.next_number}: widest interval ±{widest[name]:.1%} of a step ({name}), "
            f"wanted ±{self.tolerance:.1%}; {unsettled} points never undisturbed"
        )
        return widest[name] <= self.tolerance and not unsettled

    def _wanted(self) -> list[StepPoint]:
        """Candidates worth the time of half a grid."""
        fit, candidates = self.fit(), self.design.candidates
        samples = [point.sample(1.0) for point in self.design.domain]
        domain = information(samples, fit.law, richest(samples))
        predicted = np.array([predicted_seconds(fit.law, sample) for sample in samples[: len(candidates)]])
        steps = _steps(predicted)
        rows = domain[: len(candidates)] * np.sqrt(worth_of(steps))[:, None]
        known = self._known(dict(zip(candidates, domain, strict=False)))
        seconds = dict(zip(candidates, (VISIT_OVERHEAD_SECONDS + predicted * steps).tolist(), strict=True))
        grid = sum(seconds[point] for point in self.design.initial)
        chosen = choose(candidates, rows, domain, known, list(seconds.values()), grid / 2)
        return chosen or list(self.design.initial)

    def _known(self, rows: Mapping[StepPoint, NDArray[np.float64]]) -> NDArray[np.float64]:
        """The information of the fitted visits; what was disturbed tells nothing."""
        best = best_reference(self.store.visits)
        calm = [visit for visit in self.fitted() if visit.point in rows and is_calm(visit, best)]
        size = len(next(iter(rows.values())))
        seen = np.array([np.sqrt(visit.worth) * rows[visit.point] for visit in calm]).reshape(-1, size)
        found: NDArray[np.float64] = seen.T @ seen
        return found


def _steps(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of a visit to a point whose steps take so long."""
    steps: NDArray[np.float64] = np.clip(VISIT_SECONDS / np.maximum(seconds, 1e-9), FEWEST_STEPS, MOST_STEPS)
    return steps
