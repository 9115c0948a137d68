"""Branching: samples of a group share prefixes, so that tokens are spent behind states that may still go either way.

Samples fork at marks where they are uncertain (Spark, AEPO, BranchGRPO), as widely as their confidence allows (ECHO,
LATR), or groups grow from the turns of members that have ended (TRACE). A group has ``group_size`` members in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

from rlsim.core.checks import at_least
from rlsim.core.commands import Watch
from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.hooks import GO_ON, Size, Verdict
from rlsim.policies.registry import part


def members_left(view: View, group: Group) -> int:
    """Members that the group may still have."""
    return max(0, view.shape.group_size - group.launched)


def checked_marks(marks: Sequence[int]) -> None:
    """Refuse marks that are not ascending, or before the second token."""
    if not marks or min(marks) < 2 or list(marks) != sorted(set(marks)):
        raise ParameterError("marks", list(marks), "response tokens, ascending, from 2 on")


def checked_roots(roots: int, shape: RunSizes) -> None:
    """Refuse more roots than samples."""
    if not 1 <= roots <= shape.group_size:
        raise ParameterError("roots", roots, f"from 1 to workload.group_size = {shape.group_size}")


class _Tree:
    """Groups whose samples are looked at at marks and may fork there; what no fork used begins at the prompt."""

    aborts_surplus: ClassVar[bool] = True

    def __init__(self, spec: Spark | Echo) -> None:
        self._roots, self._watch = spec.roots, Watch(spec.signal, spec.marks)
        self.signals = (spec.signal,)

    def members(self, view: View, group: Group) -> Size:
        """The roots."""
        return Size(self._roots, self._roots)

    def watch(self, view: View, sample: Sample) -> Watch:
        """Every call, at the marks."""
        return self._watch

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        """What is left of a group whose members have ended begins at the prompt."""
        return [(number, members_left(view, group)) for number, group in view.waiting_for_wave.items()]


@part("allocation", "spark")
@dataclass(frozen=True, slots=True)
class Spark:
    """Stand-in: of ``group_size`` samples ``roots`` begin at the prompt, the others where a signal passes a threshold.

    Spark (systems list 84) branches at critical states that the agent's own signals show. What no critical state used
    is sampled from the prompt in a second wave. AEPO (33): ``most_in_a_row: 1``, so that uncertain turns that follow
    each other do not all branch; its split of the budget by entropy measured beforehand is ``roots``. BranchGRPO (96):
    ``threshold: null``, with marks at which every sample branches.
    """

    roots: int = 1
    """Samples that begin at the prompt."""
    marks: tuple[int, ...] = (2,)
    """Response tokens of a turn at which it is looked at."""
    signal: str = "entropy"
    """Reading that is compared (:mod:`rlsim.learning`)."""
    threshold: float | None = 0.5
    """Reading from which on a state is critical; None: every one is."""
    width: int = 1
    """New members at a critical state."""
    most_in_a_row: int | None = None
    """Critical states of a sample that follow each other and branch; None: all."""
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> Sparks:
        """Refuse more roots than samples."""
        checked_roots(self.roots, shape)
        at_least("width", self.width, 1)
        at_least("most_in_a_row", 1 if self.most_in_a_row is None else self.most_in_a_row, 1)
        checked_marks(self.marks)
        return Sparks(self)


class Sparks(_Tree):
    """How many critical states in a row each running sample has had."""

    def __init__(self, spec: Spark) -> None:
        super().__init__(spec)
        self.spec, self._row = spec, dict[int, int]()

    def observe(self, view: View, group: Group) -> None:
        """Forget the group."""
        for sample in group.members:
            self._row.pop(sample.sample, None)

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """Nobody is given up."""
        return GO_ON

    def branch(self, view: View, sample: Sample, tokens: int, value: float | None) -> int:
        """As many as are left of the group, at a critical state."""
        if value is None:
            return 0
        spec = self.spec
        if spec.threshold is not None and value < spec.threshold:
            self._row[sample.sample] = 0
            return 0
        parent = -1 if sample.fork is None else sample.fork.parent
        row = self._row[sample.sample] = 1 + self._row.get(sample.sample, self._row.get(parent, 0))
        if spec.most_in_a_row is not None and row > spec.most_in_a_row:
            return 0
        return min(spec.width, members_left(view, sample.group))


_NORMAL = NormalDist()


@part("allocation", "echo")
@dataclass(frozen=True, slots=True)
class Echo:
    """Stand-in: at a mark round(max_width * h * (1 - g)) new members, h = 4 c (1 - c) of the sample's confidence c.

    g is the mean of the last c of the group; c = Phi(reading). A sample whose c is below ``low`` at ``patience`` marks
    in a row is given up, unless it is the last one. ECHO (systems list 13) has width and pruning from entropy and
    confidence, in a form not known to us. LATR (147) looks ahead for some tokens after a branch and prunes what stays
    similar: ``patience: 1`` with marks as far apart as it looks ahead, low confidence in the place of similarity.
    """

    roots: int = 2
    """Samples that begin at the prompt."""
    marks: tuple[int, ...] = (64, 256, 1024)
    """Response tokens of a turn at which it is looked at."""
    max_width: int = 4
    low: float = 0.2
    patience: int = 2
    signal: str = "confidence"
    aborts_surplus: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> Confidences:
        """Refuse more roots than samples."""
        checked_roots(self.roots, shape)
        if not 0 <= self.low < 1:
            raise ParameterError("low", self.low, "from 0 to below 1")
        at_least("max_width", self.max_width, 0)
        at_least("patience", self.patience, 1)
        checked_marks(self.marks)
        return Confidences(self)


class Confidences(_Tree):
    """The last confidence of each sample, and at how many marks in a row it was low."""

    def __init__(self, spec: Echo) -> None:
        super().__init__(spec)
        self.spec, self._last, self._low = spec, dict[int, float](), dict[int, int]()

    def observe(self, view: View, group: Group) -> None:
        """Forget the group."""
        for sample in group.members:
            self._last.pop(sample.sample, None)
            self._low.pop(sample.sample, None)

    def on_watch(self, view: View, sample: Sample, tokens: int, value: float) -> Verdict:
        """The sample itself, once it has been unsure for too long and others are left."""
        sure = self._last[sample.sample] = _NORMAL.cdf(value)
        low = self._low[sample.sample] = self._low.get(sample.sample, 0) + 1 if sure < self.spec.low else 0
        gone = low >= self.spec.patience and len(sample.group.members) > 1
        return Verdict(pruned=(sample,)) if gone else GO_ON

    def branch(self, view: View, sample: Sample, tokens: int, value: float | None) -> int:
        """By the entropy of its confidence, and the confidence of its group."""
        if value is None:
            return 0
        sure = self._last[sample.sample]
        known = [self._last[member.sample] for member in sample.group.members if member.sample in self._last]
        width = self.spec.max_width * 4 * sure * (1 - sure) * (1 - sum(known) / len(known))
        return min(round(width), members_left(view, sample.group))


@part("allocation", "trace")
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

    def start(self, shape: RunSizes) -> Trace:
        """Refuse more roots than samples."""
        if self.roots is not None:
            checked_roots(self.roots, shape)
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
        count = min(self.width, members_left(view, group))
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
    through = [
        member.reward or 0.0
        for member in group.members
        if member is sample  # Or it branched off the sample at that turn or later.
        or (member.fork is not None and member.fork.parent == sample.sample and member.fork.turn >= turn)
    ]
    likely = (1 - share) * overall + share * sum(through) / len(through)
    return likely * (1 - likely)
