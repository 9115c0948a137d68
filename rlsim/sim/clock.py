"""SimPy's clock with a defined order at equal times, that of the driver.

So jumped and stepped engines meet the same order, and a step that began at an instant never sees what arrives at it.
"""

from __future__ import annotations

from collections.abc import Callable

import simpy

from rlsim.core.ticks import Ticks
from rlsim.executor.driver import SERVICES


class SimTimer(simpy.Event):
    """An event that happens by itself at its time. SimPy cannot cancel one: compare before acting."""

    def __init__(self, env: simpy.Environment, action: Callable[[SimTimer], None]) -> None:
        self.env = env
        self.callbacks = [action]
        self._ok, self._value, self._defused = True, None, False


class SimClock(simpy.Environment):
    """Integer time, in picoseconds since the start, and one event queue."""

    now: Ticks

    def __init__(self) -> None:
        super().__init__()
        self.events = 0

    def call_at(self, time: Ticks, order: int, action: Callable[[], None]) -> SimTimer:
        """Call ``action`` at ``time``, in the given order among what is due then."""
        return self.at(time, order, lambda _: action())

    def at(self, time: Ticks, priority: int, action: Callable[[SimTimer], None]) -> SimTimer:
        """Call ``action`` with its own timer at ``time``, in the order of ``priority`` among equals."""
        timer = SimTimer(self, action)
        self.events += 1
        self.schedule(timer, priority, time - self.now)  # type: ignore[arg-type]
        return timer

    def after(self, delay: Ticks, action: Callable[[], None]) -> None:
        """Call ``action`` when something that takes ``delay`` is done."""
        self.at(self.now + delay, SERVICES, lambda _: action())
