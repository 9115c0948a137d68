"""The ways of publishing weights, by what becomes of calls under way."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.commands import UpdateMode
from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish every ``every_steps`` training steps in one of the modes."""

    mode: UpdateMode
    every_steps: int = 1
    resume_seconds: float = 0.0
    """Polling or retry interval of the clients of cut calls."""

    def start(self, shape: Shape) -> Publish:
        """Refuse a negative interval."""
        at_least("every_steps", self.every_steps, 1)
        at_least("resume_seconds", self.resume_seconds, 0)
        return self

    def due(self, view: View) -> bool:
        """Every so many steps."""
        return view.steps_done % self.every_steps == 0
