"""The campaign of an engine's steps: rounds over points, each followed by a fit that says which points to time next.

A round is two passes over the same points in different random orders, one to be fitted and one to judge by. It knows
the engine only as a bench that can be asked for a point, so the same campaign runs on a real engine and on a
made-up one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from calibration.fitting.step_model import predicted_seconds
from calibration.fitting.step_model_robust import (
    RobustFit,
    effects,
    fit_samples,
    information,
    law_intervals,
    richest,
)
from calibration.measure.campaign import Campaign
from calibration.measure.design import StepDesign, choose
from calibration.measure.measurements import (
    StepMeasurement,
    best_by_point,
    best_reference,
    never_undisturbed,
    split,
    summarise,
    weight_of,
)
from calibration.measure.points import StepPoint, TimedStep
from rlsim.core.errors import RlsimError
from rlsim.costs.evidence import Provenance

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEASUREMENT_SECONDS = 0.25
"""Steps of a measurement take about this long, if that is not too few or too many of them."""
FEWEST_STEPS, MOST_STEPS = 3, 12
OVERHEAD_SECONDS = 0.05
"""Entering a point and leaving it, for the price of a measurement."""
FEWEST_ROUNDS = 3
REPORT_SECONDS = 5.0
PATIENCE = 6
"""Measurements after which a point that is always disturbed is taken as it is."""
CAMPAIGN = Provenance("measured", "campaign under way")


class StepBench(Protocol):
    """An engine that can be put into a point and timed."""

    @property
    def own_cpu(self) -> bool:
        """Whether the steps are this process's own CPU time, so that interruptions show."""

    def measure(self, point: StepPoint, repeats: int) -> list[TimedStep]:
        """So many steps of the point's composition, or fewer."""

    def reference_seconds(self) -> float:
        """The time of a fixed piece of work on the device."""


def fitted_measurements(measurements: Sequence[StepMeasurement], design: StepDesign) -> list[StepMeasurement]:
    """Measurements that a fit may use: even passes, less the points that are only checks."""
    checks = set(design.checks)
    return [measurement for measurement in split(measurements)[0] if measurement.point not in checks]


def fit_even_passes(
    measurements: Sequence[StepMeasurement],
    design: StepDesign,
    budget_seconds: float,
    provenance: Provenance = CAMPAIGN,
) -> RobustFit:
    """The step-time model of the even passes. Raises ``RlsimError`` before every point was measured twice."""
    if not split(measurements)[1]:
        raise RlsimError(
            f"the budget of {budget_seconds:.0f} s ended before every point was visited twice; "
            f"the samples are kept: give the same command a larger --budget"
        )
    even = fitted_measurements(measurements, design)
    return fit_samples(list(best_by_point(even, best_reference(even)).values()) if even else [], provenance)


@dataclass(kw_only=True)
class StepCampaign(Campaign[StepPoint, StepMeasurement]):
    """Measures points of ``design`` on ``bench`` until the coefficients are tight or the budget is used."""

    bench: StepBench
    design: StepDesign
    tolerance: float = 0.05
    """Tight: no coefficient's 95 % interval moves the time of any step of the domain by more than this, and every
    point was measured undisturbed."""
    _reported: float = field(init=False, default=0.0)
    _reference: tuple[int, float] = field(init=False, default=(-1, 0.0))
    """The pass, and seconds of the reference work after its last measurement."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.used_before = self.journal.used_seconds

    def run(self) -> bool:
        """Rounds until it is tight (True), or until the budget is used."""
        while self.left_seconds > 0:
            number = self.journal.next_number
            if number >= 2 * FEWEST_ROUNDS and self._is_tight():
                self.report(f"tight: ends after {self.used_seconds:.0f} s of {self.budget.seconds:.0f} s")
                return True
            points = [*self.design.initial, *self.design.checks]
            if number >= 2 * FEWEST_ROUNDS:
                points = [*self._never_undisturbed(), *self._wanted(), *self.design.checks]
            for pass_number in (number, number + 1):
                if self.left_seconds <= 0:
                    break
                for done in self.run_pass(pass_number, points):
                    if done == len(points) or self.used_seconds - self._reported >= REPORT_SECONDS:
                        self._reported = self.used_seconds
                        progress = f"{done} of {len(points)} points, {self.used_seconds:.0f} s used, "
                        self.report_progress(pass_number + 1, progress)
                    if self.left_seconds <= 0:
                        break
        self.report(f"the budget of {self.budget.seconds:.0f} s is used before every interval is tight")
        return False

    def measure(self, point: StepPoint, number: int) -> StepMeasurement | None:
        """The point's steps in pass ``number``, with the reference work on both sides of them."""
        before = self._reference[1] if self._reference[0] == number else self.bench.reference_seconds()
        known = [measurement.seconds for measurement in self.journal.measurements if measurement.point == point]
        repeats = FEWEST_STEPS if point.chunks else MOST_STEPS // 2
        if known:
            repeats = int(_steps(np.array([min(known)]))[0])
        steps = self.bench.measure(point, repeats)
        after = self.bench.reference_seconds()
        self._reference = (number, after)
        if not steps:
            self.report(f"no step of {point}: the engine composed it otherwise")
            return None
        used = round(self.used_seconds, 3)
        return summarise(point, number, steps, self.bench.own_cpu, max(before, after), used)

    def fit(self) -> RobustFit:
        """The step-time model so far; raises as :func:`fit_even_passes`."""
        return fit_even_passes(self.journal.measurements, self.design, self.budget.seconds)

    def _never_undisturbed(self) -> list[StepPoint]:
        """Points disturbed in all their measurements of the passes that are fitted, or of those that judge."""
        parts = (never_undisturbed(half, PATIENCE) for half in split(self.journal.measurements) if half)
        return sorted({point for part in parts for point in part} - set(self.design.checks))

    def _is_tight(self) -> bool:
        fit = self.fit()
        intervals = law_intervals(fit, times=60)
        widest = effects(intervals, fit.law, [point.sample(1.0) for point in self.design.domain])
        name, disturbed = max(widest, key=lambda key: widest[key]), len(self._never_undisturbed())
        self.report(
            f"after pass {self.journal.next_number}: widest interval ±{widest[name]:.1%} of a step ({name}), "
            f"wanted ±{self.tolerance:.1%}; {disturbed} points never undisturbed"
        )
        return widest[name] <= self.tolerance and not disturbed

    def _wanted(self) -> list[StepPoint]:
        """Candidates that tighten the fit most, within the time of half a grid."""
        fit, candidates = self.fit(), self.design.candidates
        samples = [point.sample(1.0) for point in self.design.domain]
        domain = information(samples, fit.law, richest(samples))
        predicted = np.array([predicted_seconds(fit.law, sample) for sample in samples[: len(candidates)]])
        steps = _steps(predicted)
        rows = domain[: len(candidates)] * np.sqrt(weight_of(steps))[:, None]
        known = self._information(dict(zip(candidates, domain, strict=False)))
        seconds = dict(zip(candidates, (OVERHEAD_SECONDS + predicted * steps).tolist(), strict=True))
        grid = sum(seconds[point] for point in self.design.initial)
        chosen = choose(candidates, rows, domain, known, list(seconds.values()), grid / 2)
        return chosen or list(self.design.initial)

    def _information(self, rows: Mapping[StepPoint, NDArray[np.float64]]) -> NDArray[np.float64]:
        """The information of the fitted measurements; what was disturbed tells nothing."""
        best = best_reference(self.journal.measurements)
        fitted = fitted_measurements(self.journal.measurements, self.design)
        weighted = [
            np.sqrt(measurement.sample.weight) * rows[measurement.point]
            for measurement in fitted
            if measurement.point in rows and measurement.is_undisturbed(best)
        ]
        observed = np.array(weighted).reshape(-1, len(next(iter(rows.values()))))
        information: NDArray[np.float64] = observed.T @ observed
        return information


def _steps(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Steps of a measurement of a point whose steps take so long."""
    steps: NDArray[np.float64] = np.clip(MEASUREMENT_SECONDS / np.maximum(seconds, 1e-9), FEWEST_STEPS, MOST_STEPS)
    return steps
