"""Which prompts got what: samples and response tokens by the success probability of their prompt, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlsim.results.columns import Columns
from rlsim.results.tables import Digest

EDGES = (0.05, 0.2, 0.35, 0.45, 0.55, 0.65, 0.8, 0.95)
"""Between the rows of success probability; a row has its lower edge and not its upper one. Eighths have a row each."""
ROWS = len(EDGES) + 1
UNKNOWN = ROWS
"""The row of samples of which nothing says how likely they were to succeed."""
BANDS = {"never": (0, 1), "hard": (1, 3), "middle": (3, 6), "easy": (6, 8), "always": (8, 9), "unknown": (9, 10)}
"""Rows of each band, from and to: below 5 %, to 35 %, to 65 %, to 95 %, from there on, not known."""

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Allotted:
    """What prompts of each success probability got in each training step. Shapes (ROWS + 1, steps)."""

    samples: Counts
    tokens: Counts
    """Response tokens of these samples, made by the end of the run."""
    measured: bool
    """Whether rows are measured pass rates; else hidden success probabilities."""

    def band_shares(self, what: str) -> dict[str, float]:
        """Share of all ``samples`` or ``tokens`` by band; they sum to 1 (0 where there are none)."""
        rows: Counts = getattr(self, what).sum(axis=1)
        return {band: float(rows[low:high].sum() / max(1, rows.sum())) for band, (low, high) in BANDS.items()}


def allotted_columns(read: Digest) -> Columns:
    """One row a sample that entered generation, in order of sample numbers.

    ``step``: the training iteration under way when it was submitted. ``success``: the hidden success probability of its
    prompt then, NaN without a learning model. ``pass_rate``: mean over its group of rewards held to [0, 1], NaN where
    the policy was told none. No rows where there is neither.
    """
    samples, lives = read.samples, read.history.lives
    odds = {row.sample: row.success for row in read.run.log.odds}
    rewards = np.array([life.reward for life in lives.values()], np.float64)
    if not odds and np.isnan(rewards).all():
        return {"step": np.zeros(0, np.int64)}
    workload = read.run.plan.workload_of(read.run.replication)
    ends = np.array([row.end for row in read.run.log.iterations], np.int64)
    begun = np.array([life.submitted for life in lives.values()], np.int64)
    return {
        "step": np.searchsorted(ends, begun, side="right").astype(np.int64),
        "prompt": np.array([workload.prompt_at(int(draw))[0] for draw in samples["draw"]], np.int64),
        "group": samples["group"],
        "sample": samples["sample"],
        "success": np.array([odds.get(sample, np.nan) for sample in lives], np.float64),
        "pass_rate": _pass_rates(samples["group"], rewards),
        "tokens": samples["response_tokens"],
        "outcome": samples["outcome"],
    }


def _pass_rates(group: Counts, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    is_known = ~np.isnan(rewards)
    count = int(group.max(initial=-1)) + 1
    earned = np.bincount(group[is_known], np.clip(rewards[is_known], 0.0, 1.0), count)
    known = np.bincount(group[is_known], minlength=count)
    rates = np.where(known > 0, earned / np.maximum(known, 1), np.nan)
    return np.asarray(rates[group], np.float64)


def allotted(runs: Sequence[Columns]) -> list[Allotted]:
    """Runs that are to be compared (columns of ``allotted_columns``), all in rows of the same kind.

    Rows are hidden success probabilities where every sample of every run has one, else measured pass rates.
    """
    measured = any(np.isnan(columns["success"]).any() for columns in runs)
    counts = []
    for columns in runs:
        chance = columns["pass_rate" if measured else "success"]
        row = np.where(np.isnan(chance), UNKNOWN, np.digitize(chance, EDGES))
        step, shape = columns["step"], (ROWS + 1, int(columns["step"].max(initial=-1)) + 1)
        samples, tokens = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        np.add.at(samples, (row, step), 1)
        np.add.at(tokens, (row, step), columns["tokens"])
        counts.append(Allotted(samples, tokens, measured))
    return counts
