"""What idle replicas wait for: the gate that holds them back, seen together with what the trainer does meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlsim.results.activity import TRAINER, Ticks64
from rlsim.results.columns import PHASES

if TYPE_CHECKING:
    from rlsim.results.tables import Digest
    from rlsim.results.utilisation import Measured, Shares

_BY_ITSELF = {
    "idle:tail": "tail",
    "idle:tools": "tool",
    "idle:reward": "reward",
    "idle:quiesce": "sync",
    "sync": "sync",
    "switch": "switch",
}
"""Idle times that say their cause."""
_BEHIND_A_GATE = {
    **dict.fromkeys(PHASES, "trainer"),
    "overhead": "overhead",
    "sync": "sync",
    "idle:quiesce": "sync",
    "idle:reward": "reward",
    "idle:tools": "tool",
    "idle:tail": "tail",
}
"""What a closed gate stands for, by what the trainer does while it is closed."""


CAUSES = ("trainer", "overhead", "sync", "reward", "tool", "tail", "staleness", "concurrency", "open", "switch")
"""Causes in the order of every output; gates of a user's own parts follow."""


def waiting_causes(read: Digest, window: Measured, gpus_of_replica: dict[int, float]) -> Shares:
    """Shares of the rollout GPU time in which replicas do not work, by the cause; GPUs of their own only.

    A gate on staleness or on the samples in flight is closed because the trainer has not taken what is there: while the
    trainer trains, the cause is the trainer; while it waits for scores, the rewards; while it waits for data that the
    gate itself keeps from being generated, the gate.
    """
    rows = read.activity
    weights = np.array([gpus_of_replica.get(int(who), 0.0) for who in rows.who])
    start, end = np.clip(rows.start, window.start, window.end), np.clip(rows.end, window.start, window.end)
    total = float(((end - start) * weights).sum())
    causes = dict.fromkeys(CAUSES, 0.0)
    for code, name in enumerate(rows.names):
        chosen = (rows.what == code) & (weights > 0)
        if name in _BY_ITSELF:
            own = float(((end - start)[chosen] * weights[chosen]).sum())
            causes[_BY_ITSELF[name]] = causes.get(_BY_ITSELF[name], 0.0) + own / total
        elif name.startswith("idle:"):
            for cause, ticks in _behind(read, name, start[chosen], end[chosen], weights[chosen]):
                causes[cause] = causes.get(cause, 0.0) + ticks / total
    return causes


def _behind(read: Digest, gate: str, start: Ticks64, end: Ticks64, weights: np.ndarray) -> list[tuple[str, float]]:
    """Cause and weighted ticks of the times in which a gate is closed."""
    rows, ticks_by_cause = read.activity, []
    for code, name in enumerate(rows.names):
        mine = (rows.who == TRAINER) & (rows.what == code)
        if mine.any() and len(start):
            edges = np.column_stack([rows.start[mine], rows.end[mine]]).ravel()
            spent = np.column_stack([np.zeros(mine.sum()), rows.end[mine] - rows.start[mine]]).ravel().cumsum()
            overlap = np.interp(end, edges, spent) - np.interp(start, edges, spent)
            cause = _BEHIND_A_GATE.get(name, gate.removeprefix("idle:"))
            ticks_by_cause.append((cause, float((overlap * weights).sum())))
    return ticks_by_cause
