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
    samples: int | None = None
    """Of a group, instead of ``workload.group_size``; None for that."""

    def start(self, shape: Shape) -> Uniform:
        """Refuse a negative redundancy, and a group without samples."""
        at_least("redundancy", self.redundancy, 0)
        if self.samples is not None:
            at_least("samples", self.samples, 1)
        return self

    @property
    def resizes(self) -> bool:
        """Whether groups have a size of their own."""
        return self.samples is not None

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        needed = self.samples or view.shape.group_size
        return Size(needed + self.redundancy, needed)
