"""Exactly the groups that were generated for this step."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.view import Shape, View
from rlsim.policies.protocols import Batch


@dataclass(frozen=True, slots=True)
class ExactTarget:
    """Step t trains on the groups with target t and waits for the last of them (NeMo-RL)."""

    def start(self, shape: Shape) -> ExactTarget:
        """Nothing to check."""
        return self

    def select(self, view: View) -> Batch | None:
        """The groups of the step that begins next, once all are complete."""
        size, step = view.shape.prompts_per_step, view.steps_begun
        if len(view.ready) < size:
            return None
        wanted = tuple(sorted(group for group, found in view.ready.items() if found.target == step))
        return Batch(wanted) if len(wanted) == size else None
