"""Trajectories that go their own pace, and trajectories that take every turn together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import RunSizes
from rlsim.policies.registry import part


@part("turns", "alone")
@dataclass(frozen=True, slots=True)
class Alone:
    """A trajectory goes on as soon as its own call or tool call has ended."""

    together: ClassVar[bool] = False

    def start(self, shape: RunSizes) -> Alone:
        """Nothing to check."""
        return self


@part("turns", "lock-step")
@dataclass(frozen=True, slots=True)
class LockStep:
    """All calls of a turn end before a tool is called, and all tool calls before the next turn begins.

    A vectorised environment with one batched generate call a turn: what asynchronous environments are compared with
    (WebGym, arXiv 2601.02439; RollArt's batch-level environments, arXiv 2512.22560). Trajectories admitted meanwhile
    begin at once.
    """

    together: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> LockStep:
        """Nothing to check."""
        return self
