"""Crews of which little or nothing is real: fake engines, and trainer, tools and rewards paced by the costs."""

from __future__ import annotations

from collections.abc import Callable

from rlsim.live.clock import Clock
from rlsim.live.crew import Crew, Pace
from rlsim.live.fake import FakeEngine
from rlsim.live.paced import PacedRewards, PacedTools, PacedTrainer
from rlsim.world.calls import Calls
from rlsim.world.world import World


def fake_crew(world: World, clock: Clock) -> Crew:
    """Fake engines, and all else paced by the world's costs."""
    books: list[Calls] = []

    def calls(version: Callable[[int], int]) -> Calls:
        books.append(Calls(world, version))
        return books[0]

    return Crew(
        [FakeEngine(replica, clock) for replica in world.replicas],
        PacedTrainer(clock, world, lambda sample: books[0].lengths(sample)),
        calls,
        paced_tools(world, clock, lambda sample: books[0]),
        paced_rewards(world, clock, lambda sample: books[0]),
        pace=pace_of(world),
    )


def pace_of(world: World) -> Pace:
    """Publication and role switches by the world's costs."""
    return Pace(world.sync_ticks, world.to_training_ticks, world.to_rollout_ticks, world.pull_time)


def paced_tools(world: World, clock: Clock, book: Callable[[int], Calls]) -> PacedTools:
    """Tools by the workload's laws."""
    workload = world.workload

    def place(sample: int, turn: int) -> tuple[int, int, int, int]:
        found = book(sample).trajectories[sample]
        return found.prompt, found.attempt, found.member, turn

    return PacedTools(
        clock,
        lambda command: workload.tool_latency_seconds(*place(command.sample, command.turn)),
        lambda command: range(workload.tool_output_tokens(*place(command.sample, command.turn))),
    )


def paced_rewards(world: World, clock: Clock, book: Callable[[int], Calls]) -> PacedRewards:
    """Rewards by the workload's laws."""

    def seconds(sample: int) -> float:
        found = book(sample).trajectories[sample]
        return world.workload.reward_latency_seconds(found.prompt, found.attempt, found.member)

    return PacedRewards(clock, lambda command: seconds(command.sample))
