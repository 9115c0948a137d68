"""Work too old for the batch that it would be in: prime-rl, open-instruct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least


@dataclass(frozen=True, slots=True)
class OffPolicySteps:
    """Drop a group admitted more than ``max_steps`` versions before the batch that it would be trained in.

    Complete groups fill batches in order of completion; batch number b, counted from 0, is trained by version b. So the
    time that a group will wait behind full batches counts (prime-rl ``orchestrator.py``: version below
    ``(step - 1) - max_off_policy_steps``; open-instruct ``data_loader.py``: ``training_step - model_step``). Needs a
    publication after every step.
    """

    max_steps: int = 8
    in_flight: bool = False
    """Whether open groups are judged too, by the batch being filled, when weights change; they are aborted."""
    lead_batches: int | None = None
    """Full batches that may wait for the trainer: groups behind them are judged as the next; None for no limit."""
    recycles: bool = False
    """Draw the prompts of dropped groups again, before new ones."""
    ends_round: ClassVar[bool] = False
    keeps_unfinished: ClassVar[bool] = True
    keeps_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> OffPolicySteps:
        """Refuse negative numbers."""
        at_least("max_steps", self.max_steps, 0)
        if self.lead_batches is not None:
            at_least("lead_batches", self.lead_batches, 0)
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Complete groups too old for their places."""
        old: list[int] = []
        for place, group in enumerate(view.ready.values()):
            if group.version < self._oldest(view, place - len(old)):
                old.append(group.group)
        return old

    def abandoned(self, view: View) -> Sequence[int]:
        """Open groups too old for the batch being filled."""
        if not self.in_flight:
            return ()
        limit = self._oldest(view, len(view.ready))
        return [number for number, group in view.open.items() if group.version < limit]

    def _oldest(self, view: View, place: int) -> int:
        """The oldest version that a group at a place in the queue may have."""
        ahead = place // view.shape.prompts_per_step
        if self.lead_batches is not None:
            ahead = min(ahead, self.lead_batches)
        return view.steps_begun + ahead - self.max_steps
