"""What allocations share that decide about responses under way, and leave the number of samples as it is."""

from __future__ import annotations

from typing import ClassVar

from rlsim.core.view import Group, View
from rlsim.policies.allocation.outcomes import usual
from rlsim.policies.hooks import Size


class WholeGroups:
    """``group_size`` samples of every prompt, and all of them are needed."""

    __slots__ = ()
    aborts_surplus: ClassVar[bool] = True

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        return usual(view)


def every(tokens: int, last: int) -> tuple[int, ...]:
    """Marks so many tokens apart, up to the last."""
    return tuple(range(tokens, last + 1, tokens))
