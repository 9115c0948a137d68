"""The fates of work that a batch did not take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from rlsim.core.errors import ParameterError
from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least


@dataclass(frozen=True, slots=True)
class KeepAll:
    """Everything runs on and waits its turn; age is bounded by admission alone."""

    ends_round: ClassVar[bool] = False
    keeps_unfinished: ClassVar[bool] = True
    keeps_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> KeepAll:
        """Nothing to check."""
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Nothing expires."""
        return ()


@dataclass(frozen=True, slots=True)
class EndRound:
    """A batch ends the round: the rest is aborted, and resumed in the next round or given up.

    Tools and scores cannot be cut: the round lasts until those under way have returned (slime issue 2176).
    """

    keeps_unfinished: bool = True
    """Resume aborted samples from their tokens (slime ``partial_rollout``)."""
    keeps_surplus: bool = False
    """Carry complete groups beyond the batch over (CoPRIS does, slime does not)."""
    ends_round: ClassVar[bool] = True

    def start(self, shape: Shape) -> EndRound:
        """Nothing to check."""
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Nothing expires."""
        return ()


@dataclass(frozen=True, slots=True)
class DropOld:
    """Drop complete groups that waited too long: by age in versions, or the oldest of a full ring buffer."""

    max_age_versions: int | None = None
    buffer_groups: int | None = None
    ends_round: ClassVar[bool] = False
    keeps_unfinished: ClassVar[bool] = True
    keeps_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> DropOld:
        """Refuse a buffer that can never hold a batch."""
        if self.max_age_versions is not None:
            at_least("max_age_versions", self.max_age_versions, 0)
        if self.buffer_groups is not None and self.buffer_groups < shape.prompts_per_step:
            allowed = f"at least prompts_per_step = {shape.prompts_per_step}: a smaller buffer never fills a batch"
            raise ParameterError("buffer_groups", self.buffer_groups, allowed)
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Groups too old, then the first ones beyond the buffer."""
        old: list[int] = []
        if self.max_age_versions is not None:
            limit = view.version - self.max_age_versions
            old = [group for group, found in view.ready.items() if found.version < limit]
        if self.buffer_groups is not None and len(view.ready) - len(old) > self.buffer_groups:
            rest = (group for group in view.ready if group not in old)
            old += islice(rest, len(view.ready) - len(old) - self.buffer_groups)
        return old
