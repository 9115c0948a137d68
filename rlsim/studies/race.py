"""Arms of a scenario raced to a success rate: what each has used up when it gets there, and what it wasted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rlsim import __version__
from rlsim.core.errors import ParameterError
from rlsim.resolve import ResolvedScenario
from rlsim.results.allocation import BANDS, Allotted
from rlsim.results.columns import Columns
from rlsim.results.progress import USED, success_at, used_at
from rlsim.results.statistics import Estimate, interval, paired_difference, paired_ratio
from rlsim.studies.compare import Arm, arms_of, replications
from rlsim.studies.runs.executor import RunExecutor
from rlsim.studies.runs.record import RunRecord

WASTE = ("filtered", "unselected", "pruned", "dropped_stale", "dropped_surplus")
"""Fates of tokens that were made and never trained on, whatever the run's end."""


@dataclass(frozen=True, slots=True)
class Race:
    """Arms with common random numbers, and the success that they are to reach."""

    name: str
    target: float
    arms: tuple[Arm, ...]

    def used(self, arm: Arm, used: str) -> list[float | None]:
        """How much of ``used`` every replication of an arm took to the target; None where it did not get there."""
        return [used_at(_progress(record), self.target, used) for record in arm.records]

    def estimate(self, arm: Arm, used: str) -> Estimate | None:
        """Mean and interval; None unless every replication gets there."""
        amounts = self.used(arm, used)
        whole = [value for value in amounts if value is not None]
        return interval(whole, _confidence(arm)) if len(whole) == len(amounts) else None

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
        for base_record, own_record in zip(self.arms[0].records, arm.records, strict=True):
            most = min(_progress(base_record)[used][-1], _progress(own_record)[used][-1])
            base.append(success_at(_progress(base_record), used, most))
            own.append(success_at(_progress(own_record), used, most))
        return paired_difference(_known(own), _known(base), _confidence(arm))

    def to_dict(self) -> dict[str, object]:
        """Everything, and the whole progress of every run, as plain values by name."""
        arms = {arm.name: self._arm_dict(arm) for arm in self.arms}
        return {"name": self.name, "rlsim": __version__, "target": self.target, "estimate": True, "arms": arms}

    def _arm_dict(self, arm: Arm) -> dict[str, object]:
        to_target = {used: self.estimate(arm, used) for used in USED}
        over_first = {used: self.over_first(arm, used) for used in USED}
        return {
            "success_first": asdict(success(arm, 0)),
            "success_last": asdict(success(arm, -1)),
            "to_target": {used: estimate and asdict(estimate) for used, estimate in to_target.items()},
            "first_over_this": {used: estimate and asdict(estimate) for used, estimate in over_first.items()},
            "difference_at_equal": {used: asdict(self.difference_at(arm, used)) for used in USED},
            "wasted_share_of_tokens": wasted(arm),
            "share_by_success_band": {unit: band_shares(arm, unit) for unit in ("samples", "tokens")},
            "progress": [
                {name: values.tolist() for name, values in (record.progress or {}).items()} for record in arm.records
            ],
        }


def race_plans(
    plans: Mapping[str, ResolvedScenario], target: float, runs: RunExecutor, out: Path | None = None
) -> Race:
    """Simulate resolved arms; ``ParameterError`` for one without a learning section, before anything runs."""
    for name, resolved in plans.items():
        if resolved.learning is None:
            raise ParameterError("learning", None, f"a learning section in arm {name}")
    by_arm = replications(plans, out)
    records = runs.run_all([request for arm_requests in by_arm.values() for request in arm_requests], must_end=True)
    return Race(next(iter(plans.values())).scenario.name, target, arms_of(plans, by_arm, records))


def wasted(arm: Arm) -> dict[str, float]:
    """Shares of the generated tokens by why they were never trained on, mean over replications."""
    ledgers = [record.metrics.ledger_tokens for record in arm.records]
    return {
        outcome: sum(ledger.get(outcome, 0) / max(1, sum(ledger.values())) for ledger in ledgers) / len(ledgers)
        for outcome in WASTE
    }


def band_shares(arm: Arm, unit: str) -> dict[str, float]:
    """Shares of the ``samples`` or ``tokens`` by band of their prompt's success probability, mean over replications."""
    shares = [allocation.band_shares(unit) for allocation in allocations_of(arm)]
    return {band: sum(run_shares[band] for run_shares in shares) / len(shares) for band in BANDS}


def allocations_of(arm: Arm) -> list[Allotted]:
    """Which prompts got what, by replication."""
    allocations = [record.allotted for record in arm.records if record.allotted is not None]
    assert len(allocations) == len(arm.records), "a race is between runs with a learning model"
    return allocations


def success(arm: Arm, step: int) -> Estimate:
    """Of the model at a place of the progress table: 0 before training, -1 at the end."""
    return interval([float(_progress(record)["success"][step]) for record in arm.records], _confidence(arm))


def _progress(record: RunRecord) -> Columns:
    assert record.progress is not None, "a race is between runs with a learning model"
    return record.progress


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _confidence(arm: Arm) -> float:
    return arm.plan.scenario.run.confidence
