"""Arms of a scenario raced to a success rate: what each has used up when it gets there, and what it wasted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlsim.core.errors import ParameterError
from rlsim.resolve import ResolvedScenario
from rlsim.results.allocation import BANDS, Allotted
from rlsim.results.columns import Columns
from rlsim.results.progress import success_at, used_at
from rlsim.results.statistics import Estimate, interval, paired_difference, paired_ratio
from rlsim.scenario.document import Document
from rlsim.studies.compare import Arm, plans, replications
from rlsim.studies.runs.record import Outcome, perform_all

WASTE = ("filtered", "unselected", "pruned", "dropped_stale", "dropped_surplus")
"""Fates of tokens that were made and never trained on, whatever the run's end."""


@dataclass(frozen=True, slots=True)
class Race:
    """Arms on the same luck, and the success that they are to reach."""

    name: str
    target: float
    arms: tuple[Arm, ...]

    def used(self, arm: Arm, used: str) -> list[float | None]:
        """How much of ``used`` every replication of an arm took to the target; None where it did not get there."""
        return [used_at(_progress(outcome), self.target, used) for outcome in arm.outcomes]

    def estimate(self, arm: Arm, used: str) -> Estimate | None:
        """Mean and interval; None unless every replication gets there."""
        found = self.used(arm, used)
        whole = [value for value in found if value is not None]
        return interval(whole, _confidence(arm)) if len(whole) == len(found) else None

    def over_first(self, arm: Arm, used: str) -> Estimate | None:
        """What the first arm used over what this one did, from paired replications; above 1 this one is better."""
        pairs = list(zip(self.used(self.arms[0], used), self.used(arm, used), strict=True))
        whole = [(a, b) for a, b in pairs if a and b]
        if len(whole) < len(pairs):
            return None
        return paired_ratio([a for a, _ in whole], [b for _, b in whole], _confidence(arm))

    def difference_at(self, arm: Arm, used: str) -> Estimate:
        """Success of this arm less the first one's at equal ``used``: as much as both have in a replication."""
        base, own = [], []
        for one, other in zip(self.arms[0].outcomes, arm.outcomes, strict=True):
            most = min(_progress(one)[used][-1], _progress(other)[used][-1])
            base.append(success_at(_progress(one), used, most))
            own.append(success_at(_progress(other), used, most))
        return paired_difference(_known(own), _known(base), _confidence(arm))


def run_race(
    document: Document,
    target: float,
    out: Path | None = None,
    workers: int | None = None,
    done: Callable[[Outcome], None] = lambda outcome: None,
) -> Race:
    """Simulate all arms; ``ParameterError`` for a scenario without a learning section."""
    return race_plans(plans(document), target, out, workers, done)


def race_plans(
    made: dict[str, ResolvedScenario],
    target: float,
    out: Path | None = None,
    workers: int | None = None,
    done: Callable[[Outcome], None] = lambda outcome: None,
) -> Race:
    """The same of plans by arm."""
    for name, found in made.items():
        if found.learning is None:
            raise ParameterError("learning", None, f"a learning section in arm {name}")
    outcomes = iter(perform_all(replications(made, out), done, workers))
    arms = [
        Arm(name, found, tuple(next(outcomes) for _ in range(found.scenario.run.replications)))
        for name, found in made.items()
    ]
    return Race(next(iter(made.values())).scenario.name, target, tuple(arms))


def wasted(arm: Arm) -> dict[str, float]:
    """Shares of the generated tokens by why they were never trained on, mean over replications."""
    ledgers = [outcome.metrics.ledger_tokens for outcome in arm.outcomes]
    return {
        fate: sum(found.get(fate, 0) / max(1, sum(found.values())) for found in ledgers) / len(ledgers)
        for fate in WASTE
    }


def given(arm: Arm, what: str) -> dict[str, float]:
    """Shares of the ``samples`` or ``tokens`` by band of their prompt's success probability, mean over replications."""
    shares = [found.band_shares(what) for found in allotments(arm)]
    return {band: sum(found[band] for found in shares) / len(shares) for band in BANDS}


def allotments(arm: Arm) -> list[Allotted]:
    """Which prompts got what, by replication."""
    found = [outcome.allotted for outcome in arm.outcomes if outcome.allotted is not None]
    assert len(found) == len(arm.outcomes), "a race is between runs with a learning model"
    return found


def success(arm: Arm, step: int) -> Estimate:
    """Of the model at a place of the progress table: 0 before training, -1 at the end."""
    return interval([float(_progress(outcome)["success"][step]) for outcome in arm.outcomes], _confidence(arm))


def _progress(outcome: Outcome) -> Columns:
    assert outcome.progress is not None, "a race is between runs with a learning model"
    return outcome.progress


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _confidence(arm: Arm) -> float:
    return arm.plan.scenario.run.confidence
