"""Rollout, trainer, sync and switching sections: engines by pool, step models, KV blocks, and what each step costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial

from rlsim.core.errors import Faults, ParameterError
from rlsim.core.ticks import TICKS_PER_SECOND, to_ticks
from rlsim.core.view import Pool
from rlsim.costs import catalogue
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.memory import kv_blocks, weight_bytes_per_gpu
from rlsim.costs.profile import Profile, load_profile
from rlsim.costs.roofline import Partition, roofline
from rlsim.costs.step_model import StepTimeModel
from rlsim.costs.training import TrainingCost, profile_speeds
from rlsim.costs.transfer import SwitchCost, SyncCost, staged_bytes_per_second
from rlsim.engine.discipline import AgeingQueue, Conservative, Discipline, PastFuture, StepTarget
from rlsim.engine.requests import EngineLimits
from rlsim.scenario.discipline import HISTORY_CALLS
from rlsim.scenario.pools import PoolConfig, pool_key
from rlsim.scenario.schema import Rollout, Scenario
from rlsim.scenario.step_time import StepTimeSource
from rlsim.workload.workload import Workload

TRAINER_STATE_BYTES_PER_PARAMETER = 16.0
"""bf16 weights and gradients, fp32 master weights and two Adam moments (ZeRO, arXiv 1910.02054)."""


# -- pools ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResolvedPool:
    """Equal replicas, with every name resolved; without ``rollout.pools`` all of them are one nameless pool."""

    place: Pool
    """Name, numbers and slots, as policies see them."""
    rollout: Rollout
    """The rollout section as it holds for this pool."""
    device: Device
    law: StepTimeModel
    limits: EngineLimits
    price_usd_per_gpu_hour: float
    price_source: str
    sm_share: float | None = None
    """Of the SMs of every GPU; None for all of them."""

    @property
    def own_gpus(self) -> int:
        """GPUs that count for this pool: shared ones count for the pool that has them."""
        return 0 if self.place.shares_gpus_with else self.rollout.gpus


@dataclass(frozen=True, slots=True)
class PoolLocation:
    """A pool before its costs are known: the scenario as if all replicas were like its own."""

    number: int
    config: PoolConfig | None
    """What the scenario says of the pool; None without pools."""
    whole: Scenario
    scenario: Scenario
    place: Pool
    device: Device | None
    profile: Profile | None

    @contextmanager
    def keys(self) -> Iterator[None]:
        """Faults of a rollout field at the place where the pool, or else the section, sets it."""
        try:
            yield
        except ParameterError as error:
            section, _, field = error.path.partition(".")
            if section != "rollout" or self.config is None:
                raise
            key = pool_key(self.whole.rollout, self.number, field)
            raise ParameterError(f"rollout.{key}", error.found, error.allowed) from error


def pool_places(rollout: Rollout) -> tuple[Pool, ...]:
    """The pools one after another over the replicas; one nameless pool where replicas are alike."""
    places: list[Pool] = []
    names = [(pool.name, pool.shares_gpus_with or "") for pool in rollout.pools] or [("", "")]
    for (name, shares), section in zip(names, rollout.sections(), strict=True):
        first = places[-1].replicas.stop if places else 0
        count = section.gpus // section.gpus_per_replica
        places.append(Pool(name, first, count, section.max_num_seqs * section.data_parallel, shares))
    return tuple(places)


def make_sites(scenario: Scenario, device: Device | None, faults: Faults) -> list[PoolLocation]:
    """The pools with their devices and measured profiles; ``device`` is the cluster's."""
    rollout, sites = scenario.rollout, []
    devices: dict[str, Device | None] = {}
    for number, (place, section) in enumerate(zip(pool_places(rollout), rollout.sections(), strict=True)):
        config = rollout.pools[number] if rollout.pools else None
        own_device = device
        if config is not None and config.device is not None:
            key = f"rollout.pools[{number}].device"
            own_device = faults.catch(partial(catalogue.device, config.device, key))
        devices[place.name] = own_device
        alone = scenario.model_copy(update={"rollout": section})
        site = PoolLocation(number, config, scenario, alone, place, own_device, None)
        sites.append(replace(site, profile=faults.catch(partial(_profile, site))))
    return [replace(site, device=devices[site.place.shares_gpus_with or site.place.name]) for site in sites]


def _profile(site: PoolLocation) -> Profile | None:
    with site.keys():
        return make_profile(site.scenario)


def make_pools(
    sites: list[PoolLocation], architecture: Architecture, workload: Workload | None, faults: Faults
) -> tuple[ResolvedPool, ...]:
    """Each pool with its costs; one with a fault is left out."""
    pools, by_name = [], {site.place.name: site for site in sites}
    for site in sites:
        if site.device is None:
            continue
        law = faults.catch(partial(_law, site, site.device, architecture))
        limits = None
        if workload is not None:
            limits = faults.catch(partial(_limits, site, site.device, architecture, workload))
        if law is not None and limits is not None:
            share = None if site.config is None else site.config.sm_share
            usd = _price(by_name[site.place.shares_gpus_with or site.place.name], site.device)
            pools.append(ResolvedPool(site.place, site.scenario.rollout, site.device, law, limits, *usd, share))
    return tuple(pools)


def _law(site: PoolLocation, device: Device, architecture: Architecture) -> StepTimeModel | None:
    with site.keys():
        law = make_step_model(site.scenario, architecture, device, site.profile)
    if law is None or site.config is None or site.config.sm_share is None:
        return law
    rollout = site.scenario.rollout
    share = partition_of(site.config)
    config = rollout.step_time
    if config.source == "coefficients":
        base, sequence, kv = config.base_seconds, config.per_sequence_seconds, config.per_kv_token_seconds
        part = share.affine(base, sequence, kv, config.per_prefill_token_seconds, config.per_pair_seconds)
        return part.calibrated(config.scale, host_seconds(config, architecture))
    parallel = (rollout.tensor_parallel, rollout.pipeline_parallel, rollout.expert_parallel)
    part = roofline(architecture, share.device(device), *parallel)
    if config.source == "profile":
        return share.measured(law, roofline(architecture, device, *parallel), part)
    return replace(part, provenance=share.provenance(law)).calibrated(config.scale, host_seconds(config, architecture))


def partition_of(pool: PoolConfig) -> Partition:
    """The share of the SMs that a pool on shared GPUs has."""
    return Partition(pool.sm_share or 1.0, pool.bandwidth_saturation or 1.0)


def _limits(site: PoolLocation, device: Device, architecture: Architecture, workload: Workload) -> EngineLimits:
    with site.keys():
        limits = make_limits(site.scenario, architecture, device, workload)
    if site.config is None or site.config.sm_share is None or site.config.kv_blocks is not None:
        return limits
    share = site.config.sm_share if site.config.kv_share is None else site.config.kv_share
    blocks = int(limits.kv_blocks * share)
    if blocks * limits.block_size < limits.max_model_len:
        room = f"room for one sequence of {limits.max_model_len} tokens (max_model_len)"
        capacity = f"{blocks} KV blocks of {limits.block_size} tokens"
        raise ParameterError(f"rollout.pools[{site.number}].kv_share", capacity, room)
    return replace(limits, kv_blocks=blocks)


def _price(site: PoolLocation, device: Device) -> tuple[float, str]:
    """USD of a GPU-hour of the pool's device, and who says so."""
    pool, cluster = site.config, site.whole.cluster
    if pool is not None and pool.price_usd_per_gpu_hour is not None:
        return pool.price_usd_per_gpu_hour, "given in the scenario"
    same = pool is None or pool.device is None or pool.device == cluster.device
    if same and cluster.price_usd_per_gpu_hour is not None:
        return cluster.price_usd_per_gpu_hour, "given in the scenario"
    return device.price_usd_per_gpu_hour, device.price_source


# -- engines ----------------------------------------------------------------------------------------------


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
    longest = rollout.max_model_len or workload.longest_tokens
    prompt = workload.longest_drawn_prompt_tokens()
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


# -- trainer, sync, switching -----------------------------------------------------------------------------


def make_trainer_profile(scenario: Scenario) -> Profile | None:
    """The profile that the trainer names; None without one."""
    name = scenario.trainer.profile
    return None if name is None else load_profile(name, "trainer.profile")


def make_training(scenario: Scenario, architecture: Architecture, device: Device) -> TrainingCost:
    """The cost model of a training step, at the speeds of the file or of the profile that it names."""
    config, profile = scenario.trainer, make_trainer_profile(scenario)
    if profile is not None:
        speeds = profile_speeds(profile, architecture, device, scenario.cluster.allow_other_hardware)
        config = config.replace(profile=None, **asdict(speeds))
    return TrainingCost(config, architecture, device)


def make_sync(scenario: Scenario, architecture: Architecture, device: Device) -> SyncCost:
    """The cost of a publication."""
    section = scenario.sync
    if section.per_tensor_seconds and section.tensors is None:
        raise ParameterError("sync.tensors", None, "a whole number, at least 1, with per_tensor_seconds")
    payload, rate = architecture.weight_bytes() * section.payload_share, section.link_bytes_per_second
    if section.stage_bytes_per_second is not None:
        stages, received = scenario.trainer.pipeline_parallel, device.inter_node_bytes_per_second
        rate = staged_bytes_per_second(section.stage_bytes_per_second, stages, received)
    restore_seconds = 0.0
    if scenario.trainer.weights_offload:
        # Each training GPU brings its share of the offloaded weights back.
        restore_rate = section.restore_bytes_per_second or device.host_link_bytes_per_second
        restore_seconds = payload / scenario.trainer.gpus / restore_rate
    default = SyncCost.over("nccl", payload, section.scope)
    cost = default if rate is None else SyncCost(payload, rate, section.base_seconds, source="given in the scenario")
    return replace(
        cost,
        base_seconds=section.base_seconds or cost.base_seconds,
        tensors=section.tensors or 0,
        per_tensor_seconds=section.per_tensor_seconds,
        restore_seconds=restore_seconds,
        scope=section.scope,
    )


def make_switching(scenario: Scenario, architecture: Architecture) -> SwitchCost:
    """The cost of a change of role on shared GPUs."""
    section = scenario.switching
    weights = max(
        weight_bytes_per_gpu(architecture, pool.tensor_parallel, pool.pipeline_parallel, pool.expert_parallel)
        for pool in scenario.rollout.sections()
    )
    state = architecture.parameters() * TRAINER_STATE_BYTES_PER_PARAMETER / scenario.trainer.gpus
    link = section.host_link_bytes_per_second if section else None
    cost = SwitchCost.from_bytes(weights, state, link) if link else SwitchCost.from_bytes(weights, state)
    if section is None or (section.sleep_seconds is None and section.wake_seconds is None):
        return cost
    sleep = cost.to_training_seconds() if section.sleep_seconds is None else section.sleep_seconds
    wake = cost.to_rollout_seconds() if section.wake_seconds is None else section.wake_seconds
    return SwitchCost(sleep, wake, source="given in the scenario")
