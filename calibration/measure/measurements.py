"""Repeated measurements of points: which passes are fitted, what a point's time is, and how far repeats are apart.

Noise on a shared machine only ever adds time, in bursts. A point's time is therefore the mean of the quickest quarter
of its timings; for engine steps, whose disturbances show, the median of the undisturbed measurements. Even passes are
fitted, odd ones judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from calibration.fitting.step_model import StepSample
from calibration.measure.points import StepPoint, TimedStep

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUANTILE = 0.25
"""Share of the measurements of a point: interference only ever adds time, on shared machines up to a factor of two for
seconds, so a low quantile lies among the undisturbed ones while fewer than three in four are disturbed; the minimum
would also take the most favourable noise."""
UNDISTURBED_CPU_SHARE = 0.95
"""A step on a CPU during which this process ran less than this was interrupted by another."""
UNDISTURBED_REFERENCE = 1.15
"""A measurement during which the reference work took longer than this times its best was slowed by the host."""
JITTERY_STEPS = 12
"""Steps whose jitter, in their median, is as large as what the host's state differs by between measurements."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a point, by its number in the design, in one pass."""

    number: int
    """Number of the pass; even ones are fitted, odd ones judge."""
    point: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"pass": self.number, "point": self.point, "seconds": self.seconds}

    @classmethod
    def from_dict(cls, tree: dict[str, Any]) -> Self:
        """The timing of :meth:`as_dict`."""
        return cls(int(tree["pass"]), int(tree["point"]), float(tree["seconds"]))


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """Some engine steps of a point in one pass, and how disturbed the machine was meanwhile."""

    point: StepPoint
    number: int
    """Number of the pass; even ones are fitted, odd ones judge."""
    seconds: float
    """Median of the undisturbed steps; where there is none, of the CPU time of all, to which the caches that others
    have filled still add."""
    kv_tokens: int
    """Median over the steps: contexts grow."""
    steps: int
    undisturbed_steps: int
    reference_seconds: float
    """Time of a fixed piece of work, the slower of before and after."""
    used_seconds: float
    """Seconds of the budget that were used at the end of the measurement."""

    @property
    def sample(self) -> StepSample:
        """The measurement as a sample to fit or to judge by.

        Its weight is near one for very many steps, whose jitter averages out; the host's state meanwhile does not.
        """
        weight = float(weight_of(self.undisturbed_steps or self.steps))
        return replace(self.point.sample(self.seconds), kv_tokens=self.kv_tokens, weight=weight)

    def is_undisturbed(self, reference_seconds: float) -> bool:
        """Whether some step was free of other processes, on a host as quick as in ``reference_seconds``."""
        return self.undisturbed_steps > 0 and self.reference_seconds <= UNDISTURBED_REFERENCE * reference_seconds

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        point = self.point
        composition = [point.decodes, point.context, point.chunks, point.tokens, point.cached]
        return {key: getattr(self, name) for key, name in _STORED.items()} | {"point": composition}

    @classmethod
    def from_dict(cls, tree: dict[str, Any]) -> Self:
        """The measurement of :meth:`as_dict`."""
        return cls(point=StepPoint(*tree["point"]), **{name: tree[key] for key, name in _STORED.items()})


_STORED = {"calm_steps": "undisturbed_steps"} | {
    name: name for name in ("number", "seconds", "kv_tokens", "steps", "reference_seconds", "used_seconds")
}
"""Keys of the journal, and the fields that they hold."""

MeasurementT = TypeVar("MeasurementT", Timing, StepMeasurement)


def split(measurements: Sequence[MeasurementT]) -> tuple[list[MeasurementT], list[MeasurementT]]:
    """Measurements of even passes, to be fitted, and those of odd ones, to judge by."""
    even = [measurement for measurement in measurements if measurement.number % 2 == 0]
    return even, [measurement for measurement in measurements if measurement.number % 2 == 1]


def noise_floor(even: NDArray[np.float64], odd: NDArray[np.float64]) -> float:
    """Median of |even / odd - 1| over points, by their times in either half of the passes.

    Nothing fitted to the even passes can be expected to be closer to the odd ones.
    """
    return float(np.median(np.abs(even / odd - 1.0)))


# -- timings of numbered points ---------------------------------------------------------------------------


def timing_table(timings: Sequence[Timing], points: int) -> NDArray[np.float64]:
    """Seconds by pass and point; NaN where there is none yet."""
    table = np.full((1 + max((timing.number for timing in timings), default=-1), points), np.nan)
    for timing in timings:
        table[timing.number, timing.point] = timing.seconds
    return table


def quickest(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds by point: the mean of the quickest quarter of its timings; ``table`` is by pass and point."""
    best = np.sort(table, axis=0)[: -(-len(table) // 4)]
    seconds: NDArray[np.float64] = best.mean(axis=0)
    return seconds


def halves(table: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds by point of the even passes (to fit) and of the odd ones (to judge)."""
    return quickest(table[0::2]), quickest(table[1::2])


def slowdown(table: NDArray[np.float64]) -> float:
    """Median timing over the quickest quarter's mean of its point: how much others took."""
    return float(np.median(table / quickest(table)))


def upward_bias(table: NDArray[np.float64]) -> float:
    """Share by which all times may be too long together, as others on a machine only ever add.

    An estimate: how far the quickest quarter of a point's timings is above the quickest, in the median over the
    points, and once more what repeats of a point differ by (the noise floor).
    """
    return float(np.median(quickest(table) / table.min(axis=0) - 1.0)) + noise_floor(*halves(table))


# -- engine steps -----------------------------------------------------------------------------------------


def weight_of(steps: Any) -> Any:
    """Weight of a measurement of so many steps; also by array."""
    return steps / (steps + JITTERY_STEPS)


def summarise(
    point: StepPoint,
    number: int,
    steps: Sequence[TimedStep],
    own_cpu: bool,
    reference_seconds: float,
    used_seconds: float,
) -> StepMeasurement:
    """The measurement that ``steps`` (at least one) are of; with ``own_cpu`` interruptions show in their CPU time."""
    undisturbed = [s for s in steps if not own_cpu or s.cpu_seconds >= UNDISTURBED_CPU_SHARE * s.seconds]
    times = [step.seconds for step in undisturbed] or [step.cpu_seconds for step in steps]
    return StepMeasurement(
        point=point,
        number=number,
        seconds=float(np.median(times)),
        kv_tokens=int(np.median([step.kv_tokens for step in steps])),
        steps=len(steps),
        undisturbed_steps=len(undisturbed),
        reference_seconds=reference_seconds,
        used_seconds=used_seconds,
    )


def best_reference(measurements: Sequence[StepMeasurement]) -> float:
    """Seconds of the reference work on the undisturbed host."""
    return min(measurement.reference_seconds for measurement in measurements)


def best_by_point(measurements: Sequence[StepMeasurement], reference_seconds: float) -> dict[StepPoint, StepSample]:
    """Each point's time on the undisturbed machine, weighed by the measurements that it is of.

    The median of the undisturbed measurements near their lower quartile: what no watch has noticed is slow all the
    same; of a point that was never undisturbed the quartile itself. ``reference_seconds`` is the reference work on
    the undisturbed host.
    """
    by_point: dict[StepPoint, list[StepMeasurement]] = {}
    for measurement in measurements:
        by_point.setdefault(measurement.point, []).append(measurement)
    best = {}
    for point, repeats in by_point.items():
        undisturbed = [repeat for repeat in repeats if repeat.is_undisturbed(reference_seconds)]
        kept = undisturbed or repeats
        quartile = float(np.quantile([repeat.seconds for repeat in kept], QUANTILE))
        kept = [repeat for repeat in kept if repeat.seconds <= UNDISTURBED_REFERENCE * quartile]
        best[point] = replace(
            kept[0].sample,
            seconds=float(np.median([repeat.seconds for repeat in kept])) if undisturbed else quartile,
            kv_tokens=int(np.median([repeat.kv_tokens for repeat in kept])),
            weight=sum(repeat.sample.weight for repeat in kept),
        )
    return best


def never_undisturbed(measurements: Sequence[StepMeasurement], patience: int) -> list[StepPoint]:
    """Points without an undisturbed measurement, unless they have been measured ``patience`` times."""
    best = best_reference(measurements)
    undisturbed = {measurement.point for measurement in measurements if measurement.is_undisturbed(best)}
    times = Counter(measurement.point for measurement in measurements)
    return sorted(point for point in times.keys() - undisturbed if times[point] < patience)


def noise_floor_by_kind(measurements: Sequence[StepMeasurement]) -> dict[str, float]:
    """The noise floor of each kind of step that has points in both halves of the passes."""
    parts = [best_by_point(half, best_reference(measurements)) for half in split(measurements) if half]
    if len(parts) < 2:
        return {}
    pairs: dict[str, list[tuple[float, float]]] = {}
    for point in sorted(parts[0].keys() & parts[1].keys()):
        pairs.setdefault(point.kind, []).append((parts[0][point].seconds, parts[1][point].seconds))
    return {kind: round(noise_floor(*np.array(seconds).T), 5) for kind, seconds in pairs.items()}
