"""A sampling budget for prompts and for prefixes that may still come out either way: TRACE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.allocation.trees import room
from rlsim.policies.bounds import at_least
from rlsim.policies.hooks import Size


@dataclass(frozen=True, slots=True)
class Trace:
    """Stand-in: after ``roots`` samples, the rest go ``width`` at a time to the anchor with the largest p (1 - p).

    TRACE (systems list 1) spends a fixed budget on prompts and turn-level prefixes most likely to give mixed rewards,
    by a shared predictor of success given the prefix. Here the predictor mixes, by the share f of its turns that an
    anchor has behind it, the group's rewards and those of the members that came through it: p = (1 - f) g + f a, g with
    one success and one failure added. The prompt is the anchor with f = 0.
    """

    roots: int | None = None
    """Samples that begin at the prompt; None: half of ``group_size``."""
    width: int = 2
    """New members at an anchor, before the rewards are looked at again."""
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: Shape) -> Trace:
        """Refuse more roots than samples."""
        if self.roots is not None and not 1 <= self.roots <= shape.group_size:
            raise ParameterError("roots", self.roots, f"from 1 to workload.group_size = {shape.group_size}")
        at_least("width", self.width, 1)
        return self

    def members(self, view: View, group: Group) -> Size:
        """The roots."""
        roots = self.roots or max(1, view.shape.group_size // 2)
        return Size(roots, roots)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered beyond the group."""

    def regrow(self, view: View, group: Group) -> Sequence[tuple[Sample, int, int]]:
        """Members at the best anchor, while the budget lasts; of equal ones the one nearest to the prompt."""
        count = min(self.width, room(view, group))
        if not count:
            return ()
        sample, turn = max(_anchors(group), key=lambda anchor: _mixed(group, *anchor))
        return [(sample, turn, count)]


def _anchors(group: Group) -> Iterator[tuple[Sample, int]]:
    """The prompt, and every turn that a member began and its parent did not, in order of turns."""
    yield group.members[0], 0
    own = [(turn, sample) for sample in group.members for turn in range(_first(sample), len(sample.turn_starts))]
    yield from ((sample, turn) for turn, sample in sorted(own, key=lambda anchor: (anchor[0], anchor[1].member)))


def _first(sample: Sample) -> int:
    return 1 if sample.fork is None else sample.fork.turn + 1


def _mixed(group: Group, sample: Sample, turn: int) -> float:
    """Chance, up to a factor, that two samples from the anchor come out differently."""
    rewards = group.rewards
    overall = (sum(rewards) + 1) / (len(rewards) + 2)
    share = turn / len(sample.turn_starts)
    through = [member.reward or 0.0 for member in group.members if _comes_through(member, sample, turn)]
    likely = (1 - share) * overall + share * sum(through) / len(through)
    return likely * (1 - likely)


def _comes_through(member: Sample, sample: Sample, turn: int) -> bool:
    """Whether a member is the sample, or branched off it at that turn or later."""
    fork = member.fork
    return member is sample or (fork is not None and fork.parent == sample.sample and fork.turn >= turn)
