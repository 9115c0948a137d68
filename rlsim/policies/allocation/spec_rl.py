"""An epoch's responses begin with those of the epoch before, as far as the weights still accept them: SPEC-RL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class SpecRl:
    """The last response to the same prompt is checked as a draft, member by member, and continued where it is rejected.

    SPEC-RL, arXiv 2509.23232: the draft is the sample of the previous epoch. Its lenience is not a parameter here: what
    share of a draft is accepted is the world's, ``learning.rejections_per_update``.
    """

    max_age_versions: int | None = None
    """Drafts trained on longer ago are not checked; None: however old they are. Not SPEC-RL's."""
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> Drafts:
        """Begin without drafts."""
        at_least("max_age_versions", self.max_age_versions or 0, 0)
        return Drafts(self)


@dataclass(slots=True)
class Drafts:
    """The last group of each prompt."""

    spec: SpecRl
    aborts_surplus: bool = True
    _last: dict[int, int] = field(default_factory=dict)
    """Group by prompt."""

    def members(self, view: View, group: Group) -> Size:
        """The same for every prompt."""
        return Size(view.shape.group_size, view.shape.group_size)

    def trained(self, view: View, group: Group) -> Sequence[int]:
        """Its members are the drafts of its prompt from now on."""
        before = self._last.get(group.prompt)
        self._last[group.prompt] = group.group
        return () if before is None else (before,)

    def draft(self, view: View, sample: Sample) -> Sample | None:
        """The member in the same place of the last group of the prompt."""
        group = view.kept.get(self._last.get(sample.group.prompt, -1))
        if group is None or self._too_old(view, group):
            return None
        return next((member for member in group.members if member.member == sample.member), None)

    def _too_old(self, view: View, group: Group) -> bool:
        oldest = self.spec.max_age_versions
        return oldest is not None and view.version - group.version > oldest
