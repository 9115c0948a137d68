"""From points that were looked at to a choice: the contenders on all replications, the front, the flat region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlsim.results.statistics import Estimate, paired_ratio
from rlsim.studies.optimize.candidates import NOMINAL
from rlsim.studies.optimize.scoring import COST, EvaluatedPoint, Evaluator
from rlsim.studies.optimize.space import GridPoint

Measures = tuple[str, str]
"""Metrics of time and of cost, between which the front is."""
MARGIN = 0.05
"""A point this much above the best, or above the front in both time and cost, is still a contender."""
MOST_CONTENDERS = 48


@dataclass(frozen=True, slots=True)
class Selection:
    """The choice and those it was chosen from, the best first."""

    best: EvaluatedPoint
    contenders: tuple[EvaluatedPoint, ...]
    """On all replications."""
    front: tuple[EvaluatedPoint, ...]
    """Contenders that no other beats in both time and cost, by increasing time."""
    looked_at: Mapping[GridPoint, EvaluatedPoint]
    """All feasible points that were simulated, on one replication at least."""
    measures: Measures
    written: tuple[EvaluatedPoint, ...]
    """The scenario as it stands, where it is a feasible point."""
    left_out: int
    """Points within the margin that were not replicated, for there are too many."""

    def point_dict(self, evaluated: EvaluatedPoint) -> dict[str, Any]:
        """One of its points, as plain values by name."""
        return {
            "levels": evaluated.levels,
            "gpus": evaluated.candidate.gpus,
            "usd_per_hour": evaluated.candidate.usd_per_hour,
            "objective": asdict(evaluated.estimate(evaluated.objective)),
            "step_seconds": asdict(evaluated.estimate("step_seconds")),
            COST: asdict(evaluated.estimate(COST)),
            "start_lag_max": max(evaluated.values("start_lag_max")),
            "ratio_to_best": asdict(self.ratio(evaluated)),
            "on_front": evaluated in self.front,
            "as_written": evaluated in self.written,
            "tied_with_best": evaluated in self.tied,
            "run": evaluated.result.runs[0].identity,
        }

    def ratio(self, evaluated: EvaluatedPoint) -> Estimate:
        """Its objective over the best one's, replication by replication."""
        return ratio(evaluated, self.best)

    @property
    def flat(self) -> tuple[EvaluatedPoint, ...]:
        """Contenders within the margin of the best."""
        return tuple(contender for contender in self.contenders if self.ratio(contender).mean <= 1 + MARGIN)

    @property
    def tied(self) -> tuple[EvaluatedPoint, ...]:
        """Contenders whose difference from the best is within what replications tell apart."""
        return tuple(contender for contender in self.contenders if is_tied(self.ratio(contender)))


def ratio(one: EvaluatedPoint, other: EvaluatedPoint) -> Estimate:
    """Objectives, paired."""
    metric = one.objective
    return paired_ratio(one.values(metric), other.values(metric), one.candidate.variant.scenario.run.confidence)


def is_tied(estimate: Estimate) -> bool:
    """Whether the interval of a ratio holds 1; one run tells nothing apart but equal numbers."""
    if estimate.low is None or estimate.high is None:
        return estimate.mean == 1
    return estimate.low <= 1 <= estimate.high


def select(
    evaluator: Evaluator, looked_at: Mapping[GridPoint, EvaluatedPoint], replications: int, measures: Measures
) -> Selection | None:
    """The choice; None where no point is feasible."""
    left, left_out = dict(looked_at), 0
    as_written = [point for point in evaluator.candidates.space.written() if point in looked_at]
    replicated: dict[GridPoint, EvaluatedPoint] = {}
    while left and not replicated:
        contenders, left_out = _contenders(left, measures)
        replicated = evaluator.evaluate([*contenders, *as_written], NOMINAL, replications)
        left = {point: evaluated for point, evaluated in left.items() if point not in contenders}
    if not replicated:
        return None
    ordered = sorted(replicated.values(), key=EvaluatedPoint.rank)
    written = tuple(replicated[point] for point in as_written if point in replicated)
    return Selection(
        ordered[0], tuple(ordered), tuple(front(ordered, measures)), looked_at, measures, written, left_out
    )


def _contenders(looked_at: Mapping[GridPoint, EvaluatedPoint], measures: Measures) -> tuple[list[GridPoint], int]:
    """Points within the margin of the best or of the front, the best first, and how many more there are."""
    ranked = sorted(looked_at.values(), key=EvaluatedPoint.rank)
    time, cost = measures
    near = []
    for evaluated in ranked:
        least_time, least_cost = _mean(evaluated, time) / (1 + MARGIN), _mean(evaluated, cost) / (1 + MARGIN)
        is_good = evaluated.value <= ranked[0].value * (1 + MARGIN)
        if is_good or not any(_mean(other, time) < least_time and _mean(other, cost) < least_cost for other in ranked):
            near.append(evaluated.point)
    return near[:MOST_CONTENDERS], max(0, len(near) - MOST_CONTENDERS)


def front(points: Sequence[EvaluatedPoint], measures: Measures) -> list[EvaluatedPoint]:
    """Those that no other beats in both time and cost, by increasing time."""
    frontier: list[EvaluatedPoint] = []
    for evaluated in sorted(
        points, key=lambda evaluated: (_mean(evaluated, measures[0]), _mean(evaluated, measures[1]))
    ):
        if not frontier or _mean(evaluated, measures[1]) < _mean(frontier[-1], measures[1]):
            frontier.append(evaluated)
    return frontier


def _mean(evaluated: EvaluatedPoint, metric: str) -> float:
    return evaluated.estimate(metric).mean
