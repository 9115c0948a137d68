"""Candidates are probed, and the best go on: PG-OPD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import GO_ON, Size, Verdict


@dataclass(frozen=True, slots=True)
class ProbeGuided:
    """Stand-in: all candidates run to a probe length; the ``group_size`` that agree best with the teacher go on.

    PG-OPD, systems list entry 2 (its abstract). Ours: candidates wait for nobody, so that the first to come to the
    probe run on until the last has come; those that ended before are kept. Numbers are ours. What the teacher's pass
    over the probes costs is not priced.
    """

    candidates: float = 2.0
    """As a multiple of ``group_size``."""
    probe_tokens: int = 256

    def start(self, shape: Shape) -> _Probing:
        """Refuse fewer candidates than are kept."""
        at_least("candidates", self.candidates, 1)
        at_least("probe_tokens", self.probe_tokens, 2)
        return _Probing(self)


class _Probing:
    aborts_surplus: ClassVar[bool] = True
    resizes: ClassVar[bool] = True

    def __init__(self, spec: ProbeGuided) -> None:
        self._spec = spec
        self._overlaps: dict[int, dict[int, float]] = {}
        """By group and sample."""

    def members(self, view: View, group: Group) -> Size:
        """All candidates: which ones will be needed is not known yet."""
        candidates = round(self._spec.candidates * view.shape.group_size)
        return Size(candidates, candidates)

    def watch(self, view: View, sample: Sample) -> Watch | None:
        """The overlap at the probe length, in the first turn."""
        return None if sample.turn else Watch("teacher-overlap", (self._spec.probe_tokens,))

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Once all have come to the probe length, or ended: the worst are given up."""
        overlaps = self._overlaps.setdefault(sample.group.group, {})
        overlaps[sample.sample] = value
        unended = [member for member in sample.group.members if member.state not in ("scoring", "ended")]
        if any(member.sample not in overlaps for member in unended):
            return GO_ON
        room = max(0, view.shape.group_size - (len(sample.group.members) - len(unended)))
        return Verdict(pruned=self._ranked(sample.group, unended)[room:])

    def unselected(self, view: View, group: Group) -> Sequence[Sample]:
        """The worst, where too many ended before there was a choice."""
        ranked = self._ranked(group, group.members)
        self._overlaps.pop(group.group, None)
        return ranked[view.shape.group_size :]

    def _ranked(self, group: Group, members: Sequence[Sample]) -> list[Sample]:
        """Best first; one that ended before the probe has nothing against it."""
        overlaps = self._overlaps.get(group.group, {})
        return sorted(members, key=lambda member: (-overlaps.get(member.sample, float("inf")), member.member))
