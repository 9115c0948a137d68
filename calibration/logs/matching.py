"""Engines that work beside the trainer: the factor on their law at which a simulated run is as fast as the real one.

An asynchronous run logs no time of generation. Where the trainer waits for samples, the engines set the pace, and the
step time says how fast they are; where it does not, any engine that is fast enough gives the same log.
"""

from __future__ import annotations

import math

import numpy as np

from calibration.logs.costs import SCALE, CostFit
from calibration.logs.estimates import LogEstimate, mean_reach
from calibration.logs.steps import LoggedSteps
from rlsim.core.errors import ParameterError
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

    Its interval counts the spread of the logged steps and that of the replications. Raises ``ParameterError`` when no
    factor from 1/16 to 16 brings the step time about.
    """
    seconds = steps.values["step"][steps.fitted]
    target = float(seconds.mean())
    factor, spread, elasticity = _solve(scenario, target, steps)
    if elasticity < LEAST_ELASTICITY:
        said = (
            f"the engines' speed: the trainer sets the pace (engines twice as slow change the step by a factor of "
            f"{2**elasticity:.2f}); as given"
        )
        return CostFit(unidentified=(said,))
    reach = math.hypot(mean_reach(seconds), spread) / target / elasticity
    source = f"{steps.columns['step']}: simulated runs brought to its mean"
    estimate = LogEstimate(SCALE, factor, factor * math.exp(-reach), factor * math.exp(reach), source)
    return CostFit((estimate,), unidentified=("an overhead of every engine step: one number",), scale=factor)


def _solve(scenario: Scenario, target: float, steps: LoggedSteps) -> tuple[float, float, float]:
    """Factor, half the interval of the simulated mean, and the elasticity of the step time; by secants in logs."""
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
            mismatch = (
                f"a mean step of {target:.4g} s, {math.exp(value):.4g} s simulated with engines x {math.exp(at):.3g}"
            )
            raise ParameterError(
                steps.origin, mismatch, "a step that this scenario can have (GPUs, batch or policy differ?)"
            )
    return math.exp(at), spread * target, elasticity


def _log_step(scenario: Scenario, factor: float) -> tuple[float, float]:
    """Log of the mean simulated step with the engines slower by ``factor``, and half its relative interval."""
    seconds = [one.step_seconds for one in simulated(slower(scenario, factor))]
    mean = sum(seconds) / len(seconds)
    return math.log(mean), (mean_reach(np.array(seconds)) / mean if len(seconds) > 1 else 0.0)


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
