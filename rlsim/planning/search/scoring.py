"""What a point is worth: simulated on one replication to look around, on all of them to decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlsim.planning.search.candidates import NOMINAL, Candidate, Candidates, Case
from rlsim.planning.search.space import At
from rlsim.planning.sweep.orders import Makers, made_all
from rlsim.planning.sweep.store import Made, RunStore
from rlsim.planning.sweep.study import Result
from rlsim.results.statistics import Estimate, interval

COST = "usd_per_million_trained_tokens"


@dataclass(frozen=True, slots=True)
class Scored:
    """A point and its runs in one case."""

    candidate: Candidate
    objective: str
    result: Result

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
        for one, result in zip(some, results, strict=True):
            if result.fault:
                self.candidates.exclude(one.at, case, "did not end", result.fault.splitlines()[0])
        return [
            Scored(one, self.objective, result) for one, result in zip(some, results, strict=True) if not result.fault
        ]

    def _keep(self, made: Made) -> None:
        self._store.add(made)
        self._done(1)


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
