"""The clock of a live run: real time, or virtual time that jumps to the next instant at which something is due.

Both count picoseconds since the start. Waiting goes through the clock; ordinary asyncio timeouts stay in real time.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from rlsim.core.ticks import Ticks, to_seconds
from rlsim.executor.driver import SERVICES

T = TypeVar("T")
Action = Callable[[], None]


class LiveTimer(Protocol):
    """Something due that can be called off."""

    def cancel(self) -> None:
        """Call it off."""
        ...


class LiveClock(Protocol):
    """Time, and what is due when."""

    zero_seconds: float
    """Monotonic time of the host at the start."""

    @property
    def now(self) -> Ticks:
        """Since the start."""
        ...

    def restart(self) -> None:
        """Begin to count now: engines and trainer are ready."""
        ...

    def call_at(self, time: Ticks, order: int, action: Action) -> LiveTimer:
        """Call ``action`` at ``time``, in the given order among what is due then."""
        ...


async def sleep_until(clock: LiveClock, time: Ticks) -> None:
    """Return at an instant, or at once when it has passed; what takes no time has its place among what is due now."""
    if time < clock.now:
        return
    waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_at(time, SERVICES, lambda: None if waker.done() else waker.set_result(None))
    try:
        await waker
    finally:
        timer.cancel()


class RealClock:
    """Monotonic time, which processes of one host share."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.zero_seconds = self._loop.time()
        """Monotonic time at the start."""

    def restart(self) -> None:
        """Begin to count now: engines and trainer are ready."""
        self.zero_seconds = self._loop.time()

    @property
    def now(self) -> Ticks:
        """Since the start."""
        return round((self._loop.time() - self.zero_seconds) * 1e12)

    def call_at(self, time: Ticks, order: int, action: Action) -> LiveTimer:
        """Call ``action`` at ``time``; a busy event loop makes it late."""
        return self._loop.call_at(self.zero_seconds + to_seconds(time), action)


class _Entry:
    """Something due in virtual time."""

    __slots__ = ("action", "order", "time")

    def __init__(self, time: Ticks, order: int, action: Action) -> None:
        self.time, self.order = time, order
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class VirtualClock(selectors.DefaultSelector):
    """Time that stands still while anything is ready to run: the selector of the event loop it drives.

    The loop asks its selector to wait when it has nothing to do; instead, time jumps to what is due next. Nothing here
    waits for real time unless nothing is due.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now: Ticks = 0
        """Since the start."""
        self.zero_seconds = 0.0
        self._entries: list[tuple[Ticks, int, int, _Entry]] = []
        self._entered = 0

    def restart(self) -> None:
        """Nothing has taken time yet."""

    def call_at(self, time: Ticks, order: int, action: Action) -> LiveTimer:
        """Call ``action`` at ``time``, in the given order among what is due then."""
        entry = _Entry(max(time, self.now), order, action)
        self._entered += 1
        heapq.heappush(self._entries, (entry.time, order, self._entered, entry))
        return entry

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """When the loop would wait, call what is due first, alone: what follows from it happens before the next."""
        while timeout != 0 and self._entries:
            time, _, _, entry = heapq.heappop(self._entries)
            if entry.action is not None:
                self.now, timeout = time, 0
                asyncio.get_event_loop().call_soon(entry.action)
        return super().select(timeout)


def run_virtual(main: Callable[[LiveClock], Coroutine[Any, Any, T]]) -> T:
    """Run ``main(clock)`` in virtual time."""
    clock = VirtualClock()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(clock)) as runner:
        return runner.run(main(clock))


def run_real(main: Callable[[LiveClock], Coroutine[Any, Any, T]]) -> T:
    """Run ``main(clock)`` in real time."""

    async def begin() -> T:
        return await main(RealClock())

    return asyncio.run(begin())
