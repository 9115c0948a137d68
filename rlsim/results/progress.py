"""Progress of a run against what it used up: rollouts, tokens, time and money.

What training does to the model is a statistical estimate (docs/concepts/learning-model.md), and everything here
inherits that.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlsim.core.events import made_tokens
from rlsim.core.log import Decision, ProgressRow
from rlsim.core.ticks import Ticks
from rlsim.resolve.scenario import gpus_used, price
from rlsim.results.allocation import allotted_columns
from rlsim.results.columns import Columns, seconds
from rlsim.results.tables import Digest

USED = ("rollouts", "generated_tokens", "trained_tokens", "seconds", "gpu_seconds", "usd")
"""What can be a budget: samples begun, response tokens made and trained on, time, and what the GPUs in use cost."""
SECONDS_PER_HOUR = 3600


def progress_columns(read: Digest) -> Columns:
    """One row a training step and one for the start: ``step``, what was used by its end (``USED``), and the model then.

    ``success`` is the expected success of a fresh sample over all prompts. Without a learning model there are no rows.
    """
    log, plan = read.run.log, read.run.plan
    start = None if plan.learning is None else _start(plan.learning.population.mean_success)
    rows = [start, *log.progress] if start and log.progress else []
    ends = [row.now for row in rows]
    spent = seconds(np.array(ends, np.int64))
    gpu_seconds = spent * gpus_used(plan)
    columns: Columns = {
        "step": np.array([row.step for row in rows], np.int64),
        "rollouts": _rollouts(read, ends),
        "generated_tokens": _generated(log.decisions, ends),
        "trained_tokens": _trained(read, [row.step for row in rows]),
        "seconds": spent,
        "gpu_seconds": gpu_seconds,
        "usd": gpu_seconds / SECONDS_PER_HOUR * price(plan)[0],
    }
    names = ("success", "skill", "information", "ess", "staleness_factor", "gain")
    return columns | {name: np.array([getattr(row, name) for row in rows], np.float64) for name in names}


def used_at(progress: Columns, success: float, used: str) -> float | None:
    """How much of ``used`` it took to reach ``success``, between steps in proportion; None where it was not reached."""
    reached = np.flatnonzero(progress["success"] >= success)
    if not len(reached):
        return None
    place = int(reached[0])
    if place == 0:
        return 0.0
    before, after = progress["success"][place - 1 : place + 1]
    low, high = progress[used][place - 1 : place + 1]
    return float(low + (high - low) * (success - before) / (after - before))


def success_at(progress: Columns, used: str, amount: float) -> float | None:
    """The success that ``amount`` of ``used`` has bought, between steps in proportion; None beyond the run's end."""
    if not len(progress["step"]) or amount > progress[used][-1]:
        return None
    return float(np.interp(amount, progress[used], progress["success"]))


def reward_columns(read: Digest) -> Columns:
    """One row a sample whose reward the policy was told, live or simulated; -1 and NaN where it was not trained on."""
    samples, lives = read.samples, read.history.lives
    is_rewarded = np.array([not np.isnan(life.reward) for life in lives.values()], bool)
    workload = read.run.plan.workload_of(read.run.replication)
    kept = {name: samples[name][is_rewarded] for name in ("sample", "group", "member", "response_tokens", "outcome")}
    return {
        "step": samples["trained_step"][is_rewarded],
        "version": samples["version_first"][is_rewarded],
        "prompt": np.array([workload.prompt_at(int(draw))[0] for draw in samples["draw"][is_rewarded]], np.int64),
        "group": kept["group"],
        "member": kept["member"],
        "sample": kept["sample"],
        "reward": np.array([life.reward for life in lives.values()], np.float64)[is_rewarded],
        "tokens": kept["response_tokens"],
        "lag": samples["token_weighted_lag"][is_rewarded],
        "outcome": kept["outcome"],
    }


def progress_tables(read: Digest) -> dict[str, Columns]:
    """``progress``, ``rewards`` and ``allotted``, where there is something in them."""
    tables = {
        "progress": progress_columns(read),
        "rewards": reward_columns(read),
        "allotted": allotted_columns(read),
    }
    return {name: columns for name, columns in tables.items() if len(columns["step"])}


def _start(success: float) -> ProgressRow:
    nan = float("nan")
    return ProgressRow(
        step=-1, now=0, samples=0, success=success, skill=0.0, information=nan, ess=nan, staleness_factor=nan, gain=0.0
    )


def _rollouts(read: Digest, ends: list[Ticks]) -> NDArray[np.int64]:
    begun = np.sort(np.array([life.submitted for life in read.history.lives.values()], np.int64))
    return np.searchsorted(begun, np.array(ends, np.int64), side="left").astype(np.int64)


def _generated(decisions: list[Decision], ends: list[Ticks]) -> NDArray[np.int64]:
    """Response tokens of calls that have ended, by their own end or cut."""
    deliveries = [(now, made_tokens(event)) for now, event, _ in decisions]
    times, sums = [now for now, _ in deliveries], [0, *accumulate(tokens for _, tokens in deliveries)]
    return np.array([sums[bisect_right(times, end)] for end in ends], np.int64)


def _trained(read: Digest, steps: list[int]) -> NDArray[np.int64]:
    taken = read.samples["trained_step"]
    booked = taken >= 0
    by_step = np.bincount(taken[booked], read.samples["response_tokens"][booked], max(steps, default=0) + 1)
    sums: NDArray[Any] = np.concatenate([[0], np.cumsum(by_step)]).astype(np.int64)
    return np.array([sums[step + 1] for step in steps], np.int64)
