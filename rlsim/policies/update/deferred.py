"""Publication put off while the replicas are busy and their weights not too old: AsyncFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.commands import UpdateMode
from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least


class Deferral:
    """How old the weights of the replicas are."""

    mode: ClassVar[UpdateMode] = "drain"
    resume_seconds: ClassVar[float] = 0.0

    def __init__(self, steps: int) -> None:
        self.every_steps, self._published = steps, 0

    def due(self, view: View) -> bool:
        """When no group is open, or the weights served are as old as they may be."""
        due = not view.open or view.steps_done - self._published >= self.every_steps
        if due:
            self._published = view.steps_done
        return due


@dataclass(frozen=True, slots=True)
class Deferred:
    """Publish after a step if no group is open, and at the latest after ``max_steps_behind`` steps.

    Our reading of AsyncFlow's delayed weight updates (arXiv 2507.01663), which are put off while staleness stays under
    a threshold. Publication waits until calls under way have ended.
    """

    max_steps_behind: int = 1
    """Training steps that the weights served may be behind; 1 publishes after every step."""

    def start(self, shape: Shape) -> Deferral:
        """Refuse less than one step."""
        at_least("max_steps_behind", self.max_steps_behind, 1)
        return Deferral(self.max_steps_behind)
