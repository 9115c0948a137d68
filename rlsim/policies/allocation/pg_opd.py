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

    PG-OPD, arXiv 2606.21994 (its abstract): the others stop at the prefix, and are trained on as far as they came. Our
    candidates wait for nobody, so that the first to come to the probe run on until the last has come; those that ended
    before count as going on. Numbers are ours. What the teacher's pass over the probes costs is not priced.
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
    signals: ClassVar[tuple[str, ...]] = ("teacher-overlap",)

    def __init__(self, spec: ProbeGuided) -> None:
        self._spec = spec
        self._overlaps: dict[int, dict[int, float]] = {}
        """By group and sample."""

    def members(self, view: View, group: Group) -> Size:
        """All candidates."""
        candidates = round(self._spec.candidates * view.shape.group_size)
        return Size(candidates, candidates)

    def watch(self, view: View, sample: Sample) -> Watch | None:
        """The overlap at the probe length, in the first turn."""
        return None if sample.turn else Watch("teacher-overlap", (self._spec.probe_tokens,))

    def noticed(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Once all have come to the probe length, or ended: the worst end here."""
        overlaps = self._overlaps.setdefault(sample.group.group, {})
        overlaps[sample.sample] = value
        unended = [member for member in sample.group.members if member.state not in ("scoring", "ended")]
        if any(member.sample not in overlaps for member in unended):
            return GO_ON
        room = max(0, view.shape.group_size - (len(sample.group.members) - len(unended)))
        return Verdict(truncated=self._ranked(sample.group, unended)[room:])

    def observe(self, view: View, group: Group) -> None:
        """Forget its overlaps."""
        self._overlaps.pop(group.group, None)

    def _ranked(self, group: Group, members: Sequence[Sample]) -> list[Sample]:
        """Best first; one that ended before the probe has nothing against it."""
        overlaps = self._overlaps.get(group.group, {})
        return sorted(members, key=lambda member: (-overlaps.get(member.sample, float("inf")), member.member))
