"""From a scenario to a plan: every name resolved, every check passed, nothing started.

The only place that knows cost models, workload and policies together. A fault is a ``ParameterError`` with the key
path of the scenario; the sections are built one by one, so that faults of several are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rlsim.core.engine import EngineLimits
from rlsim.core.errors import ParameterError, unknown
from rlsim.core.streams import stream_key
from rlsim.core.view import Shape
from rlsim.costs import catalogue
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.memory import kv_blocks, weight_bytes_per_gpu
from rlsim.costs.profile import Profile, load_profile
from rlsim.costs.roofline import roofline
from rlsim.costs.steplaw import StepLaw
from rlsim.costs.training import TrainingCost
from rlsim.costs.transfer import SwitchCost, SyncCost
from rlsim.policies import combinations
from rlsim.policies.batching.micro_batch_stream import Stream
from rlsim.policies.protocols import Policy
from rlsim.policies.registry import CHOICES, make_part
from rlsim.presets import load_preset
from rlsim.scenario.schema import Law, Scenario
from rlsim.workload.latency import LatencyLaw
from rlsim.workload.laws_by_name import latency_from_fields, law_from_fields
from rlsim.workload.lengths import LengthLaw
from rlsim.workload.workload import Drift, Turns, Workload

T = TypeVar("T")
TRAINER_STATE_BYTES_PER_PARAMETER = 16.0
"""bf16 weights and gradients, fp32 master weights and two Adam moments (ZeRO, arXiv 1910.02054)."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where one cost comes from."""

    what: str
    text: str
    estimate: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is made from."""

    scenario: Scenario
    architecture: Architecture
    device: Device
    law: StepLaw
    limits: EngineLimits
    training: TrainingCost
    sync: SyncCost
    switching: SwitchCost
    shape: Shape
    workload: Workload
    sources: tuple[Source, ...]
    colocated: bool

    def policy(self) -> Policy:
        """Freshly started parts, for one run."""
        return _policy(self.scenario, self.shape)

    def workload_of(self, replication: int) -> Workload:
        """The workload with the luck of a replication; the same under every policy."""
        return replace(self.workload, seed=replication_seed(self.scenario.seed, replication))


def replication_seed(seed: int, replication: int) -> int:
    """The seed of a replication's random streams."""
    return stream_key(seed, "replication", replication)[0] >> 1


class Faults:
    """Collects the faults of independent sections."""

    def __init__(self) -> None:
        self.errors: list[ParameterError] = []

    def catch(self, make: Callable[[], T]) -> T | None:
        """The value made, or None with its fault kept."""
        try:
            return make()
        except ParameterError as error:
            self.errors.append(error)
            return None


class PlanError(ParameterError):
    """All faults of a scenario that can only be seen when its names are resolved."""

    def __init__(self, errors: list[ParameterError]) -> None:
        super().__init__(errors[0].path, errors[0].found, errors[0].allowed)
        self.errors = errors


def plan(scenario: Scenario) -> Plan:
    """Resolve and check; ``PlanError`` with every fault found."""
    faults = Faults()
    architecture = faults.catch(lambda: catalogue.model(scenario.model))
    device = faults.catch(lambda: catalogue.device(scenario.cluster.device))
    workload = faults.catch(lambda: _workload(scenario))
    shape = _shape(scenario)
    policy = faults.catch(lambda: _policy(scenario, shape))
    if policy is not None:
        faults.catch(lambda: _check_placement(scenario, policy))
    profile = faults.catch(lambda: _profile(scenario))
    if architecture is None or device is None:
        raise PlanError(faults.errors)
    law = faults.catch(lambda: _step_law(scenario, architecture, device, profile))
    training = faults.catch(lambda: _training(scenario, architecture, device))
    switching = faults.catch(lambda: _switching(scenario, architecture))
    sync = faults.catch(lambda: _sync(scenario, architecture))
    limits = None
    if workload is not None:
        limits = faults.catch(lambda: _limits(scenario, architecture, device, workload))
    if faults.errors or not (law and training and switching and sync and limits and workload and policy):
        raise PlanError(faults.errors)
    return Plan(
        scenario,
        architecture,
        device,
        law,
        limits,
        training,
        sync,
        switching,
        shape,
        workload,
        _sources(law, training, sync, switching, policy),
        policy.placement.shared,
    )


def _shape(scenario: Scenario) -> Shape:
    rollout = scenario.rollout
    return Shape(
        scenario.workload.prompts_per_step,
        scenario.workload.group_size,
        rollout.gpus // rollout.gpus_per_replica,
        rollout.max_num_seqs * rollout.data_parallel,
    )


# -- policy -------------------------------------------------------------------------------------------


def _policy(scenario: Scenario, shape: Shape) -> Policy:
    section = scenario.policy
    specs: dict[str, dict[str, Any]] = {}
    if section.preset is not None:
        specs = load_preset(section.preset).filled(section.fields, "policy")
    elif section.fields:
        name = next(iter(section.fields))
        raise unknown(f"policy.{name}", name, ["preset", "parts"])
    for choice, spec in (section.parts or {}).items():
        if choice not in CHOICES:
            raise unknown(f"policy.parts.{choice}", choice, CHOICES)
        if not isinstance(spec, dict):
            raise ParameterError(f"policy.parts.{choice}", spec, "a mapping with use and the part's parameters")
        specs[choice] = spec
    for choice in CHOICES:
        if choice not in specs:
            raise ParameterError(f"policy.parts.{choice}", None, f"a part: {', '.join(CHOICES[choice])}")
    return Policy(**{choice: _started(choice, specs[choice], section, shape) for choice in CHOICES})


def _started(choice: str, spec: dict[str, Any], section: Any, shape: Shape) -> Any:
    try:
        return make_part(choice, spec, choice).start(shape)
    except ParameterError as error:
        raise _in_policy(error, choice, error.path.removeprefix(f"{choice}."), section) from error


def _in_policy(error: ParameterError, choice: str, field: str, section: Any) -> ParameterError:
    """The fault of a part's field at the key that the user writes: the preset's own parameter where it sets it."""
    key = f"parts.{choice}.{field}"
    if section.preset is not None and choice not in (section.parts or {}):
        key = load_preset(section.preset).key(choice, field)
    return ParameterError(f"policy.{key}", error.found, error.allowed)


def _check_placement(scenario: Scenario, policy: Policy) -> None:
    """Combinations of parts, and of parts and placement, that cannot work."""
    try:
        combinations.check(policy, _shape(scenario))
    except ParameterError as error:
        choice, _, field = error.path.partition(".")
        raise _in_policy(error, choice, field, scenario.policy) from error
    rollout, trainer, cluster = scenario.rollout.gpus, scenario.trainer.gpus, scenario.cluster.gpus
    if not policy.placement.shared and rollout + trainer > cluster:
        allowed = f"at most cluster.gpus - rollout.gpus = {cluster - rollout}: this policy gives each its own GPUs"
        raise ParameterError("trainer.gpus", trainer, allowed)
    updates = scenario.trainer.updates_per_step * scenario.trainer.epochs
    if isinstance(policy.batching, Stream) and updates > 1:
        allowed = "1, as the epochs: a step that streams micro-batches makes one optimizer update"
        raise ParameterError("trainer.updates_per_step", scenario.trainer.updates_per_step, allowed)
    if policy.placement.shared and rollout != trainer:
        raise ParameterError("trainer.gpus", trainer, f"rollout.gpus = {rollout}: this policy shares the GPUs")


# -- workload -----------------------------------------------------------------------------------------


def _workload(scenario: Scenario) -> Workload:
    given = scenario.workload
    turns = None
    if given.turns is not None:
        turns = Turns(
            _length(given.turns.count, "workload.turns.count"),
            _latency(given.turns.tool_latency_seconds, "workload.turns.tool_latency_seconds"),
            _length(given.turns.tool_output_tokens, "workload.turns.tool_output_tokens"),
        )
    reward = None
    if given.reward is not None:
        reward = _latency(given.reward.latency_seconds, "workload.reward.latency_seconds")
    drift = Drift(given.drift.growth_per_version, given.drift.max_factor) if given.drift.growth_per_version else None
    return Workload(
        0,
        given.group_size,
        given.dataset_prompts,
        _length(given.prompt_tokens, "workload.prompt_tokens"),
        _length(given.response_tokens, "workload.response_tokens"),
        given.intra_group_correlation,
        drift,
        turns,
        reward,
    )


def _length(law: Law, path: str) -> LengthLaw:
    return law_from_fields(law.law, law.fields, path)


def _latency(law: Law, path: str) -> LatencyLaw:
    return latency_from_fields(law.law, law.fields, path)


def longest_tokens(workload: Workload) -> int:
    """Most tokens that a trajectory can have, prompt, tools and all turns."""
    turns = workload.turns
    count = 1 if turns is None else turns.count.cap_tokens
    tools = 0 if turns is None else turns.tool_output_tokens.cap_tokens * (count - 1)
    return workload.prompt_length.cap_tokens + workload.response_length.cap_tokens * count + tools


# -- engine -------------------------------------------------------------------------------------------


def _profile(scenario: Scenario) -> Profile | None:
    name = scenario.rollout.step_time.profile
    return None if name is None else load_profile(name)


def _step_law(
    scenario: Scenario, architecture: Architecture, device: Device, profile: Profile | None
) -> StepLaw | None:
    rollout, given = scenario.rollout, scenario.rollout.step_time
    if given.source == "profile":
        if profile is None:
            return None
        _check_hardware(scenario, profile, architecture, device)
        law = profile.law
    elif given.source == "roofline":
        parallel = (rollout.tensor_parallel, rollout.pipeline_parallel, rollout.expert_parallel)
        law = roofline(architecture, device, *parallel)
    else:
        law = StepLaw.affine(
            given.base_seconds,
            given.per_sequence_seconds,
            given.per_kv_token_seconds,
            given.per_prefill_token_seconds,
            given.per_pair_seconds,
        )
    return law.calibrated(given.scale, given.offset_seconds)


def _check_hardware(scenario: Scenario, profile: Profile, architecture: Architecture, device: Device) -> None:
    rollout = scenario.rollout
    differs = profile.mismatches(architecture.name, device.name, rollout.tensor_parallel, rollout.expert_parallel)
    if differs and not scenario.cluster.allow_other_hardware:
        allowed = f"a profile of this set-up, or cluster.allow_other_hardware: true ({'; '.join(differs)})"
        raise ParameterError("rollout.step_time.profile", profile.name, allowed)


def _limits(scenario: Scenario, architecture: Architecture, device: Device, workload: Workload) -> EngineLimits:
    rollout = scenario.rollout
    longest = rollout.max_model_len or longest_tokens(workload)
    if workload.prompt_length.cap_tokens >= longest:
        raise ParameterError(
            "rollout.max_model_len", longest, f"more than the longest prompt ({workload.prompt_length.cap_tokens})"
        )
    blocks = rollout.kv_blocks or kv_blocks(
        architecture,
        device,
        rollout.tensor_parallel,
        rollout.pipeline_parallel,
        rollout.gpu_memory_utilization,
        rollout.block_size,
        expert_parallel=rollout.expert_parallel,
        max_num_seqs=rollout.max_num_seqs,
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
    )


# -- trainer and transfers ----------------------------------------------------------------------------


def _training(scenario: Scenario, architecture: Architecture, device: Device) -> TrainingCost:
    given = scenario.trainer
    return TrainingCost(
        architecture,
        device,
        given.gpus,
        given.mfu,
        given.logprob_mfu,
        given.tensor_parallel,
        given.pipeline_parallel,
        given.context_parallel,
        given.updates_per_step,
        given.epochs,
        given.packing,
        given.micro_batch_tokens,
        given.activation_recompute,
        given.balance,
        given.old_log_prob,
        given.reference,
        given.critic,
        given.optimizer_offload,
        given.fixed_seconds_per_step,
        given.seconds_per_update,
        given.seconds_per_micro_batch,
    )


def _sync(scenario: Scenario, architecture: Architecture) -> SyncCost:
    given = scenario.sync
    default = SyncCost.over("nccl", architecture.weight_bytes(), given.scope)
    if given.per_tensor_seconds and given.tensors is None:
        raise ParameterError("sync.tensors", None, "a whole number, at least 1, with per_tensor_seconds")
    if given.link_bytes_per_second is None:
        base = given.base_seconds or default.base_seconds
        return replace(
            default, base_seconds=base, tensors=given.tensors or 0, per_tensor_seconds=given.per_tensor_seconds
        )
    return SyncCost(
        architecture.weight_bytes(),
        given.link_bytes_per_second,
        given.base_seconds,
        given.tensors or 0,
        given.per_tensor_seconds,
        given.scope,
        "given in the scenario",
    )


def _switching(scenario: Scenario, architecture: Architecture) -> SwitchCost:
    rollout, given = scenario.rollout, scenario.switching
    weights = weight_bytes_per_gpu(
        architecture, rollout.tensor_parallel, rollout.pipeline_parallel, rollout.expert_parallel
    )
    state = architecture.parameters() * TRAINER_STATE_BYTES_PER_PARAMETER / scenario.trainer.gpus
    link = given.host_link_bytes_per_second if given else None
    cost = SwitchCost.from_bytes(weights, state, link) if link else SwitchCost.from_bytes(weights, state)
    if given is None or (given.sleep_seconds is None and given.wake_seconds is None):
        return cost
    sleep = cost.to_training_seconds() if given.sleep_seconds is None else given.sleep_seconds
    wake = cost.to_rollout_seconds() if given.wake_seconds is None else given.wake_seconds
    return SwitchCost(sleep, wake, source="given in the scenario")


def _sources(
    law: StepLaw, training: TrainingCost, sync: SyncCost, switching: SwitchCost, policy: Policy
) -> tuple[Source, ...]:
    sources = [
        Source("engine step", str(law.provenance), law.provenance.is_estimate),
        Source("training", f"FLOPs at {training.mfu:.0%} of the bf16 peak of {training.device.name}", True),
        Source("weight sync", sync.source, not sync.source.startswith("given")),
    ]
    if policy.placement.shared:
        sources.append(Source("role switch", switching.source, not switching.source.startswith("given")))
    return tuple(sources)
