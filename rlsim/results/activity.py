"""What every GPU did at every instant of a run: engine steps, trainer phases, publication, switching, or idle and why.

The rows of a replica tile the run without gap or overlap. On GPUs of its own the trainer (``who`` = -1) is tiled too;
on shared GPUs its phases appear on the replicas, which are the same GPUs, and its own row shows only when it works.
The rules for causes are in docs/concepts/metrics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rlsim.core.log import RunLog
from rlsim.results.columns import Columns, integers, seconds
from rlsim.results.history import History
from rlsim.results.timeline import Steps, Union, union_of

TRAINER = -1
Ticks64 = NDArray[np.int64]
IDLE = (
    "idle:staleness",
    "idle:concurrency",
    "idle:tail",
    "idle:trainer",
    "idle:data",
    "idle:tools",
    "idle:reward",
    "idle:quiesce",
    "idle:open",
)
"""Causes of idle time. Gates of a user's own parts add theirs under the gate's name."""
_CAUSE_OF_GATE = {
    "": "idle:open",
    "barrier": "idle:tail",
    "drain": "idle:quiesce",
    "train": "idle:quiesce",
    "buffer": "idle:trainer",
}


@dataclass(frozen=True, slots=True)
class Activity:
    """Rows by ``who`` and time; ``what`` indexes ``names``."""

    names: list[str]
    who: Ticks64
    what: Ticks64
    start: Ticks64
    end: Ticks64
    counts: NDArray[np.int64]
    """Shape (rows, 4): steps, decodes, prefill tokens, KV tokens; 0 outside engine steps."""

    def columns(self) -> Columns:
        """The table, with names and seconds."""
        counted = zip(("steps", "decodes", "prefill_tokens", "kv_tokens"), self.counts.T.copy(), strict=True)
        names = np.array(self.names, object)
        return {
            "who": self.who,
            "what": names[self.what],
            "start_seconds": seconds(self.start),
            "end_seconds": seconds(self.end),
            **dict(counted),
        }


class _Names:
    """Small integers for names, in order of appearance."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        if name not in self._codes:
            self._codes[name] = len(self.names)
            self.names.append(name)
        return self._codes[name]


@dataclass(frozen=True, slots=True)
class _State:
    """What was going on in the whole system, as functions of time."""

    shared: bool
    gate: Steps
    """Code of the idle cause that the gate stands for."""
    trainer: Steps
    """Code of what the trainer does; -1 while it does nothing."""
    generating: Union
    tools: Union
    rewards: Union

    def changes(self) -> Ticks64:
        """Every instant at which something here changes, sorted."""
        edges = (self.generating.edges(), self.tools.edges(), self.rewards.edges())
        return np.unique(np.concatenate([self.gate.times, self.trainer.times, *edges]))


def activity(log: RunLog, shared: bool, replicas: int, history: History, lent: range = range(0)) -> Activity:
    """The activity of a run; ``shared`` says whether the trainer works on the replicas' GPUs.

    ``lent`` replicas are on the trainer's GPUs, there only while its row says ``lent``; theirs say ``away`` otherwise.
    """
    return _Book(log, shared, history).activity(replicas, lent)


class _Book:
    def __init__(self, log: RunLog, shared: bool, history: History) -> None:
        self._names, self._end, self._history = _Names(), log.end, history
        self._waits = integers(history.tool_waits, 3)
        code = self._names.code
        for name in ("decode", "prefill", "sync", "switch", *IDLE):
            code(name)
        windows = integers(log.windows, 8)
        chunks = windows[:, 5] > 0
        self._work = np.column_stack([windows[:, 0], chunks, windows[:, 1:5], windows[:, 6:8]]).astype(np.int64)
        spans = [
            (s.who, code(s.what), s.start, min(s.end, log.end)) for s in log.spans if s.start < min(s.end, log.end)
        ]
        self._spans = integers(spans, 4)
        loans = integers(((s.start, min(s.end, log.end)) for s in log.spans if s.what == "lent"), 2)
        self._loans = union_of(loans[:, 0], loans[:, 1])
        trainer = self._spans[self._spans[:, 0] == TRAINER]
        if len(loans):
            trainer = trainer[trainer[:, 1] != code("lent")]
        gates = [(row.now, code(_CAUSE_OF_GATE.get(row.gate, f"idle:{row.gate}"))) for row in log.gates]
        draining = [(row.now, int(row.gate == "drain")) for row in log.gates]
        self._draining = Steps.of(draining, 0)
        self._state = _State(
            shared,
            Steps.of(gates, code("idle:open")),
            Steps.of_intervals(trainer[:, 2], trainer[:, 3], trainer[:, 1], -1),
            union_of(windows[:, 1], windows[:, 2]),
            _service_union(log, "tool"),
            _service_union(log, "reward"),
        )
        self._changes = self._state.changes()

    def activity(self, replicas: int, lent: range) -> Activity:
        own = np.concatenate([self._work, _uncounted(self._spans[self._spans[:, 0] != TRAINER])])
        own = own[np.lexsort((own[:, 2], own[:, 0]))]
        bounds = np.searchsorted(own[:, 0], np.arange(replicas + 1))
        rows = (own[low:high] for low, high in pairwise(bounds))
        tiles = (
            self._lent_rows(replica, mine) if replica in lent else self._replica_rows(replica, mine)
            for replica, mine in enumerate(rows)
        )
        table = np.concatenate([self._trainer_rows(), *tiles])
        who, what, start, end = table[:, :4].T.copy()
        return Activity(self._names.names, who, what, start, end, table[:, 4:])

    # -- one actor ------------------------------------------------------------------------------------

    def _trainer_rows(self) -> Ticks64:
        busy = self._spans[self._spans[:, 0] == TRAINER]
        busy = busy[np.argsort(busy[:, 2], kind="stable")]
        if self._state.shared:
            return _uncounted(busy)
        start, end, _ = _gaps(busy[:, 2], busy[:, 3], self._end)
        start, end, _ = _cut(start, end, self._changes)
        # Why the trainer does nothing at each start.
        code, state = self._names.code, self._state
        stopped = self._without_generation(start, np.full(len(start), -1), "idle:data")
        data = np.where(state.generating.covers(start), code("idle:data"), stopped)
        causes = np.where(self._draining.at(start) > 0, code("idle:tail"), data)
        return _tiled(_uncounted(busy), TRAINER, causes, start, end)

    def _replica_rows(self, replica: int, own: Ticks64) -> Ticks64:
        start, end, after = _gaps(own[:, 2], own[:, 3], self._end)
        mine = self._waits[self._waits[:, 0] == replica]
        tools = union_of(mine[:, 1], mine[:, 2])
        changes = np.union1d(self._changes, tools.edges()) if len(tools.start) else self._changes
        start, end, gap = _cut(start, end, changes)
        next_what = np.append(own[:, 1], -1)[after]
        causes = self._replica_causes(start, next_what[gap], tools)
        if self._history.running.get(replica) and len(start) and end[-1] == self._end:
            cause = causes[-1]
            idle = self._names.names[cause].startswith("idle:") and cause != self._names.code("idle:quiesce")
            causes[-1] = self._names.code("decode") if idle else cause
        return _tiled(own, replica, causes, start, end)

    def _lent_rows(self, replica: int, own: Ticks64) -> Ticks64:
        """A replica that is there only during loans; publications reach it with the trainer, whose time they are."""
        loans = self._loans
        away_start, away_end, _ = _gaps(loans.start, loans.end, self._end)
        code = self._names.code("away")
        away = np.column_stack(
            [np.full(len(away_start), replica), np.full(len(away_start), code), away_start, away_end]
        )
        here = own[loans.covers(own[:, 2])]
        busy = np.concatenate([here, _uncounted(away.astype(np.int64))])
        return self._replica_rows(replica, busy[np.argsort(busy[:, 2], kind="stable")])

    # -- causes ---------------------------------------------------------------------------------------

    def _replica_causes(self, at: Ticks64, next_what: Ticks64, tools: Union) -> Ticks64:
        """Why a replica without work at ``at`` has none; on shared GPUs, what the trainer does there instead."""
        code, state = self._names.code, self._state
        trainer, gate = state.trainer.at(at), state.gate.at(at)
        silent, draining = ~state.generating.covers(at), self._draining.at(at) > 0
        in_sync = (trainer == code("sync")) & (next_what == code("sync"))
        return np.select(
            [
                (trainer >= 0) & state.shared,
                in_sync | ((gate == code("idle:quiesce")) & ~draining),
                tools.covers(at),
                (gate == code("idle:tail")) & silent,
                draining & silent,
            ],
            [
                trainer,
                code("idle:quiesce"),
                code("idle:tools"),
                self._without_generation(at, trainer, "idle:trainer"),
                self._without_generation(at, trainer, "idle:quiesce"),
            ],
            gate,
        )

    def _without_generation(self, at: Ticks64, trainer: Ticks64, otherwise: str) -> Ticks64:
        """What all wait for while no replica works: the trainer, rewards, tools, in this order."""
        code, free = self._names.code, trainer < 0
        rewards, tools = self._state.rewards.covers(at) & free, self._state.tools.covers(at) & free
        return np.select([rewards, tools], [code("idle:reward"), code("idle:tools")], code(otherwise))


def _uncounted(rows: Ticks64) -> Ticks64:
    return np.column_stack([rows, np.zeros((len(rows), 4), np.int64)])


def _service_union(log: RunLog, what: str) -> Union:
    table = integers(((row.requested, min(row.end, log.end)) for row in log.services if row.what == what), 2)
    return union_of(table[:, 0], table[:, 1])


def _gaps(start: Ticks64, end: Ticks64, run_end: int) -> tuple[Ticks64, Ticks64, Ticks64]:
    """Starts and ends of what the sorted rows leave of [0, run_end], and the row that follows each."""
    before, after = np.append(0, end), np.append(start, run_end)
    where_apart = np.flatnonzero(after > before)
    return before[where_apart], after[where_apart], where_apart


def _cut(start: Ticks64, end: Ticks64, changes: Ticks64) -> tuple[Ticks64, Ticks64, Ticks64]:
    """Intervals cut at every change inside them, and the interval that each piece came from."""
    low, high = np.searchsorted(changes, start, "right"), np.searchsorted(changes, end, "left")
    inner = np.maximum(high - low, 0)
    gap = np.repeat(np.arange(len(start)), inner + 1)
    first = np.cumsum(inner + 1) - (inner + 1)
    offset = np.arange(len(gap)) - first[gap]
    edges = np.append(changes, 0)
    piece_start = np.where(offset == 0, start[gap], edges[np.minimum(low[gap] + offset - 1, len(changes))])
    piece_end = np.where(offset == inner[gap], end[gap], edges[np.minimum(low[gap] + offset, len(changes))])
    return piece_start, piece_end, gap


def _tiled(own: Ticks64, who: int, what: Ticks64, start: Ticks64, end: Ticks64) -> Ticks64:
    """Own rows and classified gaps in order of time; neighbouring gaps of one cause are one."""
    joins = np.zeros(len(start), bool)
    joins[1:] = (what[1:] == what[:-1]) & (start[1:] == end[:-1])
    heads = np.flatnonzero(~joins)
    last = np.append(heads[1:], len(start)) - 1
    rest = np.column_stack([np.full(len(heads), who), what[heads], start[heads], end[last[: len(heads)]]])
    table = np.concatenate([own, _uncounted(rest.astype(np.int64))])
    return table[np.argsort(table[:, 2], kind="stable")]
