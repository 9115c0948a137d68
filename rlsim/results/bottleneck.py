"""One sentence on what holds a run back, with the evidence."""

from __future__ import annotations

from rlsim.resolve import ResolvedScenario
from rlsim.results.columns import PHASES
from rlsim.results.metrics import Metrics
from rlsim.results.utilisation import Shares

SATURATED = 0.9
"""A side that works this share of its time sets the pace."""
LONG_TAIL = 0.3
"""Share of the generation time spent on the last samples from which the tail, not the bulk, is to blame."""
MANY_PREEMPTIONS = 0.1
"""Preemptions per trained sample from which the KV cache is too small."""


def verdict(metrics: Metrics, plan: ResolvedScenario) -> str:
    """The bottleneck and its evidence. A rule of thumb over the shares of GPU time, not a proof.

    GPUs of their own: the side that works 90 % of its time sets the pace; otherwise the largest loss does.
    Shared GPUs: the largest use of the time does.
    """
    if plan.colocated:
        shares = metrics.utilisation.all
        works, trains = _engine(shares), _training(shares)
        uses = _losses(shares) | {"generation": works, "trainer": trains, "overhead": shares["overhead"]}
        return _largest(metrics, uses, f"the GPUs generate {works:.0%} and train {trains:.0%} of the time")
    rollout, trainer = metrics.utilisation.rollout, metrics.utilisation.trainer
    works, trains = _engine(rollout), _training(trainer)
    if trains >= SATURATED and trains >= works:
        cause = max((name for name in rollout if name.startswith("idle:")), key=lambda name: rollout[name])
        label = {"idle:trainer": "the barrier", "idle:tail": "the tail"}.get(cause, cause.removeprefix("idle:"))
        held = f", held by {label}" if rollout[cause] else ""
        return (
            f"Trainer-bound: the trainer works {trains:.0%} of the time while replicas idle {_idle(rollout):.0%}{held}."
        )
    if works >= SATURATED:
        return _generation(
            metrics, f"replicas work {works:.0%} of the time while the trainer idles {_idle(trainer):.0%}"
        )
    # A trainer that waits is held by generation only while replicas generate; else by what holds them.
    awaited = min(trainer["idle:data"] + trainer["idle:tail"], works)
    losses = _losses(rollout) | {"generation": awaited, "serial": rollout["idle:trainer"]}
    losses["sync"] = max(losses["sync"], trainer["sync"])
    losses["overhead"] = trainer["overhead"]
    return _largest(metrics, losses, f"replicas work {works:.0%} and the trainer {trains:.0%} of the time")


def _losses(shares: Shares) -> Shares:
    """Shares of the time that do no work, by what would have to change."""
    return {
        "tail": shares["idle:tail"],
        "tool": shares["idle:tools"],
        "reward": shares["idle:reward"],
        "staleness": shares["idle:staleness"],
        "concurrency": shares["idle:concurrency"],
        "sync": shares["sync"] + shares["idle:quiesce"],
        "switch": shares["switch"],
    }


def _largest(metrics: Metrics, shares: Shares, evidence: str) -> str:
    name = max(shares, key=lambda key: shares[key])
    share = shares[name]
    texts = {
        "tail": f"Tail-bound: {share:.0%} of the rollout GPU time is spent waiting for the last samples",
        "tool": f"Tool-bound: {share:.0%} of the rollout GPU time is spent waiting for tool calls",
        "reward": f"Reward-bound: {share:.0%} of the rollout GPU time is spent waiting for rewards",
        "staleness": f"Staleness-bound: the bound on staleness holds replicas idle {share:.0%} of the time",
        "concurrency": f"Concurrency-bound: the limit on samples in flight holds replicas idle {share:.0%} of the time",
        "sync": f"Sync-bound: publishing weights takes {share:.0%} of the time",
        "switch": f"Switch-bound: the GPUs spend {share:.0%} of the time changing roles",
        "serial": f"Serial: replicas wait for the trainer {share:.0%} of the time, and it waits for them",
        "trainer": f"Trainer-bound: training takes {share:.0%} of the time",
        "overhead": f"Overhead-bound: the fixed time of a step takes {share:.0%}",
    }
    return _generation(metrics, evidence) if name == "generation" else f"{texts[name]}; {evidence}."


def _generation(metrics: Metrics, evidence: str) -> str:
    """Generation sets the pace: for want of KV blocks, because of the tail, or as such."""
    samples = metrics.samples_per_second * metrics.step_seconds
    preemptions = metrics.preemptions_per_step
    if preemptions > MANY_PREEMPTIONS * samples:
        return f"KV-bound: {preemptions:.0f} preemptions a step of {samples:.0f} samples; {evidence}."
    if metrics.tail_share > LONG_TAIL:
        return (
            f"Tail-bound: {metrics.tail_share:.0%} of a step's generation time passes after 90% of its samples "
            f"have ended; {evidence}."
        )
    return f"Generation-bound: {evidence}."


def _engine(shares: Shares) -> float:
    return shares["decode"] + shares["prefill"]


def _training(shares: Shares) -> float:
    return sum(shares[name] for name in PHASES if name != "overhead")


def _idle(shares: Shares) -> float:
    return sum(share for name, share in shares.items() if name.startswith("idle:"))
