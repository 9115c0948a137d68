"""Calibrate, predict, run live, compare: one policy, or several in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError
from rlsim.executor.run import FinishedRun
from rlsim.live.run import Backend, refuse
from rlsim.resolve import ResolvedScenario, ResolveError, resolve
from rlsim.results.store import write_run
from rlsim.scenario.document import Document
from rlsim.scenario.override import override, paths
from rlsim.scenario.schema import Scenario
from rlsim.sim.simulation import simulate
from rlsim.studies.compare import arm_folder
from rlsim.studies.parity.errors import ArmParity
from rlsim.studies.parity.observed import observation_of
from rlsim.studies.parity.ranking import Ranking, ranking
from rlsim.studies.parity.trial import REPLICATION, NeverOnTimeError, Trial, punctual_run, run_to_end, trial_of

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Costs found in live runs: keys of a scenario, nested as there, and what to say of them."""

    overrides: Mapping[str, Any]
    lines: tuple[str, ...]


Calibrate = Callable[[Sequence[FinishedRun]], Fitted]
"""From live runs that are not scored."""


@dataclass(frozen=True, slots=True)
class ParityOptions:
    """What is wanted."""

    engine: str
    repeats: int = 3
    tries: int = 3
    """Live runs made for one that counts, at most."""
    calibrate: Calibrate | None = None
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Parity:
    """All that was found."""

    name: str
    engine: str
    label: str
    """What the live runs were: emulated ones say so."""
    arms: tuple[ArmParity, ...]
    ranking: Ranking | None
    """None with one policy."""
    calibration: tuple[str, ...]
    """What was fitted; empty where the scenario's costs were used."""


def study(
    name: str,
    plans: Mapping[str, ResolvedScenario],
    backend: Backend,
    options: ParityOptions,
    note: Note = lambda line: None,
) -> Parity:
    """Hold each plan against live runs of it, policies taking turns; ``ParameterError`` before anything starts."""
    for plan_of_arm in plans.values():
        refuse(plan_of_arm, backend)
        _refuse_own_lengths(plan_of_arm)
    fitted = None
    if options.calibrate is not None:
        runs = []
        for arm, resolved in plans.items():
            note(f"calibration run, not scored: {arm}")
            runs.append(run_to_end(resolved, backend).run)
        fitted = options.calibrate(runs)
    chosen = dict(plans)
    if fitted is not None:
        settings = paths(fitted.overrides)
        chosen = {arm: resolve(override(resolved.scenario, settings)) for arm, resolved in plans.items()}
    predicted = {arm: simulate(resolved, REPLICATION) for arm, resolved in chosen.items()}
    trials: dict[str, list[Trial]] = {arm: [] for arm in plans}
    late: dict[str, list[float]] = {arm: [] for arm in plans}
    for repeat in range(options.repeats):
        for arm, resolved in plans.items():
            note(f"live run {repeat + 1} of {options.repeats}: {arm}")
            try:
                live_run, discarded = punctual_run(resolved, backend, options.tries, note)
            except NeverOnTimeError as never:
                late[arm] += never.shares
                if repeat == options.repeats - 1 and not trials[arm]:
                    raise
                note(f"{never}: {arm} goes without this one")
                continue
            late[arm] += discarded
            trials[arm].append(trial_of(live_run, chosen[arm]))
            if options.out is not None:
                write_run(options.out / arm_folder(arm) / f"live-{repeat}", live_run.run)
    arms = [
        ArmParity(
            arm, chosen[arm], predicted[arm], observation_of(predicted[arm]), tuple(trials[arm]), tuple(late[arm])
        )
        for arm in plans
    ]
    ranked = ranking(arms) if len(arms) > 1 else None
    return Parity(name, options.engine, backend.label, tuple(arms), ranked, () if fitted is None else fitted.lines)


def chosen_plans(
    document: Document, arm: str | None, policies: Sequence[str]
) -> tuple[str, dict[str, ResolvedScenario]]:
    """The scenario's name, and a plan for each policy: arms of the scenario, or presets in place of its policy."""
    if not policies:
        scenario = document.resolve(arm)
        return scenario.name, {arm or scenario.name: _planned(document, scenario, arm)}
    arms = document.arms()
    base_arm = arm or (arms[0] if arms else None)
    base, plans = document.resolve(base_arm), dict[str, ResolvedScenario]()
    for policy in policies:
        if policy in arms:
            plans[policy] = _planned(document, document.resolve(policy), policy)
        else:
            plans[policy] = _planned(document, override(base, {"policy": {"preset": policy}}), base_arm)
    if len(plans) < len(policies):
        raise ParameterError("--policies", ",".join(policies), "different names")
    return base.name, plans


def _planned(document: Document, scenario: Scenario, arm: str | None) -> ResolvedScenario:
    try:
        return resolve(scenario)
    except ResolveError as error:
        raise document.scenario_error(error.errors, arm) from error


def _refuse_own_lengths(resolved: ResolvedScenario) -> None:
    """Lengths and outputs that nobody knows beforehand cannot be predicted sample by sample."""
    live, workload = resolved.scenario.live, resolved.scenario.workload
    if live.task is not None:
        allowed = "none: with a task the model decides lengths, which no simulation foretells"
        raise ParameterError("live.task", live.task.name, allowed)
    if workload.turns is not None and live.tool != "paced":
        raise ParameterError("live.tool", live.tool, "paced: other tools decide what they answer")
