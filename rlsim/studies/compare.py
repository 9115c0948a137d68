"""Arms of a scenario side by side: what each predicts, how sure that is, and how far it is from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlsim import __version__
from rlsim.core.errors import ParameterError
from rlsim.resolve import ResolvedScenario, ResolveError, Source, resolve
from rlsim.results.statistics import Estimate, interval, paired_difference, paired_ratio
from rlsim.scenario.document import Document
from rlsim.scenario.schema import Published
from rlsim.studies.assumed import assumed_errors, sensitivity_off, variations
from rlsim.studies.runs.executor import RunExecutor, local_executor
from rlsim.studies.runs.record import ALL_MEASURES, RunKey, RunRecord, RunRequest, requests_of

STEP = "step_seconds"


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm's replications."""

    name: str
    plan: ResolvedScenario
    records: tuple[RunRecord, ...]

    def values(self, metric: str) -> list[float]:
        """The metric of every replication."""
        return [float(getattr(record.metrics, metric)) for record in self.records]

    def estimate(self, metric: str) -> Estimate:
        """Mean and interval over replications."""
        return interval(self.values(metric), self.plan.scenario.run.confidence)

    def mean(self, metric: str) -> float:
        """Mean over replications."""
        return self.estimate(metric).mean

    @property
    def published(self) -> Published | None:
        """The measured step time beside the prediction, if there is one."""
        return next((row for row in self.plan.scenario.published if row.is_step_time), None)

    @property
    def error(self) -> float | None:
        """Relative error of the predicted step time."""
        return None if self.published is None else self.mean(STEP) / self.published.measured - 1


@dataclass(frozen=True, slots=True)
class Shift:
    """What another value of an assumed input does to an arm's step time."""

    arm: str
    key: str
    value: float
    label: str
    """The value in words."""
    reason: str
    change: float
    """Relative, paired with the same replication of the arm as written."""

    def is_alike(self, other: Shift) -> bool:
        """Whether both are of one input at one other value."""
        return (self.key, self.label) == (other.key, other.label)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All arms of a scenario."""

    name: str
    arms: tuple[Arm, ...]
    shifts: tuple[Shift, ...]
    warnings: tuple[str, ...] = ()

    def speedup_over_first(self, arm: Arm) -> Estimate:
        """Step time of the first arm over this one's, from paired replications."""
        return self._paired(paired_ratio, self.arms[0], arm)

    def difference_to_first(self, arm: Arm) -> Estimate:
        """Seconds by which this arm's step is longer than the first one's, from paired replications."""
        return self._paired(paired_difference, arm, self.arms[0])

    def shifted_speedup(self, shift: Shift) -> tuple[float, float]:
        """Speed-up over the first arm in the first replication, as written and with an input at another value."""
        arm = next(arm for arm in self.arms if arm.name == shift.arm)
        written = self.arms[0].values(STEP)[0] / arm.values(STEP)[0]
        of_first = [one.change for one in self.shifts if one.arm == self.arms[0].name and one.is_alike(shift)]
        return written, written * (1 + (of_first[0] if of_first else 0.0)) / (1 + shift.change)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values by name."""
        return {
            "name": self.name,
            "rlsim": __version__,
            "arms": {arm.name: self._arm_dict(arm) for arm in self.arms},
            "warnings": list(self.warnings),
            "sensitivity": [asdict(shift) for shift in self.shifts],
            "sensitivity_off": sensitivity_off({arm.name: arm.plan for arm in self.arms}),
        }

    def _arm_dict(self, arm: Arm) -> dict[str, Any]:
        return {
            "step_seconds": asdict(arm.estimate(STEP)),
            "published": None if arm.published is None else arm.published.model_dump(mode="json"),
            "error": arm.error,
            "difference_to_first_seconds": asdict(self.difference_to_first(arm)),
            "speedup_over_first": asdict(self.speedup_over_first(arm)),
            "replications": [record.metrics.as_dict() for record in arm.records],
            "verdict": arm.records[0].verdict,
            "sources": [asdict(source) for source in arm.plan.sources],
        }

    def _paired(self, statistic: Callable[..., Estimate], a: Arm, b: Arm) -> Estimate:
        pairs = list(zip(a.values(STEP), b.values(STEP), strict=False))
        confidence = self.arms[0].plan.scenario.run.confidence
        return statistic([x for x, _ in pairs], [y for _, y in pairs], confidence)


def run_comparison(document: Document, out: Path | None = None, workers: int | None = None) -> Comparison:
    """Simulate all arms; ``ScenarioError`` before anything runs, ``DeadlockError`` when a run is stuck."""
    with local_executor(out, workers) as runs:
        return compare_plans(plans(document), runs, out)


def compare_plans(
    plans: Mapping[str, ResolvedScenario], runs: RunExecutor, out: Path | None = None, warnings: Sequence[str] = ()
) -> Comparison:
    """Simulate resolved arms and put them together; with ``out``, every run leaves its files there as it ends.

    ``warnings`` are what the reader must know of the document that the arms are from.
    """
    by_arm, variants = replications(plans, out), variations(plans)
    varied_requests = [
        requests_of(f"{variant.arm}, {variant.key}: {variant.label}", variant.scenario, [0])[0] for variant in variants
    ]
    requests = [request for arm_requests in by_arm.values() for request in arm_requests]
    records = runs.run_all(requests + varied_requests, must_end=True)
    arms = arms_of(plans, by_arm, records)
    steps = {arm.name: arm.records[0].metrics.step_seconds for arm in arms}
    shifts = []
    for variant, request in zip(variants, varied_requests, strict=True):
        change = records[request.key].metrics.step_seconds / steps[variant.arm] - 1
        shifts.append(Shift(variant.arm, variant.key, variant.value, variant.label, variant.reason, change))
    name = next(iter(plans.values())).scenario.name
    return Comparison(name, arms, tuple(shifts), tuple(warnings))


def run_count(plans: Mapping[str, ResolvedScenario]) -> int:
    """Number of runs of a comparison."""
    return sum(resolved.scenario.run.replications for resolved in plans.values()) + len(variations(plans))


def plans(document: Document, arm: str | None = None) -> dict[str, ResolvedScenario]:
    """A plan for every arm (or for the scenario itself under its name), or for one of them, checked for itself alone.

    ``ScenarioError`` with all faults and the arms they are in.
    """
    resolved: dict[str, ResolvedScenario] = {}
    refused: dict[str | None, list[ParameterError]] = {}
    for name, scenario in document.resolve_all([arm] if arm else ()).items():
        try:
            resolved[name or scenario.name] = resolve(scenario)
        except ResolveError as error:
            refused[name] = error.errors
        else:
            faults = assumed_errors(scenario)
            refused |= {name: faults} if faults else {}
    if refused:
        raise document.scenario_errors(refused)
    return resolved


def replications(plans: Mapping[str, ResolvedScenario], out: Path | None = None) -> dict[str, list[RunRequest]]:
    """Every replication of every arm."""
    return {
        name: requests_of(
            name,
            resolved.scenario,
            range(resolved.scenario.run.replications),
            ALL_MEASURES,
            out=out and out / arm_folder(name),
            resolved=resolved,
        )
        for name, resolved in plans.items()
    }


def arms_of(
    plans: Mapping[str, ResolvedScenario],
    by_arm: Mapping[str, Sequence[RunRequest]],
    records: Mapping[RunKey, RunRecord],
) -> tuple[Arm, ...]:
    """The arms with their records."""
    return tuple(
        Arm(name, resolved, tuple(records[request.key] for request in by_arm[name])) for name, resolved in plans.items()
    )


def shared_sources(by_arm: Mapping[str, Sequence[Source]]) -> list[tuple[str, str, bool, str]]:
    """Cost, text, whether an estimate, and the arms it holds for (empty: all), a row for each source of a cost."""
    arms_by_source: dict[Source, list[str]] = {}
    for arm, sources in by_arm.items():
        for source in sources:
            arms_by_source.setdefault(source, []).append(arm)
    return [
        (source.what, source.text, source.estimate, "" if len(arms) == len(by_arm) else ", ".join(arms))
        for source, arms in arms_by_source.items()
    ]


def arm_folder(name: str) -> str:
    """The directory of an arm."""
    return "".join(letter if letter.isalnum() or letter in "-+." else "_" for letter in name)
