"""Pools: groups of replicas that differ in device, split or limits, and engines that share GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from rlsim.core.errors import ParameterError, unknown
from rlsim.core.section import Count, Fraction, Name, Seconds, Section
from rlsim.scenario.step_time import StepTimeSource

if TYPE_CHECKING:
    from rlsim.scenario.schema import Rollout

ONE_COPY = ("gpus", "tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel")
"""Fields in which engines on the same GPUs agree, as they use one copy of the weights."""


class PoolConfig(Section):
    """Some of the replicas; a field that is left out is as in the rollout section."""

    name: Name = Field(description="By which a policy knows the pool")
    gpus: Count = Field(description="GPUs of the pool")
    device: Name | None = Field(default=None, description="GPU, by its catalogue name; None: cluster.device")
    price_usd_per_gpu_hour: Seconds | None = Field(
        default=None, description="USD; None: the cluster's for its device, else the catalogue's"
    )
    tensor_parallel: Count | None = Field(default=None, description="Ranks that split each layer")
    pipeline_parallel: Count | None = Field(default=None, description="Stages that split the layers")
    expert_parallel: Count | None = Field(default=None, description="Ranks that split the experts")
    data_parallel: Count | None = Field(default=None, description="Ranks in lockstep inside one replica")
    max_num_seqs: Count | None = Field(default=None, description="Sequences in a step")
    max_num_batched_tokens: Count | None = Field(default=None, description="Tokens in a step")
    kv_blocks: Count | None = Field(default=None, description="KV blocks of a replica")
    gpu_memory_utilization: Fraction | None = Field(default=None, description="Share of the GPU memory for the engine")
    enable_prefix_caching: bool | None = Field(default=None, description="Reuse KV blocks of equal prefixes")
    enable_chunked_prefill: bool | None = Field(default=None, description="Split long prompts over steps")
    kv_link_bytes_per_second: Seconds | None = Field(default=None, gt=0, description="Of one GPU, for KV that moves")
    step_time: StepTimeSource | None = Field(default=None, description="Cost of an engine step")
    shares_gpus_with: Name | None = Field(
        default=None, description="Pool on whose GPUs these replicas run too, replica by replica"
    )
    sm_share: Fraction | None = Field(default=None, description="Share of the SMs of each GPU, on shared GPUs")
    bandwidth_saturation: Fraction | None = Field(
        default=None, description="Share of the SMs that reads at the full memory rate, on shared GPUs; None: all"
    )
    kv_share: Fraction | None = Field(
        default=None, description="Share of the KV blocks, on shared GPUs; None: as sm_share"
    )

    def overrides(self) -> dict[str, Any]:
        """Fields of the rollout section that this pool sets."""
        return {name: getattr(self, name) for name in OVERRIDES if getattr(self, name) is not None}


_OWN = ("name", "device", "price_usd_per_gpu_hour")
_SHARING = ("sm_share", "bandwidth_saturation", "kv_share")
OVERRIDES = tuple(name for name in PoolConfig.model_fields if name not in (*_OWN, *_SHARING, "shares_gpus_with"))
"""Fields of a pool that stand for those of the rollout section."""


def pool_errors(rollout: Rollout) -> Iterator[ParameterError]:
    """Pools that are none, that do not add up to the rollout GPUs, or that cannot share GPUs as they say."""
    yield from _name_errors(rollout.pools)
    for number, section in enumerate(rollout.sections()):
        for error in section.engine_errors():
            yield ParameterError(pool_key(rollout, number, error.path), error.found, error.allowed)
    own = sum(pool.gpus for pool in rollout.pools if pool.shares_gpus_with is None)
    if own != rollout.gpus:
        yield ParameterError("gpus", rollout.gpus, f"{own}: the sum over rollout.pools, shared GPUs counted once")
    for number, pool in enumerate(rollout.pools):
        where = f"pools[{number}]"
        if pool.shares_gpus_with is None:
            owners = {other.shares_gpus_with for other in rollout.pools} - {None}
            shared = pool.name in owners
            is_owner_meant = bool(owners - {other.name for other in rollout.pools})
            yield from () if shared or is_owner_meant else _stray_shares(where, pool)
        else:
            yield from _owner_errors(rollout, number, pool)
            shared = True
        if shared and pool.sm_share is None:
            yield ParameterError(f"{where}.sm_share", None, "a share, above 0 and at most 1, on shared GPUs")
        if pool.kv_share is not None and pool.kv_blocks is not None:
            yield ParameterError(f"{where}.kv_share", pool.kv_share, "nothing, as kv_blocks says how many")
    for owner in rollout.pools:
        yield from _sums_of_shares(rollout, owner)


def pool_key(rollout: Rollout, number: int, field: str) -> str:
    """Where a fault of a pool's field is to be mended, inside the rollout section: where the field was set."""
    top = field.partition(".")[0]
    is_own = getattr(rollout.pools[number], top, None) is not None
    is_neither = top in OVERRIDES and top not in rollout.model_fields_set
    return f"pools[{number}].{field}" if is_own or is_neither else field


def _name_errors(pools: tuple[PoolConfig, ...]) -> Iterator[ParameterError]:
    names = [pool.name for pool in pools]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield ParameterError(f"pools[{number}].name", name, f"a name of its own: pools[{names.index(name)}] has it")


def _stray_shares(where: str, pool: PoolConfig) -> Iterator[ParameterError]:
    for name in _SHARING:
        if getattr(pool, name) is not None:
            yield ParameterError(f"{where}.{name}", getattr(pool, name), "nothing, as no pool shares these GPUs")


def _owner_errors(rollout: Rollout, number: int, pool: PoolConfig) -> Iterator[ParameterError]:
    """The owner of the GPUs exists, has them for itself, and is split in the same way."""
    where, name = f"pools[{number}].shares_gpus_with", str(pool.shares_gpus_with)
    owners = {other.name: place for place, other in enumerate(rollout.pools) if other.shares_gpus_with is None}
    if name not in owners:
        yield unknown(where, name, owners) if owners else ParameterError(where, name, "nothing: no pool has GPUs")
        return
    owner, sections = rollout.pools[owners[name]], rollout.sections()
    if pool.device is not None and pool.device != owner.device:
        yield ParameterError(
            f"pools[{number}].device", pool.device, f"{owner.device or 'nothing'}, as {name}: they are its GPUs"
        )
    if pool.price_usd_per_gpu_hour is not None:
        key = f"pools[{number}].price_usd_per_gpu_hour"
        yield ParameterError(key, pool.price_usd_per_gpu_hour, f"nothing, as {name} has the GPUs and their price")
    for field in ONE_COPY:
        own, expected = getattr(sections[number], field), getattr(sections[owners[name]], field)
        if own != expected:
            allowed = f"{expected}, as {name}: one copy of the weights serves both"
            yield ParameterError(f"pools[{number}].{field}", own, allowed)


def _sums_of_shares(rollout: Rollout, owner: PoolConfig) -> Iterator[ParameterError]:
    """No more SMs and KV blocks than the GPUs have."""
    members = [
        (number, pool)
        for number, pool in enumerate(rollout.pools)
        if pool.shares_gpus_with == owner.name or (pool is owner and owner.shares_gpus_with is None)
    ]
    share_of_field = {"sm_share": _sm_share}
    if any(pool.kv_share is not None for _, pool in members):
        share_of_field["kv_share"] = _kv_share
    for field, share_of in share_of_field.items():
        shares = [share_of(pool) for _, pool in members]
        left = 1 - sum(shares[:-1])
        if shares and sum(shares) > 1 + 1e-9:
            allowed = f"at most {max(0.0, left):g}: what the other pools on these GPUs leave"
            yield ParameterError(f"pools[{members[-1][0]}].{field}", shares[-1], allowed)


def _sm_share(pool: PoolConfig) -> float:
    return pool.sm_share or 0.0


def _kv_share(pool: PoolConfig) -> float:
    if pool.kv_blocks is not None:
        return 0.0
    return (pool.sm_share or 0.0) if pool.kv_share is None else pool.kv_share
