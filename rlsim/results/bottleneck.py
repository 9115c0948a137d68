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
STARVED = 0.3
"""Share of the time that a trainer waits from which what it waits for sets the pace."""
LONG_KV_WAIT = 0.25
"""Share of the engines' steps in which requests wait for KV blocks from which the KV cache is too small."""


def verdict(metrics: Metrics, plan: ResolvedScenario) -> str:
    """The bottleneck and its evidence. A rule of thumb over the shares of GPU time, not a proof.

    GPUs of their own: the side that works 90 % of its time sets the pace; otherwise the largest loss does.
    Shared GPUs: the largest use of the time does.
    """
    if plan.colocated:
        shares = metrics.utilisation.all
        works, trains = _engine(shares), _training(shares)
        uses = _losses(shares) | {"generation": works, "trainer": trains, "overhead": shares["overhead"]}
        _part_tools(uses, metrics)
        return _largest(metrics, uses, f"the GPUs generate {works:.0%} and train {trains:.0%} of the time")
    rollout, trainer = metrics.utilisation.rollout, metrics.utilisation.trainer
    works, trains = _engine(rollout), _training(trainer)
    busy = {"trainer": trains, "overhead": trainer["overhead"], "sync": trainer["sync"]}
    if sum(busy.values()) >= SATURATED and sum(busy.values()) >= works:
        return _saturated(busy, rollout)
    starved = _idle(trainer)
    if starved >= STARVED and metrics.reward_busy_share >= SATURATED:
        return (
            f"Reward-bound: those who score are busy {metrics.reward_busy_share:.0%} of the time, and the trainer "
            f"waits {starved:.0%} of it."
        )
    if starved >= STARVED and metrics.environment_busy_share >= SATURATED:
        return (
            f"Tool-bound: environments are busy {metrics.environment_busy_share:.0%} of the time, and the trainer "
            f"waits {starved:.0%} of it."
        )
    if works >= SATURATED:
        return _generation(
            metrics, f"replicas work {works:.0%} of the time while the trainer idles {_idle(trainer):.0%}"
        )
    # A trainer that waits is held by generation only while replicas generate; else by what holds them.
    awaited = min(trainer["idle:data"] + trainer["idle:tail"], works)
    losses = _losses(rollout) | {"trainer": rollout["idle:trainer"]}
    if any(metrics.utilisation.waiting.values()):
        losses = dict(metrics.utilisation.waiting)
    losses["generation"] = awaited
    _part_tools(losses, metrics)
    return _largest(metrics, losses, f"replicas work {works:.0%} and the trainer {trains:.0%} of the time")


def _part_tools(losses: Shares, metrics: Metrics) -> None:
    """Charge to the tools the part of generation in which samples are in tool calls: fewer run meanwhile."""
    in_tools = losses["generation"] * metrics.tool_share
    losses["generation"] -= in_tools
    losses["tool"] = losses.get("tool", 0.0) + in_tools


def _saturated(busy: Shares, rollout: Shares) -> str:
    """A trainer that hardly waits: what it spends most of its time on sets the pace."""
    name = max(busy, key=lambda key: busy[key])
    idle = f"while replicas idle {_idle(rollout):.0%}"
    return {
        "trainer": f"Trainer-bound: the trainer works {busy[name]:.0%} of the time {idle}.",
        "overhead": f"Overhead-bound: the fixed time of a step takes {busy[name]:.0%} of the trainer's time {idle}.",
        "sync": f"Sync-bound: publishing weights takes {busy[name]:.0%} of the trainer's time.",
    }[name]


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
        "tool": f"Tool-bound: tool calls hold the rollout {share:.0%} of the time",
        "reward": f"Reward-bound: {share:.0%} of the rollout GPU time is spent waiting for rewards",
        "staleness": f"Staleness-bound: the bound on staleness holds replicas idle {share:.0%} of the time",
        "concurrency": f"Concurrency-bound: the limit on samples in flight holds replicas idle {share:.0%} of the time",
        "sync": f"Sync-bound: publishing weights takes {share:.0%} of the time",
        "switch": f"Switch-bound: the GPUs spend {share:.0%} of the time changing roles",
        "trainer": f"Trainer-bound: training takes {share:.0%} of the time, in which the rollout waits",
        "overhead": f"Overhead-bound: the fixed time of a step takes {share:.0%}",
    }
    if name == "generation":
        return _generation(metrics, evidence)
    return f"{texts.get(name, f'Held by {name}: replicas wait {share:.0%} of the time')}; {evidence}."


def _generation(metrics: Metrics, evidence: str) -> str:
    """Generation sets the pace: for want of KV blocks, because of the tail, or as such."""
    if metrics.kv_wait_share > LONG_KV_WAIT:
        return (
            f"KV-bound: requests wait for KV blocks in {metrics.kv_wait_share:.0%} of the engines' steps, "
            f"{metrics.preemptions_per_sample:.2g} preemptions a sample, {metrics.recomputed_share:.0%} of the "
            f"prefilled tokens computed again; {evidence}."
        )
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
