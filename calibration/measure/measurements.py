"""One visit to a point: some steps of the same composition, and how calm the machine was meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibration.fitting.step_model import StepSample
from calibration.measure.points import StepPoint, TimedStep

QUANTILE = 0.25
"""Of the visits to a point: interference only ever adds time, on shared machines up to a factor of two for seconds, so
a low quantile lies among the undisturbed visits while fewer than three in four are disturbed; the minimum would
also take the luckiest noise."""
CALM_CPU_SHARE = 0.95
"""A step on a CPU during which this process ran less than this was interrupted by another."""
CALM_REFERENCE = 1.15
"""A visit during which the reference work took longer than this times its best was slowed by the host."""

JITTERY_STEPS = 12
"""Steps whose jitter, in their median, is as large as what the host's state differs by from visit to visit."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What one visit found."""

    point: StepPoint
    number: int
    """Of the pass; even ones are fitted, odd ones judge."""
    seconds: float
    """Median of the undisturbed steps; where there is none, of the CPU time of all, to which the caches that others
    have filled still add."""
    kv_tokens: int
    """Median over the steps: contexts grow."""
    steps: int
    calm_steps: int
    reference_seconds: float
    """Time of a fixed piece of work, the slower of before and after."""
    used_seconds: float
    """Of the budget, when it was over."""

    @property
    def sample(self) -> StepSample:
        """As a sample to fit or to judge by."""
        return replace(self.point.sample(self.seconds), kv_tokens=self.kv_tokens)

    @property
    def worth(self) -> float:
        """One for very many steps, whose jitter averages out; what the host is like during a visit does not."""
        return float(worth_of(self.calm_steps or self.steps))

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        at = self.point
        composition = [at.decodes, at.context, at.chunks, at.tokens, at.cached]
        return {name: getattr(self, name) for name in _PLAIN} | {"point": composition}

    @classmethod
    def from_dict(cls, tree: dict[str, Any]) -> Visit:
        """What :meth:`as_dict` made."""
        return cls(point=StepPoint(*tree["point"]), **{name: tree[name] for name in _PLAIN})


_PLAIN = ("number", "seconds", "kv_tokens", "steps", "calm_steps", "reference_seconds", "used_seconds")


def worth_of(steps: Any) -> Any:
    """What a visit of so many steps is worth."""
    return steps / (steps + JITTERY_STEPS)


def summarise(
    point: StepPoint,
    number: int,
    steps: Sequence[TimedStep],
    own_cpu: bool,
    reference_seconds: float,
    used_seconds: float,
) -> Visit:
    """The visit that ``steps`` (at least one) are of."""
    calm = [step for step in steps if not own_cpu or step.cpu_seconds >= CALM_CPU_SHARE * step.seconds]
    times = [step.seconds for step in calm] or [step.cpu_seconds for step in steps]
    return Visit(
        point=point,
        number=number,
        seconds=float(np.median(times)),
        kv_tokens=int(np.median([step.kv_tokens for step in steps])),
        steps=len(steps),
        calm_steps=len(calm),
        reference_seconds=reference_seconds,
        used_seconds=used_seconds,
    )


def best_reference(visits: Sequence[Visit]) -> float:
    """The reference work on the undisturbed host, seconds."""
    return min(visit.reference_seconds for visit in visits)


@dataclass(frozen=True, slots=True)
class Typical:
    """A point's time on the undisturbed machine."""

    sample: StepSample
    worth: float
    """Visits that it is of, each as far as its steps are many (:attr:`Visit.worth`)."""


def best_by_point(visits: Sequence[Visit], reference_seconds: float) -> dict[StepPoint, Typical]:
    """The median of the undisturbed visits to each point; their lower quartile where none was.

    ``reference_seconds`` is the reference work on the undisturbed host.
    """
    by_point: dict[StepPoint, list[Visit]] = {}
    for visit in visits:
        by_point.setdefault(visit.point, []).append(visit)
    return {point: _typical(found, reference_seconds) for point, found in by_point.items()}


def is_calm(visit: Visit, reference_seconds: float) -> bool:
    """Whether neither another process nor a slow host disturbed it all."""
    return visit.calm_steps > 0 and visit.reference_seconds <= CALM_REFERENCE * reference_seconds


def _typical(found: list[Visit], reference_seconds: float) -> Typical:
    """Of the calm visits those near the lower quartile: what no watch has noticed is slow all the same."""
    calm = [visit for visit in found if is_calm(visit, reference_seconds)]
    kept = calm or found
    quartile = float(np.quantile([visit.seconds for visit in kept], QUANTILE))
    kept = [visit for visit in kept if visit.seconds <= CALM_REFERENCE * quartile]
    seconds = float(np.median([visit.seconds for visit in kept])) if calm else quartile
    kv_tokens = int(np.median([visit.kv_tokens for visit in kept]))
    return Typical(replace(kept[0].sample, seconds=seconds, kv_tokens=kv_tokens), sum(v.worth for v in kept))


def never_calm(visits: Sequence[Visit], patience: int) -> list[StepPoint]:
    """Points that no visit found calm, unless there have been ``patience`` of them."""
    best = best_reference(visits)
    calm = {visit.point for visit in visits if is_calm(visit, best)}
    times = Counter(visit.point for visit in visits)
    return sorted(point for point in times.keys() - calm if times[point] < patience)


def noise_floor(visits: Sequence[Visit]) -> dict[str, float]:
    """How far apart two halves of the visits to one point are, by kind: the median of |even / odd - 1|.

    Nothing fitted to the even passes can be expected to be closer to the odd ones.
    """
    halves = [best_by_point(half, best_reference(visits)) for half in split(visits) if half]
    if len(halves) < 2:
        return {}
    apart: dict[str, list[float]] = {}
    for point in sorted(halves[0].keys() & halves[1].keys()):
        ratio = halves[0][point].sample.seconds / halves[1][point].sample.seconds
        apart.setdefault(point.kind, []).append(abs(ratio - 1.0))
    return {kind: round(float(np.median(values)), 5) for kind, values in apart.items()}


def split(visits: Sequence[Visit]) -> tuple[list[Visit], list[Visit]]:
    """Those of even and those of odd passes."""
    return [v for v in visits if v.number % 2 == 0], [v for v in visits if v.number % 2 == 1]
