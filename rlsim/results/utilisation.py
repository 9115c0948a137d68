"""Shares of GPU time by what was done with it, and verl's three utilisations.

What each pool of replicas did with its GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rlsim.core.commands import CallTool, Score, Submit
from rlsim.core.events import Aborted, Finished, Scored, Synced, ToolReturned
from rlsim.core.log import RunLog
from rlsim.core.ticks import TICKS_PER_SECOND, Ticks, to_seconds
from rlsim.resolve import ResolvedPool, ResolvedScenario
from rlsim.resolve.scenario import lent_gpus
from rlsim.results.activity import IDLE, TRAINER, Activity
from rlsim.results.causes import CAUSES, waiting_causes
from rlsim.results.columns import PHASES
from rlsim.results.tables import Digest

Shares = dict[str, float]
USES = ("decode", "prefill", *PHASES, "sync", "rejected", "switch", *IDLE)
"""Uses of GPU time in the order of every output; names of a user's own parts follow."""


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Shares of GPU-seconds by use; each sums to 1. On shared GPUs all three are the same."""

    rollout: Shares
    trainer: Shares
    all: Shares
    waiting: Shares = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))
    """Of the rollout GPUs, while they do not work, by what they wait for in the end; 0 on shared GPUs."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured window: (start, end] in ticks, and its training iterations ``first`` to ``last`` - 1."""

    start: Ticks
    end: Ticks
    first: int
    last: int

    @property
    def steps(self) -> int:
        """Iterations measured."""
        return self.last - self.first


def utilisation(read: Digest, window: Measured) -> Utilisation:
    """GPU-seconds by use over the window, as shares of the GPUs in use."""
    scenario = read.run.plan.scenario
    rows = read.activity
    rollout: dict[str, float] = {}
    for pool in read.run.plan.pools:
        gpus = pool.rollout.gpus_per_replica * share_of_gpus(read.run.plan, pool)
        for name, ticks in pool_ticks(read, pool, window).items():
            rollout[name] = rollout.get(name, 0) + ticks * gpus
    if read.run.plan.colocated:
        _add_trainer_alone(rollout, read, window)
        shares = _shares(rollout)
        return Utilisation(shares, shares, shares)
    alone = _ticks(rows, rows.who == TRAINER, window)
    trainer: dict[str, float] = {name: ticks * scenario.trainer.gpus for name, ticks in alone.items()}
    # While some of its GPUs are lent, the others wait for data; the lent ones count as rollout.
    trainer["idle:data"] += trainer.pop("lent", 0) * (1 - lent_gpus(read.run.plan) / scenario.trainer.gpus)
    trainer.pop("away", 0)
    rollout.pop("lent", 0)
    both = {name: rollout[name] + trainer[name] for name in rollout}
    gpus_of_replica = {
        replica: pool.rollout.gpus_per_replica * share_of_gpus(read.run.plan, pool)
        for pool in read.run.plan.pools
        for replica in pool.place.replicas
    }
    return Utilisation(_shares(rollout), _shares(trainer), _shares(both), waiting_causes(read, window, gpus_of_replica))


def _add_trainer_alone(uses: dict[str, float], read: Digest, window: Measured) -> None:
    """Add the GPUs that train and generate nothing: busy with the trainer's phases, else waiting for data."""
    scenario = read.run.plan.scenario
    alone = scenario.trainer.gpus - scenario.rollout.gpus
    phases = _ticks(read.activity, read.activity.who == TRAINER, window)
    for name, ticks in phases.items() if alone else ():
        uses[name] += ticks * alone
    uses["idle:data"] += (window.end - window.start - sum(phases.values())) * alone


def pool_ticks(read: Digest, pool: ResolvedPool, window: Measured) -> dict[str, int]:
    """Ticks of each use, summed over the replicas of a pool."""
    rows, replicas = read.activity, pool.place.replicas
    ticks = _ticks(rows, (rows.who >= replicas.start) & (rows.who < replicas.stop), window)
    ticks.pop("away", 0)  # Lent replicas while they are the trainer's, whose time it is.
    return ticks


def share_of_gpus(plan: ResolvedScenario, pool: ResolvedPool) -> float:
    """The part of its GPUs' time that counts for a pool: by SM shares on shared GPUs, so that none counts twice."""
    if pool.sm_share is None:
        return 1
    owner = pool.place.shares_gpus_with or pool.place.name
    shares = [
        other.sm_share or 0.0 for other in plan.pools if owner in (other.place.name, other.place.shares_gpus_with)
    ]
    return pool.sm_share / sum(shares)


def _ticks(rows: Activity, chosen: NDArray[np.bool_], window: Measured) -> dict[str, int]:
    """Ticks of each use inside the window; exact."""
    inside = np.clip(rows.end, window.start, window.end) - np.clip(rows.start, window.start, window.end)
    sums = np.zeros(len(rows.names), np.int64)
    np.add.at(sums, rows.what[chosen], inside[chosen])
    booked = dict(zip(rows.names, sums.tolist(), strict=True))
    return {name: booked.get(name, 0) for name in (*USES, *sorted(set(rows.names) - set(USES)))}


def _shares(ticks: dict[str, float]) -> Shares:
    total = sum(ticks.values())
    return {name: part / total for name, part in ticks.items()}


@dataclass(frozen=True, slots=True)
class VerlUtilisation:
    """U_train, U_rollout and U_cluster of verl, docs/advance/dynamic_schedule.md section 4."""

    train: float
    rollout: float
    cluster: float


def verl_utilisation(read: Digest, window: Measured) -> VerlUtilisation:
    """verl's formulas over the measured window.

    ``U_train`` = compute / allocated, where allocated is all but waiting; ``U_rollout`` = time integral of
    min(cap, active calls) over that of cap, with cap the smaller of the engines' seats and the most calls that
    were in flight at once; ``U_cluster`` = ((1-x) a U_train + (x a + b) U_rollout) / (a + b), x = waiting / step.
    """
    plan, updates = read.run.plan, read.updates
    rows = slice(window.first, window.last)
    total, wait = float(updates["step_seconds"][rows].sum()), float(updates["wait_seconds"][rows].sum())
    compute = sum(float(updates[f"{name}_seconds"][rows].sum()) for name in PHASES if name != "overhead")
    train = compute / (total - wait) if total > wait else 0.0
    # Calls in flight over the seats for them, while the engines are there.
    allocated_seconds = wait if plan.colocated else total
    starts, ends = np.array(read.history.call_starts, np.int64), np.array(read.history.call_ends, np.int64)
    times, place = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    changes = np.bincount(place[: len(starts)], minlength=len(times)) - np.bincount(
        place[len(starts) :], minlength=len(times)
    )
    active = np.cumsum(changes)
    cap = min(read.run.plan.shape.slots, int(active.max(initial=0)))
    edges = np.clip(np.append(times, read.run.log.end), window.start, window.end)
    busy = float((np.diff(edges) * np.minimum(active, cap)).sum()) / TICKS_PER_SECOND
    rollout = busy / (cap * allocated_seconds) if cap and allocated_seconds > 0 else 0.0
    shared = plan.scenario.trainer.gpus
    alone = 0 if plan.colocated else plan.scenario.rollout.gpus
    x = min(1.0, max(0.0, wait / total))
    cluster = ((1 - x) * shared * train + (x * shared + alone) * rollout) / (shared + alone)
    return VerlUtilisation(train, rollout, cluster)


def verl_rollouter_idle_ratio(log: RunLog) -> list[float]:
    """verl's ``fully_async/rollouter/idle_ratio`` of each version, as ``fully_async_rollouter.py`` computes it.

    1 - (idle start - start of the version) / duration of the version, and 0 unless idleness began within it. It
    begins when the last task under way has ended: a paused rollouter that drains a long tail until the next sync
    reads 0, however idle its replicas are (verl issue 6693).
    """
    ratios: list[float] = []
    active: set[int] = set()
    begun = idle = 0
    for now, event, commands in log.decisions:
        if isinstance(event, Finished | ToolReturned | Scored):
            active.discard(event.sample)
        elif isinstance(event, Aborted):
            active -= {cut.sample for cut in event.cuts}
        elif isinstance(event, Synced):
            ratios.append(1 - (idle - begun) / (now - begun) if idle > begun else 0.0)
            begun = now
        active |= {command.sample for command in commands if isinstance(command, Submit | CallTool | Score)}
        if not active and idle <= begun:
            idle = now
    return ratios


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


def _of(read: Digest, pool: ResolvedPool, window: Measured) -> PoolMetrics:
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


def _tokens(read: Digest, pool: ResolvedPool, window: Measured) -> tuple[int, int]:
    """Prompt tokens and tokens of decodes in steps that ended in the window."""
    rows, replicas = read.activity, pool.place.replicas
    here = (rows.who >= replicas.start) & (rows.who < replicas.stop)
    ended = here & (rows.end > window.start) & (rows.end <= window.end)
    steps, decodes, prefill, _ = rows.counts[ended].T
    return int(prefill.sum()), int((steps * decodes).sum())
