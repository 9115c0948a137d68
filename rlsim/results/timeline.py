"""Functions of time that are constant between changes, and unions of intervals; all times in ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ticks64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """``values[i + 1]`` holds from ``times[i]`` on; ``values[0]`` before."""

    times: Ticks64
    values: Ticks64

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int]], before: int) -> Steps:
        """From (time, value) in order of time; of rows at one instant the last counts."""
        table = np.array(rows, np.int64).reshape(-1, 2)
        return cls(table[:, 0], np.append(before, table[:, 1]))

    @classmethod
    def of_intervals(cls, start: Ticks64, end: Ticks64, value: Ticks64, outside: int) -> Steps:
        """``value`` inside each of some disjoint intervals, ``outside`` elsewhere."""
        order = np.argsort(start, kind="stable")
        times = np.column_stack([start[order], end[order]]).ravel()
        values = np.column_stack([value[order], np.full(len(order), outside)]).ravel()
        return cls(times, np.append(outside, values))

    def at(self, times: Ticks64) -> Ticks64:
        """The value in force at each time."""
        return self.values[np.searchsorted(self.times, times, "right")]


@dataclass(frozen=True, slots=True)
class Union:
    """Disjoint intervals [start, end) in order."""

    start: Ticks64
    end: Ticks64

    def covers(self, times: Ticks64) -> NDArray[np.bool_]:
        """Whether each time lies inside."""
        return np.searchsorted(self.start, times, "right") > np.searchsorted(self.end, times, "right")

    def edges(self) -> Ticks64:
        """All starts and ends."""
        return np.concatenate([self.start, self.end])

    def within(self, low: int, high: int) -> int:
        """Ticks of [low, high] that are covered."""
        clipped = np.clip(self.end, low, high) - np.clip(self.start, low, high)
        return int(clipped.sum())


def union_of(start: Ticks64, end: Ticks64) -> Union:
    """The union of any intervals; touching ones become one."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.ones(len(start), bool)
    opens[1:] = start[1:] > reach[:-1]
    heads = np.flatnonzero(opens)
    closes = np.append(heads[1:], len(start)) - 1
    return Union(start[heads], reach[closes[: len(heads)]])
