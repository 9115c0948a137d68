"""What a point is worth: simulated on one replication to look around, on all of them to decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlsim.results.columns import Columns
from rlsim.results.progress import used_at
from rlsim.results.statistics import Estimate, interval
from rlsim.studies.optimize.candidates import NOMINAL, Candidate, Candidates, InputState
from rlsim.studies.optimize.space import GridPoint
from rlsim.studies.runs.executor import RunExecutor
from rlsim.studies.runs.record import RunRecord
from rlsim.studies.sweep import Result, results_of

COST = "usd_per_million_trained_tokens"
TO_TARGET = {"seconds_to_target": "seconds", "usd_to_target": "usd"}
"""Measures of the way to the target, by what is used up on it."""


@dataclass(frozen=True, slots=True)
class EvaluatedPoint:
    """A point and its runs in one case."""

    candidate: Candidate
    objective: str
    result: Result
    target: float | None = None
    """Success rate that all its runs reach."""

    @property
    def point(self) -> GridPoint:
        """The point."""
        return self.candidate.point

    @property
    def levels(self) -> dict[str, str]:
        """Its levels, as written."""
        return self.candidate.variant.levels

    @property
    def value(self) -> float:
        """Mean of the objective over the runs there are."""
        return self.estimate(self.objective).mean

    def rank(self) -> tuple[float, GridPoint]:
        """Its place in an order from the best down; of equal values the earlier point is first."""
        return self.value, self.point

    def values(self, metric: str) -> list[float]:
        """Of every run."""
        if metric == "seconds_per_million_trained_tokens":
            rates = self.result.values("tokens_per_second_per_gpu")
            return [1e6 / (rate * self.candidate.gpus) for rate in rates]
        if metric in TO_TARGET:
            target = self.target or 0.0
            return [float(used_to(record, target, TO_TARGET[metric]) or 0.0) for record in self.result.runs]
        return self.result.values(metric)

    def estimate(self, metric: str) -> Estimate:
        """Mean and interval over the runs."""
        return interval(self.values(metric), self.candidate.variant.scenario.run.confidence)


@dataclass(slots=True)
class SearchCost:
    """What a search has cost."""

    points: set[tuple[str, GridPoint]] = field(default_factory=set)
    """Simulated, by case."""
    runs_made: int = 0
    """Runs made for the search."""
    runs_reused: int = 0
    """Runs that were in the store before it."""


class Evaluator:
    """Simulates points and applies the limits that only a run can tell."""

    def __init__(self, candidates: Candidates, objective: str, runs: RunExecutor) -> None:
        self.candidates, self.objective = candidates, objective
        self.spent = SearchCost()
        self._runs = runs

    def evaluate(
        self, points: Sequence[GridPoint], state: InputState = NOMINAL, replications: int = 1
    ) -> dict[GridPoint, EvaluatedPoint]:
        """The feasible ones among the points, simulated; what breaks a limit is excluded and counted."""
        resolved = [self.candidates.resolve(point, state) for point in dict.fromkeys(points)]
        simulated = self.simulated(
            [candidate for candidate in resolved if isinstance(candidate, Candidate)], state, replications
        )
        kept = {}
        for evaluated in simulated:
            broken = _broken(evaluated, self.candidates)
            if broken:
                self.candidates.exclude(evaluated.point, state, *broken)
            else:
                kept[evaluated.point] = evaluated
        return kept

    def simulated(self, candidates: Sequence[Candidate], state: InputState, replications: int) -> list[EvaluatedPoint]:
        """Candidates with their runs, whatever the limits say; those that did not end are excluded."""
        results = results_of([candidate.variant for candidate in candidates], replications, self._runs)
        self.spent.runs_made, self.spent.runs_reused = self._runs.runs_made, self._runs.runs_kept
        self.spent.points |= {(state.name, candidate.point) for candidate in candidates}
        ended = []
        for candidate, result in zip(candidates, results, strict=True):
            lacking = self._lacking(result)
            if lacking:
                self.candidates.exclude(candidate.point, state, *lacking)
            else:
                ended.append(EvaluatedPoint(candidate, self.objective, result, self.candidates.limits.target_success))
        return ended

    def _lacking(self, result: Result) -> tuple[str, str] | None:
        """Why runs tell nothing: one did not end, or did not come to the target."""
        target = self.candidates.limits.target_success
        if result.fault:
            return "did not end", result.fault.splitlines()[0]
        if target is not None and any(used_to(record, target, "seconds") is None for record in result.runs):
            reached = min(max(progress_of(record)["success"]) for record in result.runs)
            return (
                "target_success",
                f"{reached:.3f} after {result.variant.scenario.run.steps} steps; wanted: {target:g}",
            )
        return None


def used_to(record: RunRecord, target: float, used: str) -> float | None:
    """How much of ``used`` a run took to the target; None where it did not come to it."""
    return used_at(progress_of(record), target, used)


def progress_of(record: RunRecord) -> Columns:
    """Success, seconds and USD (and more) by the end of every step; raises where the scenario does not learn."""
    assert record.progress is not None, "a target belongs to runs with a learning model"
    return record.progress


def _broken(evaluated: EvaluatedPoint, candidates: Candidates) -> tuple[str, str] | None:
    """The limit that a point's runs break."""
    limits = candidates.limits
    bounds = (
        ("max_start_lag", limits.max_start_lag, max(evaluated.values("start_lag_max"))),
        ("max_step_seconds", limits.max_step_seconds, evaluated.estimate("step_seconds").mean),
        (f"max_{COST}", limits.max_usd_per_million_trained_tokens, evaluated.estimate(COST).mean),
    )
    for name, most, value in bounds:
        if most is not None and value > most:
            return name, f"{value:.4g}; allowed: {most:g}"
    return None
