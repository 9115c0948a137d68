"""What physics says of logged times: utilisations, memory rates and ratios that no size of a run explains.

A number outside of these limits can be fitted, but a scenario that has it predicts a broken run, or the base does not
describe the run. Either is said before any number.

Sources of the limits. Best utilisation in training: 64.2 % of an A100's dense bf16 peak, and 79.3 % where recomputed
activations count (LLM Foundry, scripts/train/benchmarking/README.md at 8c8dd48; its best on H100 are 46.4 and 59.0 %).
A forward pass alone is held to the latter. Least: 2 %, a tenth of what frameworks of this kind publish.
Memory: a decode step reads the active weights and the KV cache once; half of that time is allowed for speculation and
8-bit caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.logs.batches import PricedSteps, optimizer_seconds
from calibration.logs.lengths import LengthFit
from calibration.logs.steps import TIMERS, LoggedSteps
from rlsim.costs.memory import weight_bytes_per_gpu
from rlsim.resolve import ResolvedScenario

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_UTILISATION = 0.02
MOST_UTILISATION, MOST_WITH_RECOMPUTATION = 0.65, 0.80
MEMORY_ALLOWANCE = 0.5
MOST_EXCESS = 3.0
"""Times what its work explains that an update may take of a log-probability pass, or a pass of an update."""
MOST_OVERLAP, MOST_UNTIMED = 0.02, 0.25
"""Shares of a step by which its timers may sum to more than it, and to less."""


@dataclass(frozen=True, slots=True)
class Implausible:
    """One thing that no size of the run explains."""

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


def implausible(
    steps: LoggedSteps, plan: ResolvedScenario, priced: PricedSteps, least_generation: NDArray[np.float64]
) -> Iterator[Implausible]:
    """Everything in the log that physics does not allow for the run that the base describes."""
    if priced.engine_seconds.any() and steps.has("generation"):
        yield from _memory_rates(steps, priced, least_generation, plan.shape.replicas)
    ratio = list(_update_over_pass(steps, plan, priced))
    yield from ratio
    yield from _utilisations(steps, plan, priced, bool(ratio))
    yield from _sums(steps)


def least_generation_seconds(
    steps: LoggedSteps, plan: ResolvedScenario, priced: PricedSteps, lengths: LengthFit
) -> NDArray[np.float64]:
    """Seconds that a replica reads weights and KV at the full memory rate, the KV spread evenly over replicas."""
    pool, device = plan.pools[0].rollout, plan.pools[0].device
    architecture, split = plan.architecture, (pool.tensor_parallel, pool.pipeline_parallel, pool.expert_parallel)
    active = architecture.active_parameters() / architecture.parameters()
    weights = priced.engine_steps * weight_bytes_per_gpu(architecture, *split) * active
    prompt, mean = lengths.prompt_tokens[priced.rows], lengths.response_tokens[priced.rows]
    even = lengths.distribution.quantile((np.arange(2000) + 0.5) / 2000).astype(float)
    square = float((even**2).mean() / even.mean() ** 2)
    samples = plan.shape.prompts_per_step * plan.shape.group_size
    contexts = samples * (prompt * mean + square * mean**2 / 2) / plan.shape.replicas
    kv = contexts * architecture.kv_bytes_per_token_per_gpu(pool.tensor_parallel, 2.0) / pool.pipeline_parallel
    seconds: NDArray[np.float64] = (weights + kv) / device.memory_bytes_per_second
    return seconds


def impossible_rows(
    steps: LoggedSteps, priced: PricedSteps, least_generation: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Which rebuilt steps generated faster than memory can be read."""
    faster: NDArray[np.bool_] = steps.values["generation"][priced.rows] < MEMORY_ALLOWANCE * least_generation
    return faster


def _memory_rates(
    steps: LoggedSteps, priced: PricedSteps, least: NDArray[np.float64], replicas: int
) -> Iterator[Implausible]:
    name, seconds = steps.columns["generation"], steps.values["generation"][priced.rows]
    faster = np.flatnonzero(impossible_rows(steps, priced, least))
    if len(faster):
        row = int(faster[0])
        more = f" and in {len(faster) - 1} more" if len(faster) > 1 else ""
        yield Implausible(
            "generation faster than memory",
            f"{name} of {seconds[row]:.3g} s in step {steps.numbers[priced.rows[row]]}{more} cannot be generation: "
            f"reading weights and KV takes at least {least[row]:.3g} s on {replicas} replicas of this device "
            "(replayed rollouts? another device, split or batch?). These steps are not fitted.",
        )
    usual = ~impossible_rows(steps, priced, least)
    if usual.any() and (share := float(least[usual].sum() / seconds[usual].sum())) < LEAST_UTILISATION:
        yield Implausible(
            "generation far below memory",
            f"This run is not slow by size: {name} reads memory at {share:.1%} of its rate. Something there is not the "
            "engines' work (a hang, tools, a wrong timer), or the base has another model or batch.",
        )


def _update_over_pass(steps: LoggedSteps, plan: ResolvedScenario, priced: PricedSteps) -> Iterator[Implausible]:
    names = _passes(steps)
    if not (names and steps.has("update_actor")):
        return
    count = passes_of(steps, plan)
    one = float(np.mean(np.sum([steps.values[name] for name in names], axis=0))) / count
    update = float(steps.values["update_actor"].mean())
    if min(one, update) <= 0:
        return
    samples = plan.shape.prompts_per_step * plan.shape.group_size
    explained = float(priced.update_seconds.mean() / priced.forward_seconds.mean())
    excess = (update - optimizer_seconds(plan.training, samples)) / one / explained
    shown = " + ".join(steps.columns[name] for name in names)
    if excess > MOST_EXCESS:
        yield Implausible(
            "update beyond its work",
            f"This run is not slow by size: {steps.columns['update_actor']} takes {update / one:.3g} times a "
            f"log-probability pass; its work explains {explained:.2g}. Something there is broken or is not the GPUs' "
            "work (CPU offload, a hang, a wrong timer). The fitted costs predict it as it is.",
        )
    elif excess < 1 / MOST_EXCESS:
        yield Implausible(
            "pass beyond its work",
            f"This run is not slow by size: a log-probability pass ({shown}) takes {one / update:.2g} of an update; "
            f"its work explains {1 / explained:.2g}. Something there is broken or is not the GPUs' work (offload, a "
            "hang, a wrong timer). The fitted costs predict it as it is.",
        )


def _utilisations(
    steps: LoggedSteps, plan: ResolvedScenario, priced: PricedSteps, explained: bool
) -> Iterator[Implausible]:
    for phase, seconds, work in _phases(steps, plan, priced):
        mean = float(seconds.mean())
        share = float(work.mean()) / mean if mean > 0 else float("inf")
        name = " + ".join(steps.columns[each] for each in (_passes(steps) if phase == "passes" else [phase]))
        recomputes = phase == "passes" or plan.training.config.activation_recompute
        most = MOST_WITH_RECOMPUTATION if recomputes else MOST_UTILISATION
        if share > most:
            yield Implausible(
                "utilisation above the best published",
                f"{name} would use {share:.0%} of the GPUs' dense bf16 peak; the best published is "
                f"{most:.0%}. Are GPUs, device, batch, lengths and updates of the base the run's?",
            )
        elif share < LEAST_UTILISATION and not explained:
            yield Implausible(
                "utilisation below 2 %",
                f"This run is not slow by size: {name} uses {share:.2g} of the GPUs' dense bf16 peak, below "
                f"{LEAST_UTILISATION:.0%}. Something there is broken or is not the GPUs' work (CPU offload, a hang, a "
                "wrong timer), or its batches are too small for these GPUs.",
            )


def _phases(
    steps: LoggedSteps, plan: ResolvedScenario, priced: PricedSteps
) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """(phase, logged seconds, seconds at full utilisation) of the trainer's phases that are logged."""
    if steps.has("update_actor"):
        samples = plan.shape.prompts_per_step * plan.shape.group_size
        seconds = steps.values["update_actor"][priced.rows] - optimizer_seconds(plan.training, samples)
        yield "update_actor", seconds, priced.update_seconds
    if names := _passes(steps):
        seconds = np.sum([steps.values[name][priced.rows] for name in names], axis=0)
        yield "passes", seconds, passes_of(steps, plan) * priced.forward_seconds


def _passes(steps: LoggedSteps) -> list[str]:
    return [name for name in ("old_log_prob", "reference") if steps.has(name)]


def passes_of(steps: LoggedSteps, plan: ResolvedScenario) -> int:
    """How many log-probability passes the logged ones are: a column may hold those of both models."""
    names = _passes(steps)
    return len(names) + (0 if steps.separate_passes else int(plan.training.config.reference))


def _sums(steps: LoggedSteps) -> Iterator[Implausible]:
    """Timers against the step that they are part of."""
    parts = [name for name in TIMERS if steps.has(name)]
    exposed = "generation" if steps.synchronous else "wait"
    if steps.step_is_sum or exposed not in parts or "update_actor" not in parts:
        return
    step = float(steps.values["step"].mean())
    rest = step - float(np.sum([steps.values[name] for name in parts], axis=0).mean())
    if rest < -MOST_OVERLAP * step:
        yield Implausible(
            "timers beyond the step",
            f"The timers sum to {-rest:.3g} s more than {steps.columns['step']} ({step:.4g} s): they overlap, or are "
            "not of this step (columns mixed up? an asynchronous run?). No fixed time is fitted.",
        )
    elif rest > MOST_UNTIMED * step:
        yield Implausible(
            "step beyond its timers",
            f"{rest:.3g} s of a step of {step:.4g} s ({rest / step:.0%}) are in none of its timers: something that is "
            "not logged takes them (rewards, data, checkpoints?). They are in the fixed time of every step.",
        )
