"""The rollout section: step times, KV blocks and the limits of an engine.

The discipline section: the rules of an engine's scheduler, in the engine's integers.
"""

from __future__ import annotations

from fractions import Fraction

from rlsim.core.errors import ParameterError
from rlsim.core.ticks import TICKS_PER_SECOND, to_ticks
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.memory import kv_blocks
from rlsim.costs.profile import Profile, load_profile
from rlsim.costs.roofline import roofline
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.discipline import AgeingQueue, Conservative, Discipline, PastFuture, StepTarget
from rlsim.engine.requests import EngineLimits
from rlsim.resolve.workload import longest_prompt_tokens, longest_tokens
from rlsim.scenario.discipline import HISTORY_CALLS
from rlsim.scenario.schema import Scenario
from rlsim.scenario.step_time import StepTimeSource
from rlsim.workload.workload import Workload


def make_discipline(scenario: Scenario) -> Discipline:
    """The rules that the scenario sets; vLLM's where it sets none."""
    section = scenario.rollout.discipline
    target, ageing = None, None
    if section.target_step_seconds is not None and section.min_chunk_tokens is not None:
        ticks, scale = to_ticks(section.target_step_seconds), section.predicted_scale or 1.0
        target = StepTarget(ticks, section.min_chunk_tokens, scale)
    if section.order is not None and section.waiting_weight is not None and section.prefill_weight is not None:
        # Weights a second and a token as whole numbers a tick and a token in the same ratio, exactly.
        waiting, prefill = Fraction(section.waiting_weight), Fraction(section.prefill_weight) * TICKS_PER_SECOND
        ageing = AgeingQueue(waiting.numerator * prefill.denominator, prefill.numerator * waiting.denominator)
    return Discipline(_admission(scenario), target, section.max_concurrent_prefills, ageing)


def _admission(scenario: Scenario) -> Conservative | PastFuture | None:
    section = scenario.rollout.discipline
    if section.admission == "aggressive":
        return None
    if section.admission == "conservative":
        return Conservative(section.reserved_fraction or 0.0)
    reserved = PastFuture().reserved_fraction if section.reserved_fraction is None else section.reserved_fraction
    history = section.history_calls or HISTORY_CALLS
    initial = history // 2 if section.initial_calls is None else section.initial_calls
    return PastFuture(section.quantile, reserved, history, initial, scenario.seed)


def make_profile(scenario: Scenario) -> Profile | None:
    """The profile that the scenario names; None without one."""
    name = scenario.rollout.step_time.profile
    return None if name is None else load_profile(name)


def make_step_model(
    scenario: Scenario, architecture: Architecture, device: Device, profile: Profile | None
) -> StepTimeModel | None:
    """The law of a step from its source, corrected; None where its profile is refused already."""
    rollout, section = scenario.rollout, scenario.rollout.step_time
    if section.source == "profile":
        if profile is None:
            return None
        differs = profile.mismatches(architecture.name, device.name, rollout.tensor_parallel, rollout.expert_parallel)
        if differs and not scenario.cluster.allow_other_hardware:
            allowed = f"a profile of this set-up, or cluster.allow_other_hardware: true ({'; '.join(differs)})"
            raise ParameterError("rollout.step_time.profile", profile.name, allowed)
        law = profile.law
    elif section.source == "roofline":
        parallel = (rollout.tensor_parallel, rollout.pipeline_parallel, rollout.expert_parallel)
        law = roofline(architecture, device, *parallel, gpus_per_node=scenario.cluster.gpus_per_node)
    else:
        law = StepTimeModel.affine(
            section.base_seconds,
            section.per_sequence_seconds,
            section.per_kv_token_seconds,
            section.per_prefill_token_seconds,
            section.per_pair_seconds,
        )
    return law.calibrated(section.scale, host_seconds(section, architecture))


def host_seconds(section: StepTimeSource, architecture: Architecture) -> float:
    """What the framework adds to every engine step of this model."""
    return section.offset_seconds + section.offset_seconds_per_layer * architecture.layers


def make_limits(scenario: Scenario, architecture: Architecture, device: Device, workload: Workload) -> EngineLimits:
    """What the scheduler of a replica obeys; refuses a model or a sequence that does not fit."""
    rollout = scenario.rollout
    longest = rollout.max_model_len or longest_tokens(workload)
    prompt = longest_prompt_tokens(workload)
    if prompt >= longest:
        raise ParameterError("rollout.max_model_len", longest, f"more than the longest prompt ({prompt})")
    blocks = rollout.kv_blocks or kv_blocks(
        architecture,
        device,
        rollout.tensor_parallel,
        rollout.pipeline_parallel,
        rollout.gpu_memory_utilization,
        rollout.block_size,
        expert_parallel=rollout.expert_parallel,
        max_num_seqs=rollout.max_num_seqs,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
    )
    if blocks * rollout.block_size < longest:
        capacity = f"{blocks} KV blocks of {rollout.block_size} tokens"
        key = "rollout.kv_blocks" if rollout.kv_blocks else "rollout.gpu_memory_utilization"
        raise ParameterError(key, capacity, f"room for one sequence of {longest} tokens (max_model_len)")
    return EngineLimits(
        max_num_seqs=rollout.max_num_seqs,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
        max_model_len=longest,
        block_size=rollout.block_size,
        kv_blocks=blocks,
        enable_prefix_caching=rollout.enable_prefix_caching,
        enable_chunked_prefill=rollout.enable_chunked_prefill,
        scheduling_policy=rollout.scheduling_policy,
        discipline=make_discipline(scenario),
    )
