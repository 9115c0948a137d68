"""The pools of the rollout section: each with its device, step law, limits and place among the replicas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from rlsim.core.errors import ParameterError
from rlsim.core.view import Pool
from rlsim.costs import catalogue
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.profile import Profile
from rlsim.costs.roofline import Partition, roofline
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.requests import EngineLimits
from rlsim.resolve.engine import host_seconds, make_limits, make_profile, make_step_model
from rlsim.resolve.faults import Faults
from rlsim.scenario.pools import PoolConfig as PoolSection
from rlsim.scenario.pools import pool_key
from rlsim.scenario.schema import Rollout, Scenario
from rlsim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class ResolvedPool:
    """Equal replicas, with every name resolved; without ``rollout.pools`` all of them are one nameless pool."""

    place: Pool
    """Name, numbers and seats, as policies see them."""
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
    config: PoolSection | None
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
    return _on_share(site.scenario.rollout, law, architecture, device, partition_of(site.config))


def partition_of(pool: PoolSection) -> Partition:
    """The share of the SMs that a pool on shared GPUs has."""
    return Partition(pool.sm_share or 1.0, pool.bandwidth_saturation or 1.0)


def _on_share(
    rollout: Rollout, law: StepTimeModel, architecture: Architecture, device: Device, share: Partition
) -> StepTimeModel:
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
