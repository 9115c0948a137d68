"""What each pool of replicas did with its GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.build import PoolPlan
from rlsim.core.ticks import to_seconds
from rlsim.results.tables import Digest
from rlsim.results.utilisation import Measured, Shares, pool_ticks, share_of_gpus


@dataclass(frozen=True, slots=True)
class PoolMetrics:
    """One pool over the measured window."""

    gpus: float
    """As they count for the pool: by SM shares where engines share GPUs."""
    price_usd_per_gpu_hour: float
    usd_per_step: float
    prefill_tokens_per_second_per_gpu: float
    """Prompt tokens computed in engine steps that ended in the window."""
    decode_tokens_per_second_per_gpu: float
    """Tokens of decodes in these steps; the first token of a call is made by its prefill."""
    utilisation: Shares
    """Of the pool's time, by use."""


def pool_metrics(read: Digest, window: Measured) -> dict[str, PoolMetrics]:
    """By name; empty without ``rollout.pools``."""
    pools = read.run.plan.pools if read.run.plan.scenario.rollout.pools else ()
    return {pool.place.name: _of(read, pool, window) for pool in pools}


def _of(read: Digest, pool: PoolPlan, window: Measured) -> PoolMetrics:
    seconds = to_seconds(window.end - window.start)
    gpus = pool.rollout.gpus * share_of_gpus(read.run.plan, pool)
    prefill, decode = _tokens(read, pool, window)
    ticks = pool_ticks(read, pool, window)
    whole = sum(ticks.values())
    return PoolMetrics(
        gpus,
        pool.price_usd_per_gpu_hour,
        gpus * seconds / 3600 / window.steps * pool.price_usd_per_gpu_hour,
        prefill / (gpus * seconds),
        decode / (gpus * seconds),
        {name: part / whole for name, part in ticks.items()},
    )


def _tokens(read: Digest, pool: PoolPlan, window: Measured) -> tuple[int, int]:
    """Prompt tokens and tokens of decodes in steps that ended in the window."""
    rows, replicas = read.activity, pool.place.replicas
    here = (rows.who >= replicas.start) & (rows.who < replicas.stop)
    ended = here & (rows.end > window.start) & (rows.end <= window.end)
    steps, decodes, prefill, _ = rows.counts[ended].T
    return int(prefill.sum()), int((steps * decodes).sum())
