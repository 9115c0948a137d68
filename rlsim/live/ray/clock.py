"""Offset of another node's monotonic clock from this one's: nodes count from their own start."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from rlsim.core.ticks import Ticks
from rlsim.live.protocols import Now
from rlsim.live.vllm.step_log import TICKS_PER_NANOSECOND, zero_ns

TRIES = 15
"""Round trips, of which the shortest tells most."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def node_ns() -> int:
    """CLOCK_MONOTONIC of this node."""
    return time.monotonic_ns()


def node_now() -> Ticks:
    """The clock of this node, as engines there get it."""
    return node_ns() * TICKS_PER_NANOSECOND


def host() -> str:
    """Names the running system: processes with the same answer share a monotonic clock; empty where it has no name."""
    return BOOT_ID.read_text(encoding="ascii").strip() if BOOT_ID.is_file() else ""


@dataclass(frozen=True, slots=True)
class Offset:
    """Another clock less this one."""

    nanoseconds: int
    within_nanoseconds: int
    """The truth is no further away: half the round trip."""

    def ticks(self, theirs: Ticks, now: Now) -> Ticks:
        """An instant of the other clock on the run's, as that counts now."""
        return theirs - (self.nanoseconds + zero_ns(now)) * TICKS_PER_NANOSECOND


async def offset(ask: Callable[[], Awaitable[int]], own: Callable[[], int] = time.monotonic_ns) -> Offset:
    """Offset by the midpoint of the shortest of several round trips; ``ask`` gives the other clock's nanoseconds."""
    offsets = []
    for _ in range(TRIES):
        before = own()
        theirs = await ask()
        after = own()
        offsets.append(Offset(theirs - (before + after) // 2, (after - before + 1) // 2))
    return min(offsets, key=lambda offset: offset.within_nanoseconds)
