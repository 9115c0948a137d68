"""How long other processes kept this one from a core: time of the machine, not of the work."""

from __future__ import annotations

import time
from pathlib import Path

_QUEUE = Path("/proc/thread-self/schedstat")


def waited_seconds() -> float:
    """Seconds that this thread has been ready to run and was not run, since it started; 0 where the kernel tells none.

    Second number of ``/proc/<task>/schedstat`` (Linux, Documentation/scheduler/sched-stats). What a hypervisor
    takes is not in it.
    """
    try:
        return int(_QUEUE.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class Stopwatch:
    """Seconds since it was made; with ``own_core``, less those for which other processes held the core."""

    def __init__(self, own_core: bool) -> None:
        self._own_core = own_core
        self._waited = waited_seconds() if own_core else 0.0
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """Since then."""
        elapsed = time.perf_counter() - self._start
        return elapsed - (waited_seconds() - self._waited) if self._own_core else elapsed
