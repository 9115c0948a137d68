"""The same number of samples for every prompt, and perhaps some to spare."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.view import Group, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class Uniform:
    """``group_size`` samples and ``redundancy`` more; a group is complete with the first ``group_size`` that end."""

    redundancy: int = 0
    aborts_surplus: bool = True
    """Whether what a complete group no longer needs is aborted, or runs on to be thrown away."""

    def start(self, shape: Shape) -> Uniform:
        """Refuse a negative redundancy."""
        at_least("redundancy", self.redundancy, 0)
        return self

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        return Size(view.shape.group_size + self.redundancy, view.shape.group_size)
