"""Synchronous rollout: one batch per weights version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class Barrier:
    """Admit exactly one batch of groups for each weights version, all of it at once; dropped groups are replaced."""

    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> Barrier:
        """Nothing to check."""
        return self

    def room(self, view: View) -> tuple[int, str]:
        """(publications tried + 1) batches in all."""
        admitted = view.started_groups - view.dropped_groups
        return (view.version + view.rejected + 1) * view.shape.prompts_per_step - admitted, "barrier"
