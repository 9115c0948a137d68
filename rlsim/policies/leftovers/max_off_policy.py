"""Complete groups are dropped, or waited for, by the versions that they span: verl's V1 trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least


@dataclass(frozen=True, slots=True)
class MaxOffPolicy:
    """With ``drop``, a complete group goes when ``version - its version + 1`` exceeds the threshold.

    The batch is refilled with new prompts. With ``wait`` nothing is dropped: the batching part waits instead (verl
    ``trainer/ppo/v1/replay_buffer.py``).
    """

    max_off_policy_threshold: int = 8
    """In weights versions, 1 for those served."""
    max_off_policy_strategy: Literal["drop", "wait"] = "drop"
    ends_round: bool = False
    """Whether a batch aborts what is still generating, to be resumed after the step (``colocate_async``)."""
    keeps_unfinished: ClassVar[bool] = True
    keeps_surplus: ClassVar[bool] = True
    recycles: ClassVar[bool] = False

    def start(self, shape: Shape) -> MaxOffPolicy:
        """Refuse a threshold that drops even what the served weights made."""
        at_least("max_off_policy_threshold", self.max_off_policy_threshold, 1)
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Complete groups beyond the threshold."""
        if self.max_off_policy_strategy == "wait":
            return ()
        oldest = view.version + 1 - self.max_off_policy_threshold
        return [number for number, group in view.ready.items() if group.version < oldest]

    def abandoned(self, view: View) -> Sequence[int]:
        """Groups under way run on."""
        return ()
