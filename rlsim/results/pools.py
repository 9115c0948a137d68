"""What each pool of replicas did with its GPUs."""

from __future__ import annotations

from rlsim.build import PoolPlan
from rlsim.core.ticks import to_seconds
from rlsim.results.tables import Digest
from rlsim.results.utilisation import Measured, pool_ticks, share_of_gpus


def pool_metrics(read: Digest, window: Measured) -> dict[str, dict[str, float]]:
    """Numbers by pool over the measured window; empty without ``rollout.pools``.

    ``gpus``: GPUs as they count for the pool, by SM shares where engines share them. ``prefill`` and ``decode``: shares
    of its time. ``prefill_tokens_per_second_per_gpu`` and ``decode_tokens_per_second_per_gpu``: prompt tokens
    computed and tokens of decodes in engine steps that ended in the window, over it and over the pool's GPUs.
    """
    pools = read.run.plan.pools if read.run.plan.scenario.rollout.pools else ()
    return {pool.place.name: _of(read, pool, window) for pool in pools}


def _of(read: Digest, pool: PoolPlan, window: Measured) -> dict[str, float]:
    ticks = pool_ticks(read, pool, window)
    whole = pool.place.count * (window.end - window.start)
    gpus = pool.rollout.gpus * share_of_gpus(read.run.plan, pool)
    gpu_seconds = gpus * to_seconds(window.end - window.start)
    prefill, decode = _tokens(read, pool, window)
    return {
        "gpus": gpus,
        "price_usd_per_gpu_hour": pool.price_usd_per_gpu_hour,
        "usd_per_step": gpu_seconds / 3600 / window.steps * pool.price_usd_per_gpu_hour,
        "prefill": ticks["prefill"] / whole,
        "decode": ticks["decode"] / whole,
        "prefill_tokens_per_second_per_gpu": prefill / gpu_seconds,
        "decode_tokens_per_second_per_gpu": decode / gpu_seconds,
    }


def _tokens(read: Digest, pool: PoolPlan, window: Measured) -> tuple[int, int]:
    """Prompt tokens and tokens of decodes in steps that ended in the window."""
    rows, replicas = read.activity, pool.place.replicas
    here = (rows.who >= replicas.start) & (rows.who < replicas.stop)
    ended = here & (rows.end > window.start) & (rows.end <= window.end)
    steps, decodes, prefill, _ = rows.counts[ended].T
    return int(prefill.sum()), int((steps * decodes).sum())
