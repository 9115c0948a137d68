"""From points that were looked at to a choice: the contenders on all replications, the front, the flat region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlsim.results.statistics import Estimate, paired_ratio
from rlsim.studies.optimize.candidates import NOMINAL
from rlsim.studies.optimize.scoring import Judge, Scored
from rlsim.studies.optimize.space import At

Measures = tuple[str, str]
"""Metrics of time and of cost, between which the front is."""
MARGIN = 0.05
"""A point this much above the best, or above the front in both time and cost, is still a contender."""
MOST_CONTENDERS = 48


@dataclass(frozen=True, slots=True)
class Decision:
    """The choice and those it was chosen from, the best first."""

    best: Scored
    contenders: tuple[Scored, ...]
    """On all replications."""
    front: tuple[Scored, ...]
    """Contenders that no other beats in both time and cost, by increasing time."""
    looked_at: Mapping[At, Scored]
    """All feasible points that were simulated, on one replication at least."""
    measures: Measures
    written: tuple[Scored, ...]
    """The scenario as it stands, where it is a feasible point."""
    left_out: int
    """Points within the margin that were not replicated, for there are too many."""

    def ratio(self, one: Scored) -> Estimate:
        """Its objective over the best one's, replication by replication."""
        return ratio(one, self.best)

    @property
    def flat(self) -> tuple[Scored, ...]:
        """Contenders within the margin of the best."""
        return tuple(one for one in self.contenders if self.ratio(one).mean <= 1 + MARGIN)

    @property
    def tied(self) -> tuple[Scored, ...]:
        """Contenders whose difference from the best is within what replications tell apart."""
        return tuple(one for one in self.contenders if is_tied(self.ratio(one)))


def ratio(one: Scored, other: Scored) -> Estimate:
    """Objectives, paired."""
    metric = one.objective
    return paired_ratio(one.values(metric), other.values(metric), one.candidate.variant.scenario.run.confidence)


def is_tied(found: Estimate) -> bool:
    """Whether the interval of a ratio holds 1; one run tells nothing apart but equal numbers."""
    if found.low is None or found.high is None:
        return found.mean == 1
    return found.low <= 1 <= found.high


def decide(judge: Judge, looked_at: Mapping[At, Scored], replications: int, measures: Measures) -> Decision | None:
    """The choice; None where no point is feasible."""
    left, left_out = dict(looked_at), 0
    as_written = [at for at in judge.candidates.space.written() if at in looked_at]
    scored: dict[At, Scored] = {}
    while left and not scored:
        contenders, left_out = _contenders(left, measures)
        scored = judge.score([*contenders, *as_written], NOMINAL, replications)
        left = {at: one for at, one in left.items() if at not in contenders}
    if not scored:
        return None
    ordered = sorted(scored.values(), key=lambda one: (one.value, one.at))
    written = tuple(scored[at] for at in as_written if at in scored)
    return Decision(ordered[0], tuple(ordered), tuple(front(ordered, measures)), looked_at, measures, written, left_out)


def _contenders(looked_at: Mapping[At, Scored], measures: Measures) -> tuple[list[At], int]:
    """Points within the margin of the best or of the front, the best first, and how many more there are."""
    some = sorted(looked_at.values(), key=lambda one: (one.value, one.at))
    near = [one.at for one in some if _is_near(one, some, measures)]
    return near[:MOST_CONTENDERS], max(0, len(near) - MOST_CONTENDERS)


def _is_near(one: Scored, some: Sequence[Scored], measures: Measures) -> bool:
    if one.value <= some[0].value * (1 + MARGIN):
        return True
    time, cost = _mean(one, measures[0]) / (1 + MARGIN), _mean(one, measures[1]) / (1 + MARGIN)
    return not any(_mean(other, measures[0]) < time and _mean(other, measures[1]) < cost for other in some)


def front(some: Sequence[Scored], measures: Measures) -> list[Scored]:
    """Those that no other beats in both time and cost, by increasing time."""
    found: list[Scored] = []
    for one in sorted(some, key=lambda one: (_mean(one, measures[0]), _mean(one, measures[1]))):
        if not found or _mean(one, measures[1]) < _mean(found[-1], measures[1]):
            found.append(one)
    return found


def _mean(one: Scored, metric: str) -> float:
    return one.estimate(metric).mean
