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
from rlsim.costs.steplaw import StepTimeModel
from rlsim.engine.discipline import AgeingQueue, Conservative, Discipline, PastFuture, StepTarget
from rlsim.engine.requests import EngineLimits
from rlsim.resolve.workload import longest_prompt_tokens, longest_tokens
from rlsim.scenario.discipline import HISTORY_CALLS
from rlsim.scenario.schema import Scenario
from rlsim.scenario.step_time import StepTimeSource
from rlsim.workload.workload import Workload


def make_discipline(scenario: Scenario) -> Discipline:
    """The rules that the scenario sets; vLLM's where it sets none."""
    return Discipline(
        _admission(scenario),
        _step_target(scenario),
        scenario.rollout.discipline.max_concurrent_prefills,
        _ageing(scenario),
    )


def _admission(scenario: Scenario) -> Conservative | PastFuture | None:
    given = scenario.rollout.discipline
    if given.admission == "aggressive":
        return None
    if given.admission == "conservative":
        return Conservative(given.reserved_fraction or 0.0)
    reserved = PastFuture().reserved_fraction if given.reserved_fraction is None else given.reserved_fraction
    history = given.history_calls or HISTORY_CALLS
    initial = history // 2 if given.initial_calls is None else given.initial_calls
    return PastFuture(given.quantile, reserved, history, initial, scenario.seed)


def _step_target(scenario: Scenario) -> StepTarget | None:
    given = scenario.rollout.discipline
    if given.target_step_seconds is None or given.min_chunk_tokens is None:
        return None
    return StepTarget(to_ticks(given.target_step_seconds), given.min_chunk_tokens, given.predicted_scale or 1.0)


def _ageing(scenario: Scenario) -> AgeingQueue | None:
    """Weights a second and a token as whole numbers a tick and a token in the same ratio, exactly."""
    given = scenario.rollout.discipline
    if given.order is None or given.waiting_weight is None or given.prefill_weight is None:
        return None
    waiting, prefill = Fraction(given.waiting_weight), Fraction(given.prefill_weight) * TICKS_PER_SECOND
    return AgeingQueue(
        waiting.numerator * prefill.denominator,
        prefill.numerator * waiting.denominator,
    )


def make_profile(scenario: Scenario) -> Profile | None:
    """The profile that the scenario names; None without one."""
    name = scenario.rollout.step_time.profile
    return None if name is None else load_profile(name)


def make_step_law(
    scenario: Scenario, architecture: Architecture, device: Device, profile: Profile | None
) -> StepTimeModel | None:
    """The law of a step from its source, corrected; None where its profile is refused already."""
    rollout, given = scenario.rollout, scenario.rollout.step_time
    if given.source == "profile":
        if profile is None:
            return None
        _check_hardware(scenario, profile, architecture, device)
        law = profile.law
    elif given.source == "roofline":
        parallel = (rollout.tensor_parallel, rollout.pipeline_parallel, rollout.expert_parallel)
        law = roofline(architecture, device, *parallel, gpus_per_node=scenario.cluster.gpus_per_node)
    else:
        law = StepTimeModel.affine(
            given.base_seconds,
            given.per_sequence_seconds,
            given.per_kv_token_seconds,
            given.per_prefill_token_seconds,
            given.per_pair_seconds,
        )
    return law.calibrated(given.scale, host_seconds(given, architecture))


def host_seconds(given: StepTimeSource, architecture: Architecture) -> float:
    """What the framework adds to every engine step of this model."""
    return given.offset_seconds + given.offset_seconds_per_layer * architecture.layers


def _check_hardware(scenario: Scenario, profile: Profile, architecture: Architecture, device: Device) -> None:
    rollout = scenario.rollout
    differs = profile.mismatches(architecture.name, device.name, rollout.tensor_parallel, rollout.expert_parallel)
    if differs and not scenario.cluster.allow_other_hardware:
        allowed = f"a profile of this set-up, or cluster.allow_other_hardware: true ({'; '.join(differs)})"
        raise ParameterError("rollout.step_time.profile", profile.name, allowed)


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
        found = f"{blocks} KV blocks of {rollout.block_size} tokens"
        key = "rollout.kv_blocks" if rollout.kv_blocks else "rollout.gpu_memory_utilization"
        raise ParameterError(key, found, f"room for one sequence of {longest} tokens (max_model_len)")
    return EngineLimits(
        rollout.max_num_seqs,
        rollout.max_num_batched_tokens,
        longest,
        rollout.block_size,
        blocks,
        rollout.enable_prefix_caching,
        rollout.enable_chunked_prefill,
        rollout.scheduling_policy,
        make_discipline(scenario),
    )
