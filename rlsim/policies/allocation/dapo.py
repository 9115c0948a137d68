"""Dynamic sampling: groups that teach nothing are thrown away and replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Group, Shape, View
from rlsim.policies.allocation.outcomes import agree
from rlsim.policies.bounds import at_least, several
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class DynamicSampling:
    """Train on groups whose rewards are not all the same; sample further prompts until there are enough.

    DAPO, arXiv 2503.14476 section 3.2 (there: accuracy neither 0 nor 1).
    """

    redundancy: int = 0
    """Samples of a prompt beyond ``group_size``; the first to end count."""
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> DynamicSampling:
        """Refuse a group that cannot have two rewards."""
        at_least("redundancy", self.redundancy, 0)
        several("dapo", shape)
        return self

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        return Size(view.shape.group_size + self.redundancy, view.shape.group_size)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def rejects(self, view: View, group: Group) -> bool:
        """Whether all its rewards are the same."""
        return agree(group.rewards)
