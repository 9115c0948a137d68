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
    recycles: ClassVar[bool] = False

    def start(self, shape: Shape) -> KeepAll:
        """Nothing to check."""
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Nothing expires."""
        return ()

    def abandoned(self, view: View) -> Sequence[int]:
        """Nothing is given up."""
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
    recycles: bool = False
    """Draw the prompts of dropped groups again, before new ones."""
    ends_round: ClassVar[bool] = True

    def start(self, shape: Shape) -> EndRound:
        """Nothing to check."""
        return self

    def expired(self, view: View) -> Sequence[int]:
        """Nothing expires."""
        return ()

    def abandoned(self, view: View) -> Sequence[int]:
        """Nothing is given up."""
        return ()


@dataclass(frozen=True, slots=True)
class DropOld:
    """Drop what waited too long: groups by age in versions, and the oldest of a full ring buffer."""

    max_age_versions: int | None = None
    """Of complete groups in the buffer, counted from their admission."""
    max_open_age_versions: int | None = None
    """Of groups still generating; they are aborted."""
    buffer_groups: int | None = None
    recycles: bool = False
    """Draw the prompts of dropped groups again, before new ones."""
    ends_round: ClassVar[bool] = False
    keeps_unfinished: ClassVar[bool] = True
    keeps_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> DropOld:
        """Refuse a buffer that can never hold a batch."""
        for name in ("max_age_versions", "max_open_age_versions"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 0)
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

    def abandoned(self, view: View) -> Sequence[int]:
        """Open groups admitted too many versions ago."""
        if self.max_open_age_versions is None:
            return ()
        limit = view.version - self.max_open_age_versions
        return [number for number, group in view.open.items() if group.version < limit]
