"""The ways of publishing weights, by what becomes of calls under way."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlsim.core.commands import UpdateMode
from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish every ``every_steps`` training steps in one of the modes, or after so many samples."""

    mode: UpdateMode
    every_steps: int = 1
    every_samples: int | None = None
    """Samples trained on, rounded up to whole steps; None to count steps."""
    resume_seconds: float = 0.0
    """Polling or retry interval of the clients of cut calls."""

    def start(self, shape: Shape) -> Publish:
        """Refuse a negative interval."""
        at_least("every_steps", self.every_steps, 1)
        at_least("resume_seconds", self.resume_seconds, 0)
        if self.every_samples is None:
            return self
        at_least("every_samples", self.every_samples, 1)
        return replace(self, every_steps=-(-self.every_samples // (shape.prompts_per_step * shape.group_size)))

    def due(self, view: View) -> bool:
        """Every so many steps."""
        return view.steps_done % self.every_steps == 0
