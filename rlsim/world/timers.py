"""Timers keep no run alive: when they are all that is left, each may ring once; what none of them moves is stuck."""

from __future__ import annotations

from collections.abc import Sequence

from rlsim.core.commands import Command, WakeAt
from rlsim.core.events import Aborted, Event, Noticed, ReplicaLost, Started, Woke
from rlsim.core.ticks import Ticks

_UNASKED = (Started, Woke, Noticed)


class Timers:
    """Replies that are owed, and timers that may still lead to something."""

    def __init__(self) -> None:
        self._owed = self._pending = 0
        self._hopeful: set[Ticks] = set()
        """Set by an event that did something, or while a reply was owed."""
        self.in_vain = False
        """Whether nothing but timers is left and the last round of them led to nothing."""

    @property
    def idle(self) -> bool:
        """Whether no reply is owed and no timer is set."""
        return not (self._owed or self._pending)

    def count(self, event: Event, commands: Sequence[Command]) -> None:
        """Take in one event and what was asked for because of it."""
        asked = [command.at for command in commands if isinstance(command, WakeAt)]
        moved = len(commands) > len(asked)
        self._owed += len(commands) - len(asked) - _replies(event)
        self._pending += len(asked)
        if isinstance(event, Woke):
            self._pending -= 1
            self._hopeful.discard(event.at)
            if moved or self._owed:
                self._hopeful.update(asked)
            self.in_vain = not (self._owed or self._hopeful or moved)
        else:
            self._hopeful.update(asked)
            self.in_vain = False


def _replies(event: Event) -> int:
    """Replies in an event: one, those of the calls that an abort ended, or with a replica, or none in a notice."""
    if isinstance(event, Aborted):
        return 1 + len(event.cuts)
    if isinstance(event, ReplicaLost):
        return len(event.cuts)
    return 0 if isinstance(event, _UNASKED) else 1
