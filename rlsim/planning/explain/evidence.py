"""What speaks for the bottleneck: shares of time, KV, the tail, weight sync, and what staleness wastes."""

from __future__ import annotations

from collections.abc import Iterator

from rlsim.build import Plan
from rlsim.results.metrics import Metrics
from rlsim.results.utilisation import Shares

SHOWN = 0.01
"""Share of the time from which a use is named."""


def evidence(metrics: Metrics, plan: Plan) -> Iterator[tuple[str, str]]:
    """Kinds of evidence and what they say."""
    if plan.colocated:
        yield "GPU time", _shares(metrics.utilisation.all)
    else:
        yield "rollout GPUs", _shares(metrics.utilisation.rollout)
        yield "trainer GPUs", _shares(metrics.utilisation.trainer)
    preempted = f"{metrics.preemptions_per_step:,.0f} preemptions a step"
    yield "KV cache", f"peak {metrics.kv_peak_share:.0%} of the blocks (an upper estimate), {preempted}"
    yield "tail", f"{metrics.tail_share:.0%} of a step's generation passes after 90% of its samples have ended"
    yield (
        "weight sync",
        f"{metrics.sync_seconds_per_step / metrics.step_seconds:.1%} of a step of {metrics.step_seconds:.4g} s",
    )
    yield "staleness", _staleness(metrics)


def _shares(shares: Shares) -> str:
    """Uses from the largest down."""
    ordered = sorted(((share, name) for name, share in shares.items() if share >= SHOWN), reverse=True)
    return ", ".join(f"{name} {share:.0%}" for share, name in ordered)


def _staleness(metrics: Metrics) -> str:
    wasted = metrics.ledger_tokens["dropped_stale"] / max(1, metrics.generated_tokens)
    lag = f"{metrics.start_lag_mean:.2g} versions before they were trained on (at most {metrics.start_lag_max:g})"
    return f"samples began {lag}; {wasted:.1%} of the generated tokens dropped as stale"
