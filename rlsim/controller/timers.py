"""Timers that parts ask for, and the looks of a trainer that polls its buffer."""

from __future__ import annotations

from rlsim.core.commands import Command, WakeAt
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.core.view import View
from rlsim.policies.protocols import Policy, Polls, Timed


class PolicyTimers:
    """One timer an instant, whoever asks for it."""

    def __init__(self, policy: Policy, view: View, out: list[Command]) -> None:
        parts = (getattr(policy, choice) for choice in type(policy).__dataclass_fields__)
        self._timed = [part for part in parts if isinstance(part, Timed)]
        batching = policy.batching
        self._poll = to_ticks(batching.poll_seconds) if isinstance(batching, Polls) else 0
        self._view, self._out = view, out
        self._waits_since: Ticks = 0
        self._look_at: Ticks = -1
        self._looks = False
        """Whether the event under way is the timer of a look."""
        self._set: set[Ticks] = set()

    def rang(self, at: Ticks) -> None:
        """A timer is over; live it rings a little after its instant."""
        self._set.discard(at)
        self._looks = at == self._look_at

    def ask(self) -> None:
        """The event under way is dealt with: set the timers that parts want now."""
        self._looks = False
        for part in self._timed:
            at = part.wake_at(self._view)
            if at is not None and at > self._view.now:
                self._wake(at)

    def begin_to_wait(self) -> None:
        """The trainer has nothing to do from now on: its looks are counted from here."""
        self._waits_since = self._view.now

    def may_look(self) -> bool:
        """Whether the trainer looks at its buffer now; if not, it is woken at its next look.

        Only the look after something happened is made: those before it would find what the last one found.
        """
        waited = self._view.now - self._waits_since
        if not self._poll or not waited or self._looks:
            return True
        self._look_at = self._waits_since + (waited // self._poll + 1) * self._poll
        self._wake(self._look_at)
        return False

    def _wake(self, at: Ticks) -> None:
        if at not in self._set:
            self._set.add(at)
            self._out.append(WakeAt(at))
