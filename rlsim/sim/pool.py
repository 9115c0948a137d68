"""A pool of workers that serve one job each, first come first served: tools, sandboxes, reward models.

With exponential arrivals it is the M/G/c queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rlsim.core.log import RunLog, ServiceRow
from rlsim.core.ticks import Ticks
from rlsim.sim.clock import Clock

Job = tuple[int, Ticks, Ticks, Callable[[], None]]


class WorkerPool:
    """``workers`` servers and one queue; None for as many servers as there are jobs."""

    def __init__(self, clock: Clock, log: RunLog, what: str, workers: int | None) -> None:
        self._clock, self._log, self._what = clock, log, what
        self._free = workers
        self._queue: deque[Job] = deque()

    def serve(self, sample: int, service: Ticks, done: Callable[[], None]) -> None:
        """Enqueue a job that takes ``service`` once a worker has it."""
        job = (sample, self._clock.now, service, done)
        if self._free == 0:
            self._queue.append(job)
            return
        if self._free is not None:
            self._free -= 1
        self._start(job)

    def _start(self, job: Job) -> None:
        sample, asked, service, done = job
        start = self._clock.now
        self._log.services.append(ServiceRow(sample, self._what, asked, start, start + service))
        self._clock.after(service, lambda: self._end(done))

    def _end(self, done: Callable[[], None]) -> None:
        if self._queue:
            self._start(self._queue.popleft())
        elif self._free is not None:
            self._free += 1
        done()
