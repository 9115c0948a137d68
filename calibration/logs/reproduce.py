"""From a log to a scenario that reproduces its run: everything fitted, put together, held against the last third."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from calibration.fitting.robust_regression import hold_out
from calibration.logs.batches import PricedSteps, price_steps
from calibration.logs.costs import (
    SPEED,
    CostFit,
    fit_generation,
    fit_passes,
    fit_rest,
    fit_reward,
    fit_sync,
    fit_update,
    less,
)
from calibration.logs.estimates import JointEstimate, LogEstimate, OpenQuantity, independent_reach, mean_reach
from calibration.logs.lengths import LengthFit, fit_lengths
from calibration.logs.matching import fit_by_matching, simulated, slower
from calibration.logs.plausibility import Implausible, implausible, least_generation_seconds
from calibration.logs.profiles import log_profile, profile_source
from calibration.logs.records import TrainingLog
from calibration.logs.steps import LoggedSteps, asynchronous_mark, read_steps
from rlsim.core.errors import ParameterError
from rlsim.costs.evidence import HoldOutError, Provenance
from rlsim.costs.profile import Profile
from rlsim.policies.admission.synchronous import Barrier
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.results.metrics import Metrics
from rlsim.scenario.override import override
from rlsim.scenario.schema import Scenario

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_SIMULATED_STEPS, FEWEST_RUNS = 24, 4
BATCH_TOLERANCE = 0.05
SURVIVORS = 0.05
"""Share by which a simulated run's trained responses are shorter than the generated ones from which it is said."""


@dataclass(frozen=True, slots=True)
class HeldOutSteps:
    """The mean step of the held-out third, and that of the simulated scenario."""

    logged_seconds: float
    reach_seconds: float
    """Half the 95 % interval of the logged mean: so much is chance."""
    simulated_seconds: float
    longer: float
    """Mean response of the held-out steps over that of the fitted ones, less one."""

    @property
    def error(self) -> float:
        """Simulated over logged, less one."""
        return self.simulated_seconds / self.logged_seconds - 1.0


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What a log identifies, and how well it is reproduced."""

    steps: LoggedSteps
    estimates: tuple[LogEstimate, ...]
    joint: tuple[JointEstimate, ...]
    unidentified: tuple[OpenQuantity, ...]
    warnings: tuple[Implausible, ...]
    notes: tuple[str, ...]
    scenario: Scenario
    """The base with the fitted numbers."""
    profile: Profile | None
    """What stands beside the scenario as ``profile.json``, where the engines were fitted."""
    by_quantity: dict[str, HoldOutError]
    """Errors on the held-out steps, each priced from its own logged lengths."""
    held: HeldOutSteps

    def estimate(self, key: str) -> LogEstimate | None:
        """The fitted number of that key."""
        return next((one for one in self.estimates if one.key == key), None)


def reproduce(log: TrainingLog, base: Scenario, skip: int = 1, date: str = "") -> Reproduction:
    """Fit what the log identifies of the ``base`` scenario, which says model, GPUs, batch and policy of the run.

    What the log does not tell stays as in the base, and is said. Raises ``ParameterError`` where nothing is fitted: a
    log of no known framework, fewer than three steps, or no quantity that the log tells.
    """
    resolved = resolve(base)
    run = _read(log, base, resolved, skip)
    lengths = fit_lengths(run.steps, base)
    barred = _batch_mismatch(run.steps, lengths, resolved)
    priced = price_steps(run.steps, lengths, resolved, run.steps.synchronous and run.engines is None)
    least = least_generation_seconds(run.steps, resolved, priced, lengths)
    fits = {} if barred else _cost_fits(run, lengths, resolved, priced, least)
    scenario = override(base, _settings(lengths, fits))
    if not barred and "generation" not in fits:
        scenario = _match_engines(run, resolved, scenario, fits)
    warnings = () if barred else tuple(implausible(run.steps, resolved, priced, least))
    return _reproduced(log, resolved, run.steps, lengths, scenario, fits, (*run.warnings, *barred, *warnings), priced)


def _match_engines(run: _Run, resolved: ResolvedScenario, scenario: Scenario, fits: dict[str, CostFit]) -> Scenario:
    """Put the engines into ``fits``, by the step that they lead to; the scenario, its publication less what waits add.

    A publication waits for the engines' steps, and engines are matched with it: once before, once after.
    """
    steps, logged = run.steps, fits["sync"]
    fits["sync"] = _own_sync(steps, logged, scenario, resolved)
    fits["generation"] = run.engines or fit_by_matching(steps, _short(_with_sync(scenario, fits["sync"])))
    fits["sync"] = _own_sync(steps, logged, slower(scenario, fits["generation"].scale), resolved)
    return _with_sync(scenario, fits["sync"])


def _own_sync(steps: LoggedSteps, logged: CostFit, scenario: Scenario, resolved: ResolvedScenario) -> CostFit:
    if steps.synchronous or not logged.estimates:
        return logged
    return less(logged, *_waits_in_sync(_with_sync(scenario, logged)), resolved)


def _with_sync(scenario: Scenario, sync: CostFit) -> Scenario:
    return override(scenario, {key: rounded(value) for key, value in sync.settings.items()})


def rounded(value: object) -> object:
    """A fitted number to five digits: more of them say nothing."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _settings(lengths: LengthFit, fits: dict[str, CostFit]) -> dict[str, object]:
    settings = {**lengths.settings, **{key: value for fit in fits.values() for key, value in fit.settings.items()}}
    return {key: rounded(value) for key, value in settings.items()}


@dataclass(frozen=True, slots=True)
class _Run:
    """The log read as the base says, and what keeps the engines as in the base."""

    steps: LoggedSteps
    warnings: tuple[Implausible, ...]
    engines: CostFit | None


def _read(log: TrainingLog, base: Scenario, resolved: ResolvedScenario, skip: int) -> _Run:
    admission = resolved.policy(resolved.shape).admission
    # all of a step's samples are begun together, and trained on before the next
    synchronous = isinstance(admission, Barrier) or getattr(admission, "num_warmup_batches", None) == 0
    mark, warnings, why = asynchronous_mark(log), tuple[Implausible, ...](), _not_plain(base)
    if synchronous and mark:
        said = f"{mark} is logged in asynchronous modes only, but the base's policy is synchronous"
        warnings = (Implausible("another policy", f"{said}: correct the base's policy. Engines stay as in the base."),)
        why = "the base's policy is not the run's"
    engines = CostFit(unidentified=(OpenQuantity(SPEED, why, told_by="another log or base"),)) if why else None
    return _Run(read_steps(log, synchronous and not mark, skip), warnings, engines)


def _not_plain(base: Scenario) -> str:
    """Why the work of generation cannot be rebuilt from the steps of this base; empty where it can."""
    if base.workload.turns is not None:
        return "with workload.turns a log does not tell generation from tools"
    if base.workload.classes:
        return "with workload.classes a log does not tell the classes' lengths apart"
    return "with rollout.pools a log does not tell one kind of replica from another" if base.rollout.pools else ""


def _batch_mismatch(steps: LoggedSteps, lengths: LengthFit, resolved: ResolvedScenario) -> tuple[Implausible, ...]:
    """Where a log counts a step's tokens, they must be those of as many samples as the base says."""
    tokens = _tokens(steps)
    if tokens is None or not lengths.estimates:
        return ()
    name, counted = tokens
    samples = float(np.median(counted / (lengths.prompt_tokens + lengths.response_tokens)[-len(counted) :]))
    expected = resolved.shape.prompts_per_step * resolved.shape.group_size
    if abs(samples / expected - 1) <= BATCH_TOLERANCE:
        return ()
    counts = f"the tokens of {samples:.0f} samples a step, the base has {expected} (prompts_per_step x group_size)"
    return (Implausible("another batch", f"{name} has {counts}: correct the base's batch. No costs are fitted."),)


def _tokens(steps: LoggedSteps) -> tuple[str, NDArray[np.float64]] | None:
    """The column that counts tokens, and those of each step (of a running total: of each but the first)."""
    if steps.has("tokens"):
        return steps.columns["tokens"], steps.values["tokens"]
    if steps.has("total_rate"):
        return steps.columns["total_rate"], steps.values["total_rate"] * steps.values["step"]
    if steps.has("cumulative_tokens"):
        grown = np.diff(steps.values["cumulative_tokens"]) / np.diff(steps.numbers)
        return steps.columns["cumulative_tokens"], grown
    return None


def _cost_fits(
    run: _Run, lengths: LengthFit, resolved: ResolvedScenario, priced: PricedSteps, least: NDArray[np.float64]
) -> dict[str, CostFit]:
    steps, fits = run.steps, dict[str, CostFit]()
    if steps.synchronous and steps.has("generation"):
        fits["generation"] = run.engines or fit_generation(steps, priced, least, lengths.longest_tokens is not None)
    fits |= {"passes": fit_passes(steps, resolved, priced), "update_actor": fit_update(steps, resolved, priced)}
    fits |= {"sync": fit_sync(steps, resolved), "reward": fit_reward(steps, resolved)}
    constants = sum(fit.fixed_seconds for fit in fits.values())
    return {**fits, "rest": fit_rest(steps, resolved.colocated, constants)}


def _short(scenario: Scenario) -> Scenario:
    """The scenario, no longer than it takes to see its step time, and often enough to see how sure that is."""
    steps = min(scenario.run.steps, MOST_SIMULATED_STEPS)
    warmup, replications = min(scenario.run.warmup_steps, steps - 1), max(scenario.run.replications, FEWEST_RUNS)
    return override(scenario, {"run.steps": steps, "run.warmup_steps": warmup, "run.replications": replications})


def _waits_in_sync(scenario: Scenario) -> tuple[float, float]:
    """Seconds that a simulated publication takes beside moving weights (engines finish a step, clients sleep).

    With half its 95 % interval over replications.
    """
    moved = resolve(scenario).sync.seconds()
    waits = np.array([max(0.0, one.sync_seconds_per_step - moved) for one in simulated(_short(scenario))])
    return float(waits.mean()), independent_reach(waits)


def _simulated(scenario: Scenario, engine: CostFit) -> list[Metrics]:
    step_time = scenario.rollout.step_time
    settings = {
        "rollout.step_time.scale": step_time.scale * engine.scale,
        "rollout.step_time.offset_seconds": step_time.offset_seconds * engine.scale + engine.offset_seconds,
    }
    return simulated(_short(override(scenario, settings)))


def _survivors(lengths: LengthFit, runs: list[Metrics], fitted: slice) -> tuple[OpenQuantity, ...]:
    """Logs are of trained samples: where long ones are dropped or come late, they are shorter than what is made."""
    logged = float(lengths.response_tokens[fitted].mean())
    trained = sum(one.response_tokens_mean for one in runs) / len(runs)
    if trained > (1 - SURVIVORS) * logged:
        return ()
    why = f"with the logged {logged:.0f} tokens generated on average, the simulated run trains on {trained:.0f}"
    said = f"this policy trains on the shorter ones ({why})"
    kept = "the distribution is that of the trained ones, too short"
    return (OpenQuantity("the lengths that are generated", said, kept, "a log of every generated sample"),)


def _errors(steps: LoggedSteps, priced: PricedSteps, fits: dict[str, CostFit]) -> dict[str, HoldOutError]:
    """Errors of every quantity that has predictions, and of their sum, on the held-out steps."""
    predictions = {name: fit.predicted for name, fit in fits.items() if fit.predicted is not None}
    predicted = {
        name: each if len(each) == len(priced.rows) else each[priced.rows] for name, each in predictions.items()
    }
    logged: dict[str, NDArray[np.float64]] = {
        name: steps.values[name] for name in ("generation", "update_actor", "sync", "reward") if name in predicted
    }
    if "passes" in predicted:
        parts = [steps.values[name] for name in ("old_log_prob", "reference") if steps.has(name)]
        logged["passes"] = np.sum(parts, axis=0)
    if steps.synchronous and {"generation", "rest", "update_actor"} <= predicted.keys():
        logged["step"] = steps.values["step"]
        predicted["step"] = np.sum(list(predicted.values()), axis=0)
    held = priced.rows >= steps.held_out.start
    rows = priced.rows[held]
    names = [f"step {number}" for number in steps.numbers[rows]]
    return {
        name: hold_out(predicted[name][held], np.maximum(seconds[rows], 1e-12), names)
        for name, seconds in logged.items()
    }


def _reproduced(
    log: TrainingLog,
    resolved: ResolvedScenario,
    steps: LoggedSteps,
    lengths: LengthFit,
    scenario: Scenario,
    fits: dict[str, CostFit],
    warnings: tuple[Implausible, ...],
    priced: PricedSteps,
) -> Reproduction:
    """Everything put together; ``ParameterError`` where nothing was fitted."""
    engine, errors = fits.get("generation", CostFit()), _errors(steps, priced, fits)
    estimates = (*lengths.estimates, *(one for fit in fits.values() for one in fit.estimates))
    kept = (*lengths.unidentified, *(each for fit in fits.values() for each in fit.unidentified))
    if not estimates:
        why = "; ".join(map(str, (*warnings, *kept)))
        raise ParameterError(log.origin, f"nothing that can be fitted ({why})", "a log with lengths or times")
    last = steps.values["step"][steps.held_out]
    runs = _simulated(scenario, engine)
    simulated_seconds = sum(one.step_seconds for one in runs) / len(runs)
    reach, responses = mean_reach(last) if len(last) > 1 else 0.0, lengths.response_tokens
    longer = float(responses[steps.held_out].mean() / responses[steps.fitted].mean()) - 1
    held = HeldOutSteps(float(last.mean()), reach, simulated_seconds, longer)
    profile, source = None, dict[str, object]()
    if engine.estimates:
        profile = _profile(resolved, engine, log, steps, errors, held)
        source = {"rollout.step_time": profile_source(scenario.rollout.step_time.noise_cv)}
    return Reproduction(
        steps=steps,
        estimates=estimates,
        joint=tuple(one for fit in fits.values() for one in fit.joint),
        unidentified=(*kept, *_survivors(lengths, runs, steps.fitted)),
        warnings=warnings,
        notes=(*lengths.notes, *(note for fit in fits.values() for note in fit.notes), *steps.notes),
        scenario=override(scenario, source),
        profile=profile,
        by_quantity=errors,
        held=held,
    )


def _profile(
    resolved: ResolvedScenario,
    engine: CostFit,
    log: TrainingLog,
    steps: LoggedSteps,
    errors: dict[str, HoldOutError],
    held: HeldOutSteps,
) -> Profile:
    """The base's law with the fitted factor and overhead as knobs; as good as it was on the held-out steps."""
    pool = resolved.pools[0]
    law = pool.law.calibrated(engine.scale, engine.offset_seconds)
    source = f"{pool.law.provenance.source}, fitted to the log of a {steps.framework} run ({log.origin})"
    law = replace(law, provenance=Provenance("fitted", source))
    overall = errors.get("generation")
    if overall is None:
        error, first = round(abs(held.error), 5), steps.numbers[steps.held_out.start]
        overall = HoldOutError(error, error, error, f"the mean of steps from {first}", 1)
    how = "generation of rebuilt batches" if steps.synchronous else "simulated runs brought to the mean step"
    return log_profile(
        override(resolved.scenario, {"model": resolved.architecture.name}),
        pool.device.name,
        law,
        overall,
        errors,
        source=f"{steps.framework}-log",
        method=f"{law.provenance.source}: {how}",
        engine=f"as run by {steps.framework}",
        kv_capacity_tokens=pool.limits.kv_blocks * pool.limits.block_size,
        notes=f"{steps.count} steps of {steps.origin}; the shape of the law is the base scenario's, not the log's",
    )
