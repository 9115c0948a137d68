"""From a log to a scenario that reproduces its run: everything fitted, put together, held against the last third."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from calibration.fitting.robust_regression import hold_out
from calibration.logs.batches import PricedSteps, price_steps
from calibration.logs.costs import CostFit, fit_generation, fit_passes, fit_rest, fit_sync, fit_update, less
from calibration.logs.estimates import LogEstimate, mean_reach
from calibration.logs.lengths import LengthFit, fit_lengths
from calibration.logs.matching import fit_by_matching, simulated
from calibration.logs.profiles import log_profile, profile_source
from calibration.logs.records import TrainingLog
from calibration.logs.steps import LoggedSteps, read_steps
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

MOST_SIMULATED_STEPS = 24
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

    @property
    def error(self) -> float:
        """Simulated over logged, less one."""
        return self.simulated_seconds / self.logged_seconds - 1.0


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What a log identifies, and how well it is reproduced."""

    steps: LoggedSteps
    estimates: tuple[LogEstimate, ...]
    unidentified: tuple[str, ...]
    scenario: Scenario
    """The base with the fitted numbers; its profile is beside it, as ``profile.json``."""
    profile: Profile
    by_quantity: dict[str, HoldOutError]
    """Errors on the held-out steps, each priced from its own logged lengths."""
    held: HeldOutSteps

    def estimate(self, key: str) -> LogEstimate | None:
        """The fitted number of that key."""
        return next((one for one in self.estimates if one.key == key), None)


def reproduce(log: TrainingLog, base: Scenario, skip: int = 1, date: str = "") -> Reproduction:
    """Fit what the log identifies of the ``base`` scenario, which says model, GPUs, batch and policy of the run.

    Raises ``ParameterError`` for a log that cannot support a fit, and for scenarios with turns, pools or arrivals.
    """
    resolved = resolve(base)
    _check_plain(base)
    admission = resolved.policy(resolved.shape).admission
    # all of a step's samples are begun together, and trained on before the next
    synchronous = isinstance(admission, Barrier) or getattr(admission, "num_warmup_batches", None) == 0
    steps = read_steps(log, synchronous, skip)
    if synchronous and not steps.has("generation"):
        allowed = "a time of generation: what a step spends on it and on training cannot be told apart without"
        raise ParameterError(log.origin, sorted(steps.columns.values()), allowed)
    lengths = fit_lengths(steps, base)
    _check_batch(steps, lengths, resolved)
    priced = price_steps(steps, lengths, resolved, synchronous)
    fits = _cost_fits(steps, resolved, priced)
    settings = {**lengths.settings, **{key: value for fit in fits.values() for key, value in fit.settings.items()}}
    scenario = override(base, settings)
    if not synchronous and steps.has("sync"):
        fits["sync"] = less(fits["sync"], *_waits_in_sync(scenario), resolved)
        scenario = override(scenario, fits["sync"].settings)
    engine = fits["generation"] if synchronous else fit_by_matching(steps, _short(scenario))
    errors = _errors(steps, priced, fits)
    last = steps.values["step"][steps.held_out]
    runs = _simulated(scenario, engine)
    held = HeldOutSteps(float(last.mean()), mean_reach(last), sum(one.step_seconds for one in runs) / len(runs))
    everything = (*fits.values(),) if synchronous else (*fits.values(), engine)
    return Reproduction(
        steps,
        (*lengths.estimates, *(one for fit in everything for one in fit.estimates)),
        (
            *lengths.unidentified,
            *_survivors(lengths, runs, steps.fitted),
            *(said for fit in everything for said in fit.unidentified),
        ),
        override(scenario, {"rollout.step_time": profile_source(scenario.rollout.step_time.noise_cv)}),
        _profile(resolved, engine, log, steps, errors, held),
        errors,
        held,
    )


def _check_plain(base: Scenario) -> None:
    for key in ("turns", "reward"):
        if getattr(base.workload, key) is not None:
            raise ParameterError(f"workload.{key}", "given", "none: logs do not tell generation from tools and scoring")
    if base.workload.classes or base.rollout.pools:
        key = "workload.classes" if base.workload.classes else "rollout.pools"
        raise ParameterError(key, "given", "none: logs of one kind of prompts on one kind of replica are fitted")


def _check_batch(steps: LoggedSteps, lengths: LengthFit, resolved: ResolvedScenario) -> None:
    """Where a log counts a step's tokens, they must be those of as many samples as the base says."""
    tokens = _tokens(steps)
    if tokens is None:
        return
    name, counted = tokens
    samples = float(np.median(counted / (lengths.prompt_tokens + lengths.response_tokens)[-len(counted) :]))
    expected = resolved.shape.prompts_per_step * resolved.shape.group_size
    if abs(samples / expected - 1) > BATCH_TOLERANCE:
        value = f"{name}: the tokens of {samples:.0f} samples a step"
        raise ParameterError(steps.origin, value, f"{expected}, prompts_per_step x group_size of the base scenario")


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


def _cost_fits(steps: LoggedSteps, resolved: ResolvedScenario, priced: PricedSteps) -> dict[str, CostFit]:
    fits = {"generation": fit_generation(steps, resolved, priced)} if steps.synchronous else {}
    fits |= {"passes": fit_passes(steps, resolved, priced), "update_actor": fit_update(steps, resolved, priced)}
    fits["sync"] = fit_sync(steps, resolved)
    constants = sum(fit.fixed_seconds for fit in fits.values())
    return {**fits, "rest": fit_rest(steps, resolved.colocated, constants)}


def _short(scenario: Scenario) -> Scenario:
    """The scenario, no longer than it takes to see its step time."""
    steps = min(scenario.run.steps, MOST_SIMULATED_STEPS)
    return override(scenario, {"run.steps": steps, "run.warmup_steps": min(scenario.run.warmup_steps, steps - 1)})


def _waits_in_sync(scenario: Scenario) -> tuple[float, float]:
    """Seconds that a simulated publication takes beside moving weights (engines finish a step, clients sleep).

    With half its 95 % interval over replications.
    """
    moved = resolve(scenario).sync.seconds()
    waits = np.array([max(0.0, one.sync_seconds_per_step - moved) for one in simulated(_short(scenario))])
    return float(waits.mean()), mean_reach(waits) if len(waits) > 1 else 0.0


def _simulated(scenario: Scenario, engine: CostFit) -> list[Metrics]:
    step_time = scenario.rollout.step_time
    settings = {
        "rollout.step_time.scale": step_time.scale * engine.scale,
        "rollout.step_time.offset_seconds": step_time.offset_seconds * engine.scale + engine.offset_seconds,
    }
    return simulated(_short(override(scenario, settings)))


def _survivors(lengths: LengthFit, runs: list[Metrics], fitted: slice) -> tuple[str, ...]:
    """Logs are of trained samples: where long ones are dropped or come late, they are shorter than what is made."""
    logged = float(lengths.response_tokens[fitted].mean())
    trained = sum(one.response_tokens_mean for one in runs) / len(runs)
    if trained > (1 - SURVIVORS) * logged:
        return ()
    said = f"with the logged {logged:.0f} tokens generated on average, the simulated run trains on {trained:.0f}"
    return (f"the lengths that are generated: this policy trains on the shorter ones ({said}); the law is too short",)


def _errors(steps: LoggedSteps, priced: PricedSteps, fits: dict[str, CostFit]) -> dict[str, HoldOutError]:
    """Errors of every quantity that has predictions, and of their sum, on the held-out steps."""
    predictions = {name: fit.predicted for name, fit in fits.items() if fit.predicted is not None}
    predicted = {
        name: each if len(each) == len(priced.rows) else each[priced.rows] for name, each in predictions.items()
    }
    logged: dict[str, NDArray[np.float64]] = {
        name: steps.values[name] for name in ("generation", "update_actor", "sync") if name in predicted
    }
    if "passes" in predicted:
        parts = [steps.values[name] for name in ("old_log_prob", "reference") if steps.has(name)]
        logged["passes"] = np.sum(parts, axis=0)
    if steps.synchronous and "rest" in predicted and "update_actor" in predicted:
        logged["step"] = steps.values["step"]
        predicted["step"] = np.sum(list(predicted.values()), axis=0)
    held = priced.rows >= steps.held_out.start
    rows = priced.rows[held]
    names = [f"step {number}" for number in steps.numbers[rows]]
    return {
        name: hold_out(predicted[name][held], np.maximum(seconds[rows], 1e-12), names)
        for name, seconds in logged.items()
    }


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
    if engine.estimates:
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
