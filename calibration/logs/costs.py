"""Costs from logged times: what the engine, the trainer and a publication take, in units of the base scenario's.

Times are linear in the work that the rebuilt batches hold, so each cost is a line: its slope a factor on what the
base says, its constant an overhead. An optimizer update has a key for its overhead, so its constant is always fitted;
where a constant is not expected (generation, log-probability passes) it is kept only when it is far from zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from calibration.logs.batches import PricedSteps, optimizer_seconds
from calibration.logs.estimates import LinearEstimate, LogEstimate, check_varies, least_squares, mean_of
from calibration.logs.steps import TIMERS, LoggedSteps
from rlsim.core.errors import ParameterError
from rlsim.costs.memory import weight_bytes_per_gpu
from rlsim.costs.transfer import TRANSPORTS
from rlsim.resolve import ResolvedScenario

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCALE, OFFSET = "rollout.step_time.scale", "rollout.step_time.offset_seconds"
FIXED, PER_UPDATE = "trainer.fixed_seconds_per_step", "trainer.seconds_per_update"
PUBLICATION = "seconds of a publication"
NOT_TOLD = {
    "trainer.profile": None,
    "trainer.attention_mfu": None,
    "trainer.seconds_per_micro_batch": 0.0,
    "trainer.logprob_seconds_per_micro_batch": None,
}
"""Keys of the trainer that a log cannot tell from its utilisation, which stands for all of them."""
LEAST_RATIO_VARIATION = 0.02
"""Variation of base seconds a step, below which a factor and an overhead of every engine step cannot be told apart."""
IMPOSSIBLE = 0.5
"""Share of the time to read the weights below which a decode step is not believed (speculation allowed for)."""
OVERLAP = 0.02
"""Share of the step by which its timers may sum to more than it."""
SURPRISE = 1.75
"""Half 95 % intervals (3.5 standard errors) that a constant which was not expected must be above zero."""


@dataclass(frozen=True, slots=True)
class CostFit:
    """One cost: numbers, keys of the scenario, what stays open, and its predictions for the rebuilt steps."""

    estimates: tuple[LogEstimate, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    unidentified: tuple[str, ...] = ()
    predicted: NDArray[np.float64] | None = None
    scale: float = 1.0
    offset_seconds: float = 0.0
    fixed_seconds: float = 0.0
    """A constant of a training step that found no key of its own."""


def fit_generation(steps: LoggedSteps, plan: ResolvedScenario, priced: PricedSteps) -> CostFit:
    """A factor on the base's step law, and an overhead of every engine step, from the time of each step's generation.

    Raises ``ParameterError`` for generation that is faster than the weights can be read, and without variation.
    """
    name, rows = steps.columns["generation"], _fitted(steps, priced)
    seconds = steps.values["generation"][priced.rows]
    _check_possible(steps, plan, priced, seconds)
    work, count = priced.engine_seconds, priced.engine_steps
    check_varies(steps.origin, f"the work behind {name}", work[rows], "the cost of an engine step")
    # the time of a step with more work must be longer, not only its mean right
    _check_rises(steps, name, least_squares(seconds[rows], [work[rows], np.ones(rows.sum())]))
    ratio = work[rows] / count[rows]
    if ratio.std() / ratio.mean() < LEAST_RATIO_VARIATION:
        return _scale_alone(steps, name, seconds, work, rows, "batches are too much alike to tell it from the factor")
    line = least_squares(seconds[rows], [work[rows], count[rows]])
    constant = least_squares(seconds[rows], [work[rows], count[rows], np.ones(rows.sum())])
    if _surprises(constant) and constant.coefficients[:2].min() > 0:
        line = constant
    if line.coefficients[1] < 0:
        return _scale_alone(steps, name, seconds, work, rows, "not above zero in this log")
    _check_rises(steps, name, line)
    fixed = float(line.coefficients[2]) if line is constant else 0.0
    source = f"{name} over rebuilt batches"
    return CostFit(
        (line.estimate(0, SCALE, source), line.estimate(1, OFFSET, source)),
        unidentified=(f"{fixed:.3g} s of {name} do not depend on the batch: in {FIXED}",) if fixed else (),
        predicted=line.coefficients[0] * work + line.coefficients[1] * count + fixed,
        scale=float(line.coefficients[0]),
        offset_seconds=float(line.coefficients[1]),
        fixed_seconds=fixed,
    )


def _surprises(line: LinearEstimate) -> bool:
    """Whether the constant, the last of the coefficients, is far above zero."""
    constant, low = float(line.coefficients[-1]), float(line.low[-1])
    return constant > SURPRISE * (constant - low)


def _fitted(steps: LoggedSteps, priced: PricedSteps) -> NDArray[np.bool_]:
    fitted: NDArray[np.bool_] = priced.rows < steps.fitted.stop
    return fitted


def _scale_alone(
    steps: LoggedSteps,
    name: str,
    seconds: NDArray[np.float64],
    work: NDArray[np.float64],
    rows: NDArray[np.bool_],
    why: str,
) -> CostFit:
    line = least_squares(seconds[rows], [work[rows]])
    _check_rises(steps, name, line)
    return CostFit(
        (line.estimate(0, SCALE, f"{name} over rebuilt batches"),),
        unidentified=(f"an overhead of every engine step: {why}",),
        predicted=line.coefficients[0] * work,
        scale=float(line.coefficients[0]),
    )


def _check_rises(steps: LoggedSteps, name: str, line: LinearEstimate) -> None:
    if line.low[0] <= 0:
        value = f"{name} does not grow with the work ({line.low[0]:.3g} to {line.high[0]:.3g} of the base's)"
        raise ParameterError(steps.origin, value, "a time that grows with it (noise, or columns mixed up?)")


def _check_possible(
    steps: LoggedSteps, plan: ResolvedScenario, priced: PricedSteps, seconds: NDArray[np.float64]
) -> None:
    """Every decode step reads the weights: less time than that is a rollout that was replayed, or another column."""
    pool = plan.pools[0].rollout
    split = (pool.tensor_parallel, pool.pipeline_parallel, pool.expert_parallel)
    active = plan.architecture.active_parameters() / plan.architecture.parameters()
    bytes_read = weight_bytes_per_gpu(plan.architecture, *split) * active
    least = IMPOSSIBLE * priced.engine_steps * bytes_read / plan.pools[0].device.memory_bytes_per_second
    impossible = np.flatnonzero(seconds < least)
    if len(impossible):
        row = int(impossible[0])
        step = int(steps.numbers[priced.rows[row]])
        value = f"{steps.columns['generation']} of {seconds[row]:.3g} s in step {step}, and {len(impossible) - 1} more"
        allowed = (
            f"at least {least[row]:.3g} s: the weights are read for every token (replayed rollouts? wrong device?)"
        )
        raise ParameterError(steps.origin, value, allowed)


def fit_update(steps: LoggedSteps, plan: ResolvedScenario, priced: PricedSteps) -> CostFit:
    """The utilisation of forward and backward, and the overhead of an optimizer update."""
    if not steps.has("update_actor"):
        return CostFit(unidentified=("the trainer's utilisation: no time of its own is logged; as given",))
    name, rows = steps.columns["update_actor"], _fitted(steps, priced)
    samples = plan.shape.prompts_per_step * plan.shape.group_size
    optimizer = optimizer_seconds(plan.training, samples)
    updates = min(plan.training.config.updates_per_step, samples) * plan.training.config.epochs
    seconds = steps.values["update_actor"][priced.rows] - optimizer
    slope, constant = _slope_and_constant(steps, name, seconds, priced.update_seconds, rows, expected=True)
    estimates = [_utilisation(steps, slope, "trainer.mfu", name)]
    settings: dict[str, object] = {"trainer.mfu": estimates[0].value, PER_UPDATE: 0.0, **NOT_TOLD}
    if constant is not None:
        low, value, high = ((1 / updates) * part for part in (constant.low, constant.value, constant.high))
        estimates.append(LogEstimate(PER_UPDATE, value, low, high, constant.source))
        settings[PER_UPDATE] = estimates[1].value
    predicted = slope.value * priced.update_seconds + optimizer + (constant.value if constant else 0.0)
    return CostFit(tuple(estimates), settings, predicted=predicted)


def fit_passes(steps: LoggedSteps, plan: ResolvedScenario, priced: PricedSteps) -> CostFit:
    """The utilisation of log-probability passes, from one column or from two."""
    names = [name for name in ("old_log_prob", "reference") if steps.has(name)]
    if not names:
        if steps.separate_passes and steps.has("update_actor"):
            return CostFit(settings={"trainer.old_log_prob": False, "trainer.reference": False})
        return CostFit(unidentified=("log-probability passes: no time of their own is logged; as given",))
    settings: dict[str, object] = {"trainer.old_log_prob": "old_log_prob" in names}
    count = len(names)
    if steps.separate_passes:
        settings["trainer.reference"] = "reference" in names
    else:
        count += plan.training.config.reference
    rows, source = _fitted(steps, priced), " + ".join(steps.columns[name] for name in names)
    seconds = np.sum([steps.values[name][priced.rows] for name in names], axis=0)
    work = count * priced.forward_seconds
    slope, constant = _slope_and_constant(steps, source, seconds, work, rows, expected=False)
    utilisation = _utilisation(steps, slope, "trainer.logprob_mfu", source)
    fixed = constant.value if constant else 0.0
    return CostFit(
        (utilisation,),
        {**settings, "trainer.logprob_mfu": utilisation.value},
        (f"{fixed:.3g} s of {source} do not depend on the batch: in {FIXED}",) if fixed else (),
        slope.value * work + fixed,
        fixed_seconds=fixed,
    )


def _slope_and_constant(
    steps: LoggedSteps,
    name: str,
    seconds: NDArray[np.float64],
    work: NDArray[np.float64],
    rows: NDArray[np.bool_],
    expected: bool,
) -> tuple[LogEstimate, LogEstimate | None]:
    check_varies(steps.origin, f"the work behind {name}", work[rows], "its cost")
    source = f"{name} over rebuilt batches"
    line = least_squares(seconds[rows], [work[rows], np.ones(rows.sum())])
    _check_rises(steps, name, line)
    if line.coefficients[1] > 0 and (expected or _surprises(line)):
        return line.estimate(0, name, source), line.estimate(1, name, source)
    line = least_squares(seconds[rows], [work[rows]])
    return line.estimate(0, name, source), None


def _utilisation(steps: LoggedSteps, slope: LogEstimate, key: str, name: str) -> LogEstimate:
    """Seconds over those at full utilisation, turned over."""
    utilisation = LogEstimate(key, 1 / slope.value, 1 / slope.high, 1 / slope.low, slope.source)
    if utilisation.value > 1:
        said = f"{name}: {utilisation.value:.0%} of the device's peak"
        raise ParameterError(steps.origin, said, "at most 100 % (are GPUs, device, batch and updates the run's?)")
    return utilisation


def fit_sync(steps: LoggedSteps, plan: ResolvedScenario) -> CostFit:
    """The time of a publication, booked on a link of 30 GB/s and a constant, or on a slower link alone."""
    if not steps.has("sync"):
        return CostFit(unidentified=("the time of a publication: not logged; as given",))
    name = steps.columns["sync"]
    seconds = mean_of(PUBLICATION, steps.values["sync"][steps.fitted], name)
    if seconds.value <= 0:
        return CostFit(unidentified=(f"the time of a publication: {name} is zero; as given",))
    unknown = "constant and rate of a publication: one number, booked on a link of 30 GB/s and the rest"
    predicted = np.full(steps.count, seconds.value)
    return CostFit((seconds,), _booked(seconds.value, plan), (unknown,), predicted)


def _booked(seconds: float, plan: ResolvedScenario) -> dict[str, object]:
    rate = TRANSPORTS["nccl"].bytes_per_second
    base = seconds - plan.sync.model_bytes / rate
    return {
        "sync.link_bytes_per_second": rate if base >= 0 else plan.sync.model_bytes / seconds,
        "sync.base_seconds": max(0.0, base),
        "sync.tensors": None,
        "sync.per_tensor_seconds": 0.0,
    }


def less(fit: CostFit, waits: float, reach: float, plan: ResolvedScenario) -> CostFit:
    """A publication without what its update mode adds, ``waits`` +- ``reach``, which the simulation adds again."""
    if not fit.estimates or not 0 < waits < fit.estimates[0].value:
        return fit
    was = fit.estimates[0]
    source = f"{was.source} less {waits:.3g} s in which engines finish their step and clients sleep"
    estimate = LogEstimate(PUBLICATION, was.value - waits, was.low - waits - reach, was.high - waits + reach, source)
    return replace(fit, estimates=(estimate,), settings=_booked(estimate.value, plan))


def fit_rest(steps: LoggedSteps, colocated: bool, constants: float) -> CostFit:
    """What a step takes beside its timers, and the ``constants`` of timers: a fixed time of every step."""
    parts = [name for name in TIMERS if steps.has(name)]
    exposed = "generation" if steps.synchronous else "wait"
    if exposed not in parts or "update_actor" not in parts:
        return CostFit(unidentified=(f"a fixed time of every step: {exposed} or training is not logged; as given",))
    if steps.step_is_sum:
        said = "what a step spends outside its timers: the log's step is their sum; none assumed"
        return CostFit(settings={FIXED: constants}, unidentified=(said,), predicted=np.zeros(steps.count))
    rest = steps.values["step"] - np.sum([steps.values[name] for name in parts], axis=0)
    fixed = mean_of(FIXED, rest[steps.fitted], f"{steps.columns['step']} less its timers")
    if fixed.value < -OVERLAP * float(steps.values["step"].mean()):
        said = f"timers that sum to {-fixed.value:.3g} s more than {steps.columns['step']}"
        raise ParameterError(steps.origin, said, "timers that do not overlap (columns mixed up? an asynchronous run?)")
    settings: dict[str, object] = {FIXED: max(0.0, fixed.value) + constants}
    unknown: tuple[str, ...] = ()
    if colocated:
        settings |= {"switching.sleep_seconds": 0.0, "switching.wake_seconds": 0.0}
        unknown = (f"changes of role on shared GPUs: not logged apart; in {FIXED}",)
    return CostFit((fixed,), settings, unknown, np.full(steps.count, max(0.0, fixed.value)))
