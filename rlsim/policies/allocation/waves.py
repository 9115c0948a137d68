"""Waves: a first share of the samples for every prompt, the rest where it pays once the rewards are known.

Groups that fail are rescued a few samples at a time (AERO). The others decide for a whole batch, which waits until
its last sample has ended: in proportion to reward variance (Pilot-Commit), round after round on the most varied
prompts (VIGOR), or where the estimate of success becomes surest (XRPO).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.checks import at_least, fraction, several
from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.allocation.estimators import Belief, agree, first_wave, shared_out, solved, variance
from rlsim.policies.hooks import Size
from rlsim.policies.registry import part


class BatchWaves:
    """Batches that wait for a wave, by training step.

    A batch waits when each of its open groups does, and either all of it was opened or nothing else runs: admission
    that waits for the batch itself is not waited for.
    """

    def __init__(self) -> None:
        self._opened: Counter[int] = Counter()
        self._nothing: tuple[int, int, int] | None = None
        """Groups begun, ended and waiting when no batch was."""

    def opened(self, group: Group) -> None:
        """A group was opened."""
        self._opened[group.target] += 1

    def waiting(self, view: View) -> list[list[Group]]:
        """Groups by batch, in order of admission; whoever gets them lets them go on, or be complete."""
        looks = (view.started_groups, view.left_groups, len(view.waiting_for_wave))
        if looks == self._nothing:  # Asked after every event: nothing began to wait since.
            return []
        batches: dict[int, list[Group]] = {}
        for group in view.open.values():
            batches.setdefault(group.target, []).append(group)
        nothing_runs = len(view.waiting_for_wave) == len(view.open)
        waiting = [
            groups
            for target, groups in batches.items()
            if all(group.group in view.waiting_for_wave for group in groups)
            and (nothing_runs or self._opened[target] >= view.shape.prompts_per_step)
        ]
        self._nothing = None if waiting else looks
        return waiting


@part("allocation", "aero")
@dataclass(frozen=True, slots=True)
class Aero:
    """Stand-in: groups that all fail get a few samples more, until one succeeds or they are as large as others.

    AERO, arXiv 2602.14338, after its abstract and published summaries: exploration, iterated rescue within the rollouts
    of uniform groups, failures thinned out by the successes. Ours are the numbers, that no group has more than
    ``group_size``, and that successes are thinned out where they prevail. Its posterior, which gives groups that agree
    an advantage, is not simulated: such a group keeps one sample, which teaches nothing.
    """

    first_share: float = 0.5
    """Of ``group_size``, launched at once; rounded up, at least 2."""
    rescue_samples: int = 2
    """Launched at a time where all have failed so far."""
    most_ratio: float = 3.0
    """Samples trained on of the more frequent outcome, for each of the other."""

    def start(self, shape: RunSizes) -> _Rescuing:
        """Refuse waves without samples, and groups of one."""
        several("aero", shape)
        fraction("first_share", self.first_share)
        at_least("rescue_samples", self.rescue_samples, 1)
        at_least("most_ratio", self.most_ratio, 1)
        return _Rescuing(self, shape)


class _Rescuing:
    aborts_surplus = True

    def __init__(self, part: Aero, shape: RunSizes) -> None:
        self._part, self._most = part, shape.group_size
        self._first = max(2, math.ceil(part.first_share * shape.group_size))

    def members(self, view: View, group: Group) -> Size:
        return Size(self._first, self._first)

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        further = []
        for number, group in view.waiting_for_wave.items():
            failed = not any(solved(reward) >= 0.5 for reward in group.rewards)
            more = max(0, min(self._part.rescue_samples, self._most - group.launched))
            further.append((number, more if failed else 0))
        return further

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def unselected(self, view: View, group: Group) -> Sequence[Sample]:
        if agree(group.rewards):
            return group.members[1:]
        won = [sample for sample in group.members if solved(sample.reward or 0.0) >= 0.5]
        lost = [sample for sample in group.members if sample not in won]
        fewer, more = sorted((won, lost), key=len)
        return more[max(1, math.floor(self._part.most_ratio * len(fewer))) :] if fewer else ()


@part("allocation", "pilot-commit")
@dataclass(frozen=True, slots=True)
class PilotCommit:
    """Stand-in: a share of the batch's samples as pilots, then the rest in proportion to observed reward variance.

    Pilot-Commit (systems list entry 56) has the two stages; estimate and shares are ours. The second stage waits for
    the pilots of the whole batch: a barrier. Prompts without signal get no more, and stay in the batch with their
    pilots.
    """

    pilot_fraction: float = 0.25
    """Of ``group_size``, as pilots of each prompt; rounded up, at least 2."""
    most_ratio: float = 4.0
    """Samples of one prompt, as a multiple of ``group_size``; what no prompt may have is saved."""

    def start(self, shape: RunSizes) -> _Committing:
        """Refuse a fraction that leaves nothing to commit, and groups of one."""
        several("pilot-commit", shape)
        fraction("pilot_fraction", self.pilot_fraction)
        at_least("most_ratio", self.most_ratio, 1)
        return _Committing(self, shape)


class _Committing:
    aborts_surplus = True

    def __init__(self, part: PilotCommit, shape: RunSizes) -> None:
        self._pilots = max(2, math.ceil(part.pilot_fraction * shape.group_size))
        self._rest = shape.group_size - self._pilots
        self._most = math.floor(part.most_ratio * shape.group_size) - self._pilots
        self._waves = BatchWaves()

    def members(self, view: View, group: Group) -> Size:
        self._waves.opened(group)
        return Size(self._pilots, self._pilots)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        further: list[tuple[int, int]] = []
        for groups in self._waves.waiting(view):
            pilots = [group for group in groups if first_wave(group, self._pilots)]
            more = shared_out(len(pilots) * self._rest, [variance(group.rewards) for group in pilots], self._most)
            further += [(group.group, 0) for group in groups if group not in pilots]
            further += [(group.group, count) for group, count in zip(pilots, more, strict=True)]
        return further


@part("allocation", "vigor")
@dataclass(frozen=True, slots=True)
class Vigor:
    """Stand-in: equal rounds, each on the ``kept`` share of the last one's prompts with the largest reward variance.

    VIGOR (systems list entry 3): few samples of each prompt first, later rounds where observed variance is largest,
    until the budget is spent; equal rounds and a fixed share are ours. Every round waits for the one before: a barrier
    each.
    """

    rounds: int = 3
    """Including the first; each has ``group_size / rounds`` samples for every prompt of the batch, on average."""
    kept: float = 0.5
    """Prompts of a round that the next one goes on with, rounded up; prompts whose rewards agree are not among them."""

    def start(self, shape: RunSizes) -> _Refining:
        """Refuse a first round in which rewards cannot differ."""
        several("vigor", shape)
        at_least("rounds", self.rounds, 1)
        if shape.group_size < 2 * self.rounds:
            raise ParameterError("rounds", self.rounds, f"at most group_size / 2 = {shape.group_size // 2}")
        if not 0 < self.kept <= 1:
            raise ParameterError("kept", self.kept, "above 0, at most 1")
        return _Refining(self, shape)


class _Refining:
    aborts_surplus = True

    def __init__(self, part: Vigor, shape: RunSizes) -> None:
        self._part, self._size = part, shape.group_size
        self._first = shape.group_size // part.rounds
        self._waves = BatchWaves()
        self._spent: dict[int, tuple[int, int]] = {}
        """By training step: prompts of its first round, rounds made."""

    def members(self, view: View, group: Group) -> Size:
        self._waves.opened(group)
        return Size(self._first, self._first)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [further for groups in self._waves.waiting(view) for further in self._next_round(groups)]

    def _next_round(self, groups: Sequence[Group]) -> list[tuple[int, int]]:
        step = groups[0].target
        prompts, done = self._spent.get(step, (len(groups), 1))
        varied = [group for group in groups if variance(group.rewards) > 0]
        if done == self._part.rounds or not varied:
            self._spent.pop(step, None)
            return [(group.group, 0) for group in groups]
        self._spent[step] = (prompts, done + 1)
        best = sorted(varied, key=lambda group: -variance(group.rewards))[: math.ceil(self._part.kept * len(groups))]
        total = self._due(prompts, done + 1) - self._due(prompts, done)
        more = dict(zip((group.group for group in best), shared_out(total, [1.0] * len(best), total), strict=True))
        return [(group.group, more.get(group.group, 0)) for group in groups]

    def _due(self, prompts: int, rounds: int) -> int:
        """Samples of a batch after so many rounds."""
        return prompts * (self._first + (self._size - self._first) * (rounds - 1) // max(1, self._part.rounds - 1))


@part("allocation", "xrpo")
@dataclass(frozen=True, slots=True)
class Xrpo:
    """Stand-in: half of the samples to every prompt, the rest one by one to the prompt whose mean becomes surest.

    XRPO (systems list entry 88) allocates by uncertainty reduction; its priority is not given in the abstract. Ours is
    the fall of sqrt(p (1 - p) / n) with p = (1 + successes) / (2 + n). The second wave waits for the whole batch: a
    barrier. Exemplars that are put into prompts nobody solves, and novelty, are not simulated.
    """

    first_share: float = 0.5
    """Of ``group_size``, launched for every prompt; rounded up, at least 2."""
    most_ratio: float = 4.0
    """Samples of one prompt, as a multiple of ``group_size``."""

    def start(self, shape: RunSizes) -> _Surer:
        """Refuse groups of one."""
        several("xrpo", shape)
        fraction("first_share", self.first_share)
        at_least("most_ratio", self.most_ratio, 1)
        return _Surer(self, shape)


class _Surer:
    aborts_surplus = True

    def __init__(self, part: Xrpo, shape: RunSizes) -> None:
        self._first = max(2, math.ceil(part.first_share * shape.group_size))
        self._rest = shape.group_size - self._first
        self._most = math.floor(part.most_ratio * shape.group_size)
        self._waves = BatchWaves()

    def members(self, view: View, group: Group) -> Size:
        self._waves.opened(group)
        return Size(self._first, self._first)

    def observe(self, view: View, group: Group) -> None:
        """Nothing is remembered."""

    def extend(self, view: View) -> Sequence[tuple[int, int]]:
        return [further for groups in self._waves.waiting(view) for further in self._shared(groups)]

    def _shared(self, groups: Sequence[Group]) -> list[tuple[int, int]]:
        fresh = [group for group in groups if first_wave(group, self._first)]
        deviations = [_deviation(group.rewards) for group in fresh]
        more = surest(deviations, [group.ended for group in fresh], len(fresh) * self._rest, self._most)
        done = [(group.group, 0) for group in groups if group not in fresh]
        return done + [(group.group, count) for group, count in zip(fresh, more, strict=True)]


def _deviation(rewards: Sequence[float]) -> float:
    success = Belief().told(rewards).mean
    return math.sqrt(success * (1 - success))


def surest(deviations: Sequence[float], counts: Sequence[int], total: int, most: int) -> list[int]:
    """Further samples, each to whoever's deviation / sqrt(n) falls most while n < ``most``; first among equals."""

    def gain(place: int, count: int) -> float:
        return deviations[place] * (1 / math.sqrt(max(1, count)) - 1 / math.sqrt(count + 1))

    now = list(counts)
    queue = [(-gain(place, count), place) for place, count in enumerate(now) if count < most]
    heapq.heapify(queue)
    for _ in range(total):
        if not queue:
            break
        place = queue[0][1]
        now[place] += 1
        if now[place] < most:
            heapq.heapreplace(queue, (-gain(place, now[place]), place))
        else:
            heapq.heappop(queue)
    return [count - before for count, before in zip(now, counts, strict=True)]
