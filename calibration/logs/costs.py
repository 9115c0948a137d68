"""Costs from logged times: what the engine, the trainer and a publication take, in units of the base scenario's.

Times are linear in the work that the rebuilt batches hold, so each cost is a line: its slope a factor on what the
base says, its constant an overhead. An optimizer update has a key for its overhead, so its constant is always fitted;
where a constant is not expected (generation, log-probability passes) it is kept only when it is far from zero.

What a log does not tell of one cost keeps nothing from the others: it stays as in the base, and is said so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from calibration.logs.batches import PricedSteps, optimizer_seconds
from calibration.logs.estimates import (
    JointEstimate,
    LogEstimate,
    OpenQuantity,
    least_squares,
    mean_of,
    undisturbed,
)
from calibration.logs.frameworks import FRAMEWORKS, QUANTITIES
from calibration.logs.phases import Phase, PhaseFit, fit_phase, jointly, surprises, without_disturbed
from calibration.logs.plausibility import MOST_OVERLAP, impossible_rows, passes_of
from calibration.logs.steps import TIMERS, LoggedSteps
from rlsim.costs.transfer import TRANSPORTS
from rlsim.resolve import ResolvedScenario

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCALE, OFFSET = "rollout.step_time.scale", "rollout.step_time.offset_seconds"
MFU, LOGPROB_MFU = "trainer.mfu", "trainer.logprob_mfu"
FIXED, PER_UPDATE = "trainer.fixed_seconds_per_step", "trainer.seconds_per_update"
PUBLICATION, SCORING = "seconds of a publication", "seconds of scoring a step"
NOT_TOLD = {
    "trainer.profile": None,
    "trainer.attention_mfu": None,
    "trainer.seconds_per_micro_batch": 0.0,
    "trainer.logprob_seconds_per_micro_batch": None,
}
"""Keys of the trainer that a log cannot tell from its utilisation, which stands for all of them."""
SPEED = "the engines' speed"
TOLD_APART = "a log whose lengths vary more, with the longest of each step,"
FEWEST_FOR_THREE = 12
"""Steps from which a constant of the whole step is tried beside a factor and an overhead."""


@dataclass(frozen=True, slots=True)
class CostFit:
    """One cost: numbers, keys of the scenario, what stays open, and its predictions for the rebuilt steps."""

    estimates: tuple[LogEstimate, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    unidentified: tuple[OpenQuantity, ...] = ()
    joint: tuple[JointEstimate, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out, and where a number was booked that has no key of its own."""
    predicted: NDArray[np.float64] | None = None
    scale: float = 1.0
    offset_seconds: float = 0.0
    fixed_seconds: float = 0.0
    """A constant of a training step that has no key of its own."""


def told_by(steps: LoggedSteps, quantity: str) -> str:
    """The log that would tell a quantity: by the framework's own column where it has one."""
    columns = next((each.columns for each in FRAMEWORKS if each.name == steps.framework), {})
    names = columns.get(quantity, ())
    return f"a log with {names[0] if names else QUANTITIES[quantity]}"


def not_logged(steps: LoggedSteps, name: str, quantity: str) -> CostFit:
    """A cost whose time the log does not have."""
    return CostFit(unidentified=(OpenQuantity(name, "not logged", told_by=told_by(steps, quantity)),))


def fit_generation(
    steps: LoggedSteps, priced: PricedSteps, least_seconds: NDArray[np.float64], knows_longest: bool
) -> CostFit:
    """A factor on the base's step law, and an overhead of every engine step, from the time of each step's generation.

    Steps that took less than ``least_seconds``, the time to read memory, are left out. Without the longest response of
    each step their work is too vague for the two to be parted.
    """
    name, seconds = steps.columns["generation"], steps.values["generation"][priced.rows]
    work, count = priced.engine_seconds, priced.engine_steps
    rows = _fitted(steps, priced) & ~impossible_rows(steps, priced, least_seconds)
    if rows.sum() < 2:
        why = f"{name} is faster than memory can be read in nearly all of the fitted steps"
        return CostFit(unidentified=(OpenQuantity(SPEED, why, told_by="a log without replayed rollouts"),))
    vague = "" if knows_longest else "the longest response of each step is not logged"
    whole = Phase(name, seconds[rows], work[rows], count[rows], inseparable=vague)
    phase, disturbed = without_disturbed(whole)
    fit, fixed = _with_fixed(phase)
    apart = OpenQuantity(OFFSET, fit.alone, "0, its time is in the factor", TOLD_APART)
    return CostFit(
        tuple(each for each in (fit.factor, fit.constant) if each is not None),
        unidentified=() if fit.constant else (apart,),
        joint=(fit.joint,) if fit.joint else (),
        notes=(*_booked_in_fixed(fixed, name), *_disturbed(disturbed, name)),
        predicted=fit.seconds(work, count) + fixed,
        scale=fit.factor.value,
        offset_seconds=fit.constant.value if fit.constant else 0.0,
        fixed_seconds=fixed,
    )


def _with_fixed(phase: Phase) -> tuple[PhaseFit, float]:
    """The fit, with a constant of the whole step as well where that is far above zero and the others stay so."""
    fit, ones = fit_phase(phase, (SCALE, OFFSET)), np.ones(len(phase.work))
    if fit.constant is None or len(ones) < FEWEST_FOR_THREE:
        return fit, 0.0
    line = least_squares(phase.seconds, [phase.work, phase.count, ones])
    factor, constant, fixed = (line.estimate(n, key, fit.factor.source) for n, key in enumerate((SCALE, OFFSET, FIXED)))
    if min(factor.value, constant.value) <= 0 or not surprises(fixed):
        return fit, 0.0
    return PhaseFit(factor, constant, jointly(line, phase, (SCALE, OFFSET), 1.0), ""), fixed.value


def _fitted(steps: LoggedSteps, priced: PricedSteps) -> NDArray[np.bool_]:
    fitted: NDArray[np.bool_] = priced.rows < steps.fitted.stop
    return fitted


def _booked_in_fixed(seconds: float, name: str) -> tuple[str, ...]:
    return (f"{seconds:.3g} s of {name} do not depend on the batch: in {FIXED}",) if seconds else ()


def _disturbed(count: int, name: str) -> tuple[str, ...]:
    said = f"{count} steps far off the others in {name} (a restart, a hang?) are left out of its fit"
    return (said,) if count else ()


def fit_update(steps: LoggedSteps, plan: ResolvedScenario, priced: PricedSteps) -> CostFit:
    """The utilisation of forward and backward, and the overhead of an optimizer update."""
    if not steps.has("update_actor"):
        return not_logged(steps, MFU, "update_actor")
    name, rows = steps.columns["update_actor"], _fitted(steps, priced)
    samples = plan.shape.prompts_per_step * plan.shape.group_size
    optimizer = optimizer_seconds(plan.training, samples)
    config = plan.training.config
    updates = np.full(len(priced.rows), float(min(config.updates_per_step, samples) * config.epochs))
    seconds = steps.values["update_actor"][priced.rows] - optimizer
    whole = Phase(name, seconds[rows], priced.update_seconds[rows], updates[rows])
    phase, disturbed = without_disturbed(whole)
    fit = fit_phase(phase, (MFU, PER_UPDATE))
    utilisation = _utilisation(fit.factor)
    if utilisation is None:
        return _too_fast(MFU, name, fit.factor)
    settings: dict[str, object] = {MFU: utilisation.value, PER_UPDATE: 0.0, **NOT_TOLD}
    if fit.constant:
        settings[PER_UPDATE] = fit.constant.value
    apart = OpenQuantity(PER_UPDATE, fit.alone, f"0, its time is in {MFU}", TOLD_APART)
    return CostFit(
        tuple(each for each in (utilisation, fit.constant) if each is not None),
        settings,
        () if fit.constant else (apart,),
        (_of_utilisation(fit.joint, optimizer),) if fit.joint else (),
        _disturbed(disturbed, name),
        fit.seconds(priced.update_seconds, updates) + optimizer,
    )


def _of_utilisation(joint: JointEstimate, optimizer: float) -> JointEstimate:
    """The same of one over the factor, with the seconds that were taken off before."""
    whole = joint.together
    moved = replace(whole, value=whole.value + optimizer, low=whole.low + optimizer, high=whole.high + optimizer)
    return replace(joint, correlation=-joint.correlation, together=moved)


def fit_passes(steps: LoggedSteps, plan: ResolvedScenario, priced: PricedSteps) -> CostFit:
    """The utilisation of log-probability passes, from one column or from two."""
    names = [name for name in ("old_log_prob", "reference") if steps.has(name)]
    if not names:
        if steps.separate_passes and steps.has("update_actor"):
            return CostFit(settings={"trainer.old_log_prob": False, "trainer.reference": False})
        return not_logged(steps, LOGPROB_MFU, "old_log_prob")
    settings: dict[str, object] = {"trainer.old_log_prob": "old_log_prob" in names}
    if steps.separate_passes:
        settings["trainer.reference"] = "reference" in names
    rows, source = _fitted(steps, priced), " + ".join(steps.columns[name] for name in names)
    seconds = np.sum([steps.values[name][priced.rows] for name in names], axis=0)
    work, ones = passes_of(steps, plan) * priced.forward_seconds, np.ones(len(priced.rows))
    phase, disturbed = without_disturbed(Phase(source, seconds[rows], work[rows], ones[rows], expects_constant=False))
    fit = fit_phase(phase, (LOGPROB_MFU, FIXED))
    utilisation = _utilisation(fit.factor)
    if utilisation is None:
        return _too_fast(LOGPROB_MFU, source, fit.factor, settings)
    fixed = fit.constant.value if fit.constant else 0.0
    return CostFit(
        (utilisation,),
        {**settings, LOGPROB_MFU: utilisation.value},
        joint=(_of_utilisation(fit.joint, 0.0),) if fit.joint else (),
        notes=(*_booked_in_fixed(fixed, source), *_disturbed(disturbed, source)),
        predicted=fit.seconds(work, ones),
        fixed_seconds=fixed,
    )


def _utilisation(factor: LogEstimate) -> LogEstimate | None:
    """Seconds over those at full utilisation, turned over; None where that is above the device's peak."""
    if factor.value < 1:
        return None
    low, high = 1 / factor.high, min(1.0, 1 / factor.low if factor.low > 0 else 1.0)
    return replace(factor, value=1 / factor.value, low=low, high=high, bound="1" if factor.value == 1 else "")


def _too_fast(key: str, name: str, factor: LogEstimate, settings: Mapping[str, object] | None = None) -> CostFit:
    share = f"{1 / factor.value:.0%} of the peak" if factor.value > 0 else "no time at all"
    why = f"{name} would take {share} of the GPUs, beyond its bound 100 %"
    return CostFit(settings=settings or {}, unidentified=(OpenQuantity(key, why, told_by="a base that is the run's"),))


def fit_sync(steps: LoggedSteps, plan: ResolvedScenario) -> CostFit:
    """The time of a publication, booked on a link of 30 GB/s and a constant, or on a slower link alone."""
    if not steps.has("sync"):
        return not_logged(steps, "the time of a publication", "sync")
    name, logged = steps.columns["sync"], steps.values["sync"][steps.fitted]
    usual = undisturbed(logged)
    seconds = mean_of(PUBLICATION, logged[usual], name)
    if seconds.value <= 0:
        return CostFit(unidentified=(OpenQuantity("the time of a publication", f"{name} is zero"),))
    unknown = OpenQuantity(
        "constant and rate of a publication", "one number", "booked on a link of 30 GB/s and the rest on a constant"
    )
    predicted = np.full(steps.count, seconds.value)
    notes = _disturbed(int((~usual).sum()), name)
    return CostFit((seconds,), _booked(seconds.value, plan), (unknown,), notes=notes, predicted=predicted)


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


def fit_reward(steps: LoggedSteps, plan: ResolvedScenario) -> CostFit:
    """The time of scoring a step: in the fixed time, or, where the base has a reward section, for comparison only."""
    modelled = plan.scenario.workload.reward is not None
    if not steps.has("reward"):
        return not_logged(steps, SCORING, "reward") if modelled else CostFit()
    name, logged = steps.columns["reward"], steps.values["reward"][steps.fitted]
    usual = undisturbed(logged)
    seconds = mean_of(SCORING, logged[usual], name)
    predicted, notes = np.full(steps.count, seconds.value), _disturbed(int((~usual).sum()), name)
    if not modelled:
        notes = (*_booked_in_fixed(seconds.value, name), *notes)
        return CostFit((seconds,), notes=notes, predicted=predicted, fixed_seconds=seconds.value)
    why = f"{name} is the time of a whole step, its mean {seconds.value:.3g} s"
    kept = OpenQuantity("workload.reward", why, told_by="a log of the time to score each sample")
    return CostFit((seconds,), unidentified=(kept,), notes=notes, predicted=predicted)


def fit_rest(steps: LoggedSteps, colocated: bool, constants: float) -> CostFit:
    """What a step takes beside its timers, and the ``constants`` of timers: a fixed time of every step."""
    parts = [name for name in TIMERS if steps.has(name)]
    exposed = "generation" if steps.synchronous else "wait"
    missing = next((name for name in (exposed, "update_actor") if name not in parts), None)
    if missing:
        return not_logged(steps, FIXED, missing)
    if steps.step_is_sum:
        why = "the log's step is the sum of its timers"
        kept = OpenQuantity(FIXED, why, "none beside theirs", "a log with the wall clock of a step")
        return CostFit(settings={FIXED: constants}, unidentified=(kept,), predicted=np.zeros(steps.count))
    rest = steps.values["step"] - np.sum([steps.values[name] for name in parts], axis=0)
    usual = undisturbed(rest[steps.fitted])
    fixed = mean_of(FIXED, rest[steps.fitted][usual], f"{steps.columns['step']} less its timers")
    if fixed.value < -MOST_OVERLAP * float(steps.values["step"].mean()):
        why = f"its timers sum to {-fixed.value:.3g} s more than {steps.columns['step']}"
        return CostFit(unidentified=(OpenQuantity(FIXED, why, told_by="a log whose timers do not overlap"),))
    at_bound = replace(fixed, value=max(0.0, fixed.value), bound="0" if fixed.value < 0 else "")
    whole = (at_bound.value + constants, at_bound.low + constants, at_bound.high + constants)
    written = replace(at_bound, value=whole[0], low=whole[1], high=whole[2])
    settings: dict[str, object] = {FIXED: written.value}
    notes = _disturbed(int((~usual).sum()), f"{steps.columns['step']} less its timers")
    if colocated:
        settings |= {"switching.sleep_seconds": 0.0, "switching.wake_seconds": 0.0}
        notes += (f"changes of role on shared GPUs are not logged apart: in {FIXED}",)
    return CostFit((written,), settings, notes=notes, predicted=np.full(steps.count, at_bound.value))
