"""Allocation parts that only a test would write: one hook each, as blunt as can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rlsim.core.commands import Watch
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.hooks import GO_ON, Offer, Pick, Size, Verdict


@dataclass(frozen=True, slots=True)
class Plain:
    """Groups of the usual size."""

    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> Plain:
        return self

    def members(self, view: View, group: Group) -> Size:
        return Size(view.shape.group_size, view.shape.group_size)

    def observe(self, view: View, group: Group) -> None:
        """Every sample that counts has been scored."""
        assert len(group.rewards) == group.ended == group.needed


@dataclass(frozen=True, slots=True)
class TwoWaves(Plain):
    """One more sample for a group whose rewards are all the same."""

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        size = view.shape.group_size
        return [
            (number, int(group.ended == size and len(set(group.rewards)) < 2))
            for number, group in view.waiting_for_wave.items()
        ]


@dataclass(frozen=True, slots=True)
class Together(Plain):
    """A second wave for all groups of a batch, once the whole batch rests."""

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        first = next(iter(view.open.values())).target
        batch = [group for group in view.waiting_for_wave.values() if group.target == first]
        if any(group.ended > view.shape.group_size for group in batch):
            return [(group.group, 0) for group in batch]
        return [(group.group, 1) for group in batch] if len(batch) == view.shape.prompts_per_step else []


@dataclass(frozen=True, slots=True)
class EveryThird(Plain):
    """Every third complete group is thrown away."""

    def rejects(self, view: View, group: Group) -> bool:
        return group.group % 3 == 1


@dataclass(frozen=True, slots=True)
class Halves(Plain):
    """Groups of twice the size, of which half is trained on."""

    def members(self, view: View, group: Group) -> Size:
        return Size(2 * view.shape.group_size, 2 * view.shape.group_size)

    def unselected(self, view: View, group: Group) -> Sequence[Sample]:
        return group.members[view.shape.group_size :]


@dataclass(frozen=True, slots=True)
class Backwards(Plain):
    """The last of four prompts, and the first is never sampled."""

    candidates: ClassVar[int] = 4

    def pick(self, view: View, offers: Sequence[Offer]) -> Pick:
        assert len(offers) == self.candidates
        return Pick(3, (0,))


@dataclass(frozen=True, slots=True)
class Capped(Plain):
    """Responses end after ``tokens``."""

    tokens: int = 20

    def cap_tokens(self, view: View, sample: Sample) -> int:
        return self.tokens


@dataclass(frozen=True, slots=True)
class Pruner(Plain):
    """Of a group, whoever comes to a mark while another runs ends the others."""

    told: list[tuple[int, int]] = field(default_factory=list)
    signals: ClassVar[tuple[str, ...]] = ("quality",)

    def watch(self, view: View, sample: Sample) -> Watch:
        return Watch("quality", (8, 16))

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        if tokens == 8:
            return GO_ON
        return Verdict([other for other in sample.group.members if other is not sample and other.state != "ended"])


@dataclass(frozen=True, slots=True)
class Cutter(Plain):
    """Whoever comes to a mark ends there; the first of a group ends all of it, but for the last member."""

    signals: ClassVar[tuple[str, ...]] = ("confidence",)

    def watch(self, view: View, sample: Sample) -> Watch:
        return Watch("confidence", (4, 12, 20))

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        if tokens == 4:
            return Verdict(truncated=[sample] if sample.member == 1 else ())
        last = sample.group.members[-1]
        return Verdict(truncated=[other for other in sample.group.members if other is not last or tokens == 20])


_ALL = (TwoWaves, Together, EveryThird, Halves, Backwards, Capped, Pruner, Cutter)
PARTS = [f"{__name__}:{cls.__name__}" for cls in _ALL]
