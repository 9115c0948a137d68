"""What strategies share whose groups are trees: a group has ``group_size`` members in all."""

from __future__ import annotations

from collections.abc import Sequence

from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, View


def room(view: View, group: Group) -> int:
    """Members that the group may still have."""
    return max(0, view.shape.group_size - group.launched)


def further_roots(view: View) -> list[tuple[int, int]]:
    """For every resting group, the members that it is short of."""
    return [(number, room(view, group)) for number, group in view.resting.items()]


def checked_marks(marks: Sequence[int]) -> None:
    """Refuse marks that are not ascending, or before the second token."""
    if not marks or min(marks) < 2 or list(marks) != sorted(set(marks)):
        raise ParameterError("marks", list(marks), "response tokens, ascending, from 2 on")
