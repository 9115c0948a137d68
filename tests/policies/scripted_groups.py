"""Groups with rewards by script, for allocation parts that are asked directly: no run, no chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlsim.core.loads import Loads
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.hooks import Offer
from rlsim.policies.registry import make_part


def made(use: str, prompts: int = 3, size: int = 4, seed: int = 0, **fields: Any) -> tuple[Any, View]:
    """A started part and the view of a run that has just begun."""
    shape = RunSizes(prompts, size, 2, 64, seed=seed)
    part: Any = make_part("allocation", {"use": use, **fields}, "allocation")
    return part.start(shape), View(shape, Loads(2))


def opened(part: Any, view: View, number: int, prompt: int | None = None, target: int = 0) -> Group:
    """A new group, with as many members as the part says."""
    group = Group(number, number, 0, 7, view.version, target, prompt=number if prompt is None else prompt)
    view.open[number] = group
    view.started_groups += 1
    size = part.members(view, group)
    group.needed = size.needed
    enlarge(group, size.launched)
    return group


def enlarge(group: Group, count: int) -> None:
    """Further members, that have not ended."""
    added = [Sample(1000 * group.group + group.launched + more, group, group.launched + more) for more in range(count)]
    group.members += added
    group.launched += count
    group.needed = group.launched


def rest(view: View, group: Group, rewards: Sequence[float]) -> None:
    """Members that have not ended earn these rewards, in order, and the group rests."""
    waiting = [member for member in group.members if member.state != "ended"]
    for member, reward in zip(waiting, rewards, strict=True):
        member.state, member.reward = "ended", reward
    group.ended = len(group.members)
    view.waiting_for_wave[group.group] = group


def extended(part: Any, view: View) -> dict[int, int]:
    """What the part says of resting groups, carried out: 0 closes a group."""
    told = dict(part.extend(view))
    for number, count in told.items():
        group = view.waiting_for_wave.pop(number)
        if count:
            enlarge(group, count)
        else:
            del view.open[number]
    return told


def complete(part: Any, view: View, prompt: int, rewards: Sequence[float], number: int = 0) -> Group:
    """A group of a prompt that came out so, told to the part; it is gone from the view."""
    group = Group(number, number, 0, 7, view.version, 0, prompt=prompt)
    enlarge(group, len(rewards))
    rest(view, group, rewards)
    del view.waiting_for_wave[number]
    part.observe(view, group)
    return group


def offers(*prompts: int, first: int = 0) -> list[Offer]:
    """Prompts of the loader, by number in the data set."""
    return [Offer(first + place, prompt, 7) for place, prompt in enumerate(prompts)]


def rewards_of(samples: Sequence[Sample]) -> list[float]:
    """Of some members."""
    return [sample.reward or 0.0 for sample in samples]
