"""Engines that work beside the trainer: the factor on their law at which a simulated run is as fast as the real one.

An asynchronous run logs no time of generation. Where the trainer waits for samples, the engines set the pace, and the
step time says how fast they are; where it does not, any engine that is fast enough gives the same log.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calibration.logs.costs import OFFSET, SCALE, SPEED, CostFit
from calibration.logs.estimates import LogEstimate, OpenQuantity, independent_reach, mean_reach, undisturbed
from calibration.logs.steps import LoggedSteps
from rlsim.resolve import resolve
from rlsim.results.metrics import Metrics, metrics
from rlsim.scenario.override import override
from rlsim.scenario.schema import Scenario
from rlsim.sim.simulation import simulate

LEAST_ELASTICITY = 0.25
"""Relative change of the step time for a relative change of the engines' below which the trainer sets the pace."""
LARGEST_FACTOR = 16.0
TOLERANCE = 0.005
MOST_ROUNDS = 8


def simulated(scenario: Scenario) -> list[Metrics]:
    """The metrics of every replication."""
    resolved = resolve(scenario)
    return [metrics(simulate(resolved, number)) for number in range(scenario.run.replications)]


def fit_by_matching(steps: LoggedSteps, scenario: Scenario) -> CostFit:
    """The factor on the step law at which the simulated mean step is that of the fitted steps.

    Its interval counts the spread of the logged steps and that of the replications. The engines stay as in the base
    where the trainer sets the pace, and where no factor from 1/16 to 16 brings the step time about.
    """
    logged = steps.values["step"][steps.fitted]
    seconds = logged[undisturbed(logged)]
    target = float(seconds.mean())
    match = _solve(scenario, target)
    if match.beyond:
        why = f"a mean step of {target:.4g} s is not reached: {match.beyond}"
        return CostFit(unidentified=(OpenQuantity(SPEED, why, told_by="a base that is the run's"),))
    if match.elasticity < LEAST_ELASTICITY:
        twice = 2**match.elasticity
        why = f"the trainer sets the pace (engines twice as slow change the step by a factor of {twice:.2f})"
        source = "a log of generation itself, or of the engines (vLLM's statistics lines)"
        return CostFit(unidentified=(OpenQuantity(SPEED, why, told_by=source),))
    reach = math.hypot(mean_reach(seconds), match.spread * target, TOLERANCE * target) / target / match.elasticity
    source = f"{steps.columns['step']}: simulated runs brought to its mean"
    factor = match.factor
    estimate = LogEstimate(SCALE, factor, factor * math.exp(-reach), factor * math.exp(reach), source)
    apart = OpenQuantity(OFFSET, "a mean step is one number", "as in the base, times the factor", "engine logs")
    left_out = len(logged) - len(seconds)
    notes = (f"{left_out} steps far off the others (a restart, a hang?) are left out of the mean step",)
    return CostFit((estimate,), unidentified=(apart,), notes=notes if left_out else (), scale=factor)


@dataclass(frozen=True, slots=True)
class _Match:
    factor: float
    spread: float
    """Half the relative interval of the simulated mean."""
    elasticity: float
    beyond: str = ""
    """What the nearest factor within the bounds gives, where none gives the target."""


def _solve(scenario: Scenario, target: float) -> _Match:
    """By secants in logs."""
    at, value, spread = 0.0, *_log_step(scenario, 1.0)
    step = math.log(target) - value or 0.1
    elasticity = 0.0
    for _ in range(MOST_ROUNDS):
        step = math.copysign(min(max(abs(step), 0.05), 1.5), step)
        again, next_value, spread = at + step, *_log_step(scenario, math.exp(at + step))
        elasticity = (next_value - value) / step
        at, value = again, next_value
        if elasticity < LEAST_ELASTICITY or abs(math.log(target) - value) < TOLERANCE:
            break
        step = (math.log(target) - value) / elasticity
        if abs(at + step) > math.log(LARGEST_FACTOR):
            said = f"engines x {math.exp(at):.3g} give {math.exp(value):.4g} s, and the factor's bound is "
            return _Match(1.0, spread, elasticity, f"{said}1/{LARGEST_FACTOR:g} to {LARGEST_FACTOR:g}")
    return _Match(math.exp(at), spread, elasticity)


def _log_step(scenario: Scenario, factor: float) -> tuple[float, float]:
    """Log of the mean simulated step with the engines slower by ``factor``, and half its relative interval."""
    seconds = [one.step_seconds for one in simulated(slower(scenario, factor))]
    mean = sum(seconds) / len(seconds)
    return math.log(mean), (independent_reach(np.array(seconds)) / mean if len(seconds) > 1 else 0.0)


def slower(scenario: Scenario, factor: float) -> Scenario:
    """The scenario with every engine step longer by ``factor``, its overhead included."""
    step_time = scenario.rollout.step_time
    return override(
        scenario,
        {
            "rollout.step_time.scale": step_time.scale * factor,
            "rollout.step_time.offset_seconds": step_time.offset_seconds * factor,
        },
    )
