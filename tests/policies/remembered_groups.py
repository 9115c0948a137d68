"""Groups by script for allocation parts that fork or remember: asked directly, without a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlsim.core.commands import Fork
from rlsim.core.loads import Loads
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.registry import make_part


def started(use: str, size: int = 4, **fields: Any) -> tuple[Any, View]:
    """A part and the view of a run that has just begun."""
    shape = RunSizes(3, size, 2, 64)
    part: Any = make_part("allocation", {"use": use, **fields}, "allocation")
    return part.start(shape), View(shape, Loads(2))


def grown(number: int, rewards: Sequence[float | None], prompt: int = 0, turns: int = 1, version: int = 0) -> Group:
    """A group of members that have earned these rewards, in as many turns each; None: still running."""
    group = Group(number, number, 0, 7, version, 0, prompt=prompt)
    for member, reward in enumerate(rewards):
        sample = Sample(100 * number + member, group, member)
        sample.reward, sample.state = reward, "running" if reward is None else "ended"
        sample.turn_starts = [(10 * turn, turn) for turn in range(turns)]
        group.members.append(sample)
    group.launched = group.needed = len(rewards)
    group.ended = sum(reward is not None for reward in rewards)
    return group


def branch_off(parent: Sample, turn: int, reward: float) -> Sample:
    """A further member that begins with a turn of another one, and has ended."""
    group = parent.group
    child = Sample(parent.sample + 50 + group.launched, group, group.launched)
    child.fork = Fork(parent.sample, turn, 0, parent.turn_starts[turn][0])
    child.turn_starts, child.reward, child.state = list(parent.turn_starts), reward, "ended"
    group.members.append(child)
    group.launched += 1
    return child


def remember(part: Any, view: View, group: Group) -> list[int]:
    """Train on a group, carrying out what the part forgets; those numbers."""
    view.kept[group.group] = group
    gone = list(part.trained(view, group))
    for number in gone:
        del view.kept[number]
    return gone
