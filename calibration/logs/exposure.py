"""A step law from requests' timelines alone: what each request sat through, times what it costs, is its latency.

Replaying the requests under a law tells which engine steps each of them waited for: how many, with how many sequences,
KV tokens and prompt tokens. Given those, latencies are linear in the law's coefficients, so least squares gives a
better law, under which the requests are replayed again, until it no longer changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from calibration.fitting.robust_regression import solve
from calibration.logs.estimates import LogEstimate, least_squares
from calibration.serving.engines import replay
from calibration.serving.score import Replayed
from calibration.serving.timelines import RecordedRun
from rlsim.core.log import WindowRow
from rlsim.core.ticks import TICKS_PER_SECOND
from rlsim.costs.evidence import Provenance
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.requests import EngineLimits

if TYPE_CHECKING:
    from numpy.typing import NDArray

BASE, SEQUENCE, KV, PREFILL, MIXED = (
    "base_seconds",
    "per_sequence_seconds",
    "per_kv_token_seconds",
    "per_prefill_token_seconds",
    "per_kv_token_seconds beside a prefill chunk, more than alone",
)
NAMES = (BASE, SEQUENCE, KV, PREFILL, MIXED)
ROUNDS = 40
SETTLED = 1e-4
DAMPING = 0.5
BLOCKS = 15
"""Runs of consecutive requests whose sums intervals are taken from: single requests are not independent."""


def fit_law(
    run: RecordedRun, limits: EngineLimits, asynchronous: bool
) -> tuple[StepTimeModel, tuple[LogEstimate, ...], list[str]]:
    """The law of least squared relative errors on the first half of the requests, and what they do not tell."""
    half = len(run.timelines) // 2
    table = np.array(run.timelines, dtype=float)
    measured = np.concatenate([table[:half, 3] - table[:half, 2], table[:half, 4] - table[:half, 3]])
    measured[measured <= 0] = 1e-9
    pace = float(np.median((table[:, 4] - table[:, 3]) / np.maximum(table[:, 1] - 1, 1)))
    # half of the median time per token as a constant, the rest on the requests that ran
    values, best, least = np.array([0.5, 0.02, 1e-5, 0.005, 0.0]) * pace, np.zeros(len(NAMES)), np.inf
    for _ in range(ROUNDS):
        exposed = exposure(replay(run, limits, law_of(values), asynchronous), half, run.lockstep_ranks)
        error = float(np.sqrt(np.mean((exposed @ values / measured - 1.0) ** 2)))
        if error < least:
            best, least = values, error
        rows = exposed.any(axis=1)
        solution = solve(exposed[rows], measured[rows], iterations=1)
        if np.abs(solution - values).max() <= SETTLED * np.abs(values).max():
            break
        values = (1 - DAMPING) * values + DAMPING * solution
    exposed = exposure(replay(run, limits, law_of(best), asynchronous), half, run.lockstep_ranks)
    estimates, unknown = _intervals(exposed, measured, best)
    provenance = Provenance("fitted", f"timelines of requests ({run.name})")
    return replace(law_of(best), provenance=provenance), estimates, unknown


def law_of(values: NDArray[np.float64]) -> StepTimeModel:
    """The affine law with these coefficients, in the order of ``NAMES``."""
    base, sequence, kv, prefill, mixed = np.maximum(values, 0.0).tolist()
    law = StepTimeModel.affine(base, sequence, kv, prefill)
    return replace(law, mixed_kv_seconds_per_token=(kv + mixed,)) if mixed else law


def exposure(replayed: Replayed, count: int, ranks: int = 1) -> NDArray[np.float64]:
    """Steps, sequences, KV tokens, further prompt tokens and KV tokens beside chunks that each latency sat through.

    Shape (2 ``count``, 5): from queued to first token of each request, then from first to last. Of ``ranks`` that step
    together the mean one counts.
    """
    spans, engines = np.zeros((2, count, len(NAMES))), np.array(replayed.engines[:count])
    for index, windows in enumerate(replayed.windows):
        here = np.flatnonzero(engines == index)
        if len(here):
            events = np.array([replayed.timelines[request][2:] for request in here]).T
            spans[:, here] = _engine_exposure(windows, events, ranks)
    return spans.reshape(2 * count, len(NAMES))


def _engine_exposure(windows: Sequence[WindowRow], events: NDArray[np.float64], ranks: int) -> NDArray[np.float64]:
    """The same of one engine's requests, by queued, first and last; shape (2, requests, 5)."""
    rows = np.array([row[1:] for row in windows], dtype=float)
    start, end, steps, decodes, chunks, prefill, kv = rows.T
    decodes, chunks, prefill, kv = decodes / ranks, chunks / ranks, prefill / ranks, kv / ranks
    held = steps * kv + decodes * steps * (steps - 1) / 2
    parts = (steps, steps * (decodes + chunks), held, steps * (prefill - chunks), held * (chunks > 0))
    times = np.concatenate([start[:1], end]) / TICKS_PER_SECOND
    knots = np.stack([start / TICKS_PER_SECOND, times[1:]], axis=1).reshape(-1)

    def until(event: NDArray[np.float64], part: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of ``part`` up to each event; nothing happens between windows."""
        total = np.concatenate([[0.0], np.cumsum(part)])
        sums: NDArray[np.float64] = np.interp(event, knots, np.stack([total[:-1], total[1:]], axis=1).reshape(-1))
        return sums

    at = [[until(event, part) for part in parts] for event in events]
    queued, first, last = (np.array(columns) for columns in at)
    return np.stack([(first - queued).T, (last - first).T])


def _intervals(
    exposed: NDArray[np.float64], measured: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[tuple[LogEstimate, ...], list[str]]:
    """Intervals of the coefficients that are above zero, from sums over blocks of requests."""
    above = [n for n in range(len(NAMES)) if values[n] > 0]
    halves = np.array_split(np.arange(len(measured)), 2)
    blocks = [part for latencies in halves for part in np.array_split(latencies, BLOCKS)]
    target = np.array([measured[block].sum() for block in blocks])
    sums = np.array([exposed[block].sum(axis=0) for block in blocks]) / target[:, None]
    line = least_squares(np.ones(len(target)), [sums[:, n] for n in above])
    reach = (line.high - line.low) / 2
    source = "latencies over the steps that requests sat through, all of them replayed"
    estimates = [
        LogEstimate(f"rollout.step_time.{NAMES[n]}", at, at - by, at + by, source)
        for n, at, by in zip(above, values[above].tolist(), reach.tolist(), strict=True)
    ]
    unknown = [f"{NAMES[n]}: not above zero in this log" for n in range(len(NAMES)) if n not in above]
    vague = [NAMES[n] for n, one in zip(above, estimates, strict=True) if one.low <= 0]
    if vague:
        unknown.append(f"{', '.join(vague)} one by one: only their sum is certain")
    return tuple(estimates), unknown
