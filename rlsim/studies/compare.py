"""Arms of a scenario side by side: what each predicts, how sure that is, and how far it is from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlsim.core.errors import ParameterError
from rlsim.resolve import ResolvedScenario, ResolveError, resolve
from rlsim.results.statistics import Estimate, interval, paired_difference, paired_ratio
from rlsim.scenario.document import Document
from rlsim.scenario.override import UnsetKeyError, override
from rlsim.scenario.schema import Published, Scenario, Sensitivity
from rlsim.studies.runs.record import Outcome, Task, perform_all

STEP = "step_seconds"


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm's replications."""

    name: str
    plan: ResolvedScenario
    outcomes: tuple[Outcome, ...]

    def values(self, metric: str) -> list[float]:
        """The metric of every replication."""
        return [float(getattr(outcome.metrics, metric)) for outcome in self.outcomes]

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
    reason: str
    change: float
    """Relative, paired with the same replication of the arm as written."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All arms of a scenario."""

    name: str
    arms: tuple[Arm, ...]
    shifts: tuple[Shift, ...]

    def speedup_over_first(self, arm: Arm) -> Estimate:
        """Step time of the first arm over this one's, from paired replications."""
        return self._paired(paired_ratio, self.arms[0], arm)

    def difference_to_first(self, arm: Arm) -> Estimate:
        """Seconds by which this arm's step is longer than the first one's, from paired replications."""
        return self._paired(paired_difference, arm, self.arms[0])

    def _paired(self, statistic: Callable[..., Estimate], a: Arm, b: Arm) -> Estimate:
        pairs = list(zip(a.values(STEP), b.values(STEP), strict=False))
        confidence = self.arms[0].plan.scenario.run.confidence
        return statistic([x for x, _ in pairs], [y for _, y in pairs], confidence)


def run_comparison(
    document: Document,
    out: Path | None = None,
    workers: int | None = None,
    done: Callable[[Outcome], None] = lambda outcome: None,
) -> Comparison:
    """Simulate all arms; ``ScenarioError`` before anything runs, ``DeadlockError`` when a run is stuck."""
    return compare_plans(plans(document), out, workers, done)


def compare_plans(
    made: dict[str, ResolvedScenario],
    out: Path | None = None,
    workers: int | None = None,
    done: Callable[[Outcome], None] = lambda outcome: None,
) -> Comparison:
    """Simulate plans by arm and put them together; with ``out``, every run is saved there as it ends."""
    outcomes = perform_all(tasks(made, out), done, workers)
    return compare(next(iter(made.values())).scenario.name, made, outcomes)


def plans(document: Document) -> dict[str, ResolvedScenario]:
    """A plan for every arm (or for the scenario itself under its name); all faults are raised together."""
    made: dict[str, ResolvedScenario] = {}
    faults: list[str] = []
    for name, scenario in document.resolve_all().items():
        try:
            made[name or scenario.name] = resolve(scenario)
        except ResolveError as error:
            faults += document.scenario_error(error.errors, name).faults
    if faults:
        from rlsim.core.errors import ScenarioError

        raise ScenarioError(dict.fromkeys(faults))
    return made


def tasks(made: dict[str, ResolvedScenario], out: Path | None) -> list[Task]:
    """Every replication of every arm, then the sensitivities of each on its first replication."""
    return replications(made, out) + [Task(label, scenario, 0) for label, scenario, *_ in _variants(made)]


def replications(made: dict[str, ResolvedScenario], out: Path | None) -> list[Task]:
    """Every replication of every arm."""
    return [
        Task(name, found.scenario, replication, out and out / arm_folder(name) / f"replication-{replication}")
        for name, found in made.items()
        for replication in range(found.scenario.run.replications)
    ]


def compare(name: str, made: dict[str, ResolvedScenario], outcomes: Sequence[Outcome]) -> Comparison:
    """Outcomes of ``tasks``, in their order, put together."""
    arms, at = [], 0
    for arm, found in made.items():
        count = found.scenario.run.replications
        arms.append(Arm(arm, found, tuple(outcomes[at : at + count])))
        at += count
    by_name = {arm.name: arm for arm in arms}
    shifts = []
    for outcome, (_, _, arm, given, value) in zip(outcomes[at:], _variants(made), strict=True):
        base = by_name[arm].outcomes[0].metrics.step_seconds
        shifts.append(Shift(arm, given.key, value, given.reason, outcome.metrics.step_seconds / base - 1))
    return Comparison(name, tuple(arms), tuple(shifts))


def _variants(made: dict[str, ResolvedScenario]) -> Iterator[tuple[str, Scenario, str, Sensitivity, float]]:
    for name, found in made.items():
        for given in found.scenario.sensitivity:
            for value in given.values:
                yield f"{name}, {given.key}={value:g}", varied(found.scenario, given.key, value), name, given, value


def varied(scenario: Scenario, key: str, value: float) -> Scenario:
    """The scenario with one number changed; ParameterError when the key path names none."""
    try:
        return override(scenario, {key: value}, only_set=True)
    except UnsetKeyError as error:
        raise ParameterError("sensitivity.key", key, "the key path of a number that this scenario sets") from error


def arm_folder(name: str) -> str:
    """The directory of an arm."""
    return "".join(letter if letter.isalnum() or letter in "-+." else "_" for letter in name)
