"""What a point is worth: simulated on one replication to look around, on all of them to decide."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlsim.results.columns import Columns
from rlsim.results.progress import used_at
from rlsim.results.statistics import Estimate, interval
from rlsim.studies.optimize.candidates import NOMINAL, Candidate, Candidates, Case
from rlsim.studies.optimize.space import At
from rlsim.studies.runs.executor import PROGRESS, Makers, made_all
from rlsim.studies.runs.store import Made, RunStore
from rlsim.studies.sweep import Result

COST = "usd_per_million_trained_tokens"
TO_TARGET = {"seconds_to_target": "seconds", "usd_to_target": "usd"}
"""Measures of the way to the target, by what is used up on it."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A point and its runs in one case."""

    candidate: Candidate
    objective: str
    result: Result
    target: float | None = None
    """Success rate that all its runs reach."""

    @property
    def at(self) -> At:
        """The point."""
        return self.candidate.at

    @property
    def value(self) -> float:
        """Mean of the objective over the runs there are."""
        return self.estimate(self.objective).mean

    def values(self, metric: str) -> list[float]:
        """Of every run."""
        if metric == "seconds_per_million_trained_tokens":
            rates = self.result.values("tokens_per_second_per_gpu")
            return [1e6 / (rate * self.candidate.gpus) for rate in rates]
        if metric in TO_TARGET:
            target = self.target or 0.0
            return [float(used_to(made, target, TO_TARGET[metric]) or 0.0) for made in self.result.runs]
        return self.result.values(metric)

    def estimate(self, metric: str) -> Estimate:
        """Mean and interval over the runs."""
        return interval(self.values(metric), self.candidate.variant.scenario.run.confidence)


@dataclass(slots=True)
class Spent:
    """What a search has cost."""

    points: set[tuple[str, At]] = field(default_factory=set)
    """Simulated, by case."""
    made: int = 0
    reused: int = 0


class Judge:
    """Simulates points and applies the limits that only a run can tell."""

    def __init__(
        self,
        candidates: Candidates,
        objective: str,
        store: RunStore,
        makers: Makers,
        done: Callable[[int], None] = lambda runs: None,
    ) -> None:
        self.candidates, self.objective = candidates, objective
        self.spent = Spent()
        self._store, self._makers, self._done = store, makers, done

    def score(self, points: Sequence[At], case: Case = NOMINAL, replications: int = 1) -> dict[At, Scored]:
        """The feasible ones among the points, simulated; what breaks a limit is excluded and counted."""
        found = [self.candidates.at(at, case) for at in dict.fromkeys(points)]
        scored = self.simulated([one for one in found if isinstance(one, Candidate)], case, replications)
        kept = {}
        for one in scored:
            broken = _broken(one, self.candidates)
            if broken:
                self.candidates.exclude(one.at, case, *broken)
            else:
                kept[one.at] = one
        return kept

    def simulated(self, some: Sequence[Candidate], case: Case, replications: int) -> list[Scored]:
        """Candidates with their runs, whatever the limits say; those that did not end are excluded."""
        orders = {order.key: order for one in some for order in one.variant.orders(replications)}
        missing = sum(self._store.find(*key) is None for key in orders)
        made = made_all(list(orders.values()), self._store.find, self._makers, self._keep)
        self.spent.made += missing
        self.spent.reused += len(orders) - missing
        self._done(len(orders) - missing)
        self.spent.points |= {(case.name, one.at) for one in some}
        results = [
            Result(one.variant, tuple(made[one.variant.run, number] for number in range(replications))) for one in some
        ]
        ended = []
        for one, result in zip(some, results, strict=True):
            lacking = self._lacking(result)
            if lacking:
                self.candidates.exclude(one.at, case, *lacking)
            else:
                ended.append(Scored(one, self.objective, result, self.candidates.limits.target_success))
        return ended

    def _lacking(self, result: Result) -> tuple[str, str] | None:
        """Why runs tell nothing: one did not end, or did not come to the target."""
        target = self.candidates.limits.target_success
        if result.fault:
            return "did not end", result.fault.splitlines()[0]
        if target is not None and any(used_to(made, target, "seconds") is None for made in result.runs):
            reached = min(max(progress_of(made)["success"]) for made in result.runs)
            return (
                "target_success",
                f"{reached:.3f} after {result.variant.scenario.run.steps} steps; wanted: {target:g}",
            )
        return None

    def _keep(self, made: Made) -> None:
        self._store.add(made)
        self._done(1)


def used_to(made: Made, target: float, used: str) -> float | None:
    """How much of ``used`` a run took to the target; None where it did not come to it."""
    return used_at(progress_of(made), target, used)


def progress_of(made: Made) -> Columns:
    """By the end of every step: success, seconds, USD."""
    text = made.metrics.get(PROGRESS)
    read = json.loads(text) if isinstance(text, str) else {"success": [], "seconds": [], "usd": []}
    return {name: np.array(values, np.float64) for name, values in read.items()}


def _broken(one: Scored, candidates: Candidates) -> tuple[str, str] | None:
    """The limit that a point's runs break."""
    limits = candidates.limits
    bounds = (
        ("max_start_lag", limits.max_start_lag, max(one.values("start_lag_max"))),
        ("max_step_seconds", limits.max_step_seconds, one.estimate("step_seconds").mean),
        (f"max_{COST}", limits.max_usd_per_million_trained_tokens, one.estimate(COST).mean),
    )
    for name, most, found in bounds:
        if most is not None and found > most:
            return name, f"{found:.4g}; allowed: {most:g}"
    return None
