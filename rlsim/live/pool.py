"""A pool of workers for tools and rewards, first come first served: limits, timeouts, retries."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from rlsim.core.log import RunLog, ServiceRow
from rlsim.live.clock import LiveClock

T = TypeVar("T")
Outcome = Literal["done", "timeout", "failed"]


@dataclass(frozen=True, slots=True)
class Served(Generic[T]):
    """What a job came to; no value unless it is done."""

    outcome: Outcome
    value: T | None
    fault: str = ""


class WorkerPool:
    """``workers`` jobs at once; None for as many as there are."""

    def __init__(
        self,
        clock: LiveClock,
        log: RunLog,
        what: str,
        workers: int | None,
        timeout_seconds: float | None = None,
        retries: int = 0,
    ) -> None:
        """``timeout_seconds`` is of one attempt, in real time; a failed or late one is made ``retries`` times more."""
        self._clock, self._log, self.what = clock, log, what
        self._seats = None if workers is None else asyncio.Semaphore(workers)
        self._timeout_seconds, self._retries = timeout_seconds, retries
        self.faults: Counter[str] = Counter()
        """Jobs that came to nothing after all attempts, by outcome."""
        self.first_fault = ""
        """What the first of them said."""

    async def serve(self, sample: int, job: Callable[[], Awaitable[T]]) -> Served[T]:
        """Run a job once a worker is free; whatever it raises is its outcome, not an error of the run."""
        requested_at = self._clock.now
        if self._seats is None:
            return await self._timed(sample, requested_at, job)
        async with self._seats:
            return await self._timed(sample, requested_at, job)

    async def _timed(self, sample: int, requested_at: int, job: Callable[[], Awaitable[T]]) -> Served[T]:
        start = self._clock.now
        served = await self._tried(job)
        self._log.services.append(ServiceRow(sample, self.what, requested_at, start, self._clock.now))
        if served.outcome != "done":
            self.faults[served.outcome] += 1
            self.first_fault = self.first_fault or f"sample {sample}: {served.fault}"
        return served

    async def _tried(self, job: Callable[[], Awaitable[T]]) -> Served[T]:
        served = await self._once(job)
        for _ in range(self._retries):
            if served.outcome == "done":
                break
            served = await self._once(job)
        return served

    async def _once(self, job: Callable[[], Awaitable[T]]) -> Served[T]:
        try:
            if self._timeout_seconds is None:
                return Served("done", await job())
            return await self._within(self._timeout_seconds, job)
        except Exception as fault:  # a tool is user code: whatever it raises is its outcome
            return Served("failed", None, f"{type(fault).__name__}: {fault}")

    async def _within(self, seconds: float, job: Callable[[], Awaitable[T]]) -> Served[T]:
        """Not ``wait_for``, which waits for a job that does not let itself be called off."""
        attempt = asyncio.ensure_future(job())
        try:
            done, _ = await asyncio.wait((attempt,), timeout=seconds)
            return Served("done", attempt.result()) if done else Served("timeout", None, f"no answer in {seconds:g} s")
        finally:
            attempt.cancel()
