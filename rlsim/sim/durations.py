"""How long what the simulator carries out takes, engine steps aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rlsim.core.commands import CallTool, Score, SetRole, Submit, Sync, Train
from rlsim.core.events import Finished
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.executor.system import Phases, System

Place = tuple[int, int, int]
"""(prompt, attempt, member)."""


class Durations(Protocol):
    """Asked once for every command, in the order in which they are carried out."""

    def way(self, command: Submit) -> Ticks:
        """Of a call to its engine."""
        ...

    def report(self, ended: Finished) -> Ticks:
        """Of the end of a call to the policy."""
        ...

    def training(self, command: Train, samples: Sequence[tuple[int, int]]) -> Sequence[tuple[str, Ticks]]:
        """Phases in order, for (context tokens, response tokens) of the samples."""
        ...

    def contended(self, phase: Ticks) -> Ticks:
        """Of a training phase that begins while an engine runs."""
        ...

    def lead(self, command: Sync) -> Ticks:
        """From a command to publish until engines are told to stop."""
        ...

    def publication(self, command: Sync, waited: Ticks) -> Ticks:
        """From when the engines are quiet, ``waited`` after the command, until they run again.

        In mode ``pull``: until the weights can be taken.
        """
        ...

    def load(self, command: Sync, replica: int) -> Ticks:
        """Of a replica that is given new weights on its own."""
        ...

    def pull(self, replica: int) -> Ticks:
        """Of a replica that takes new weights by itself."""
        ...

    def switch(self, command: SetRole, waited: Ticks) -> Ticks:
        """From when the engines are quiet, for which it has ``waited``."""
        ...

    def tool(self, command: CallTool, place: Place) -> Ticks:
        """Of a tool call, once a worker has it."""
        ...

    def reward(self, command: Score, place: Place) -> Ticks:
        """Of a scoring, once a worker has it."""
        ...


class Modelled:
    """By the world's costs and the workload's laws."""

    def __init__(self, world: System) -> None:
        self._world = world
        self._phases = Phases(world.training)

    def way(self, command: Submit) -> Ticks:
        return 0

    def report(self, ended: Finished) -> Ticks:
        return 0

    def training(self, command: Train, samples: Sequence[tuple[int, int]]) -> Sequence[tuple[str, Ticks]]:
        return [(name, to_ticks(seconds)) for name, seconds in self._phases.of(command, samples)]

    def contended(self, phase: Ticks) -> Ticks:
        contention = self._world.contention
        return phase if contention is None else round(phase * contention.training_factor)

    def lead(self, command: Sync) -> Ticks:
        return 0

    def publication(self, command: Sync, waited: Ticks) -> Ticks:
        """Transfer, test, and what clients wait before they resume."""
        if command.mode == "pull":
            return self._world.sync_ticks
        acceptance = self._world.acceptance
        test_ticks = to_ticks(acceptance.test_seconds) if command.test and acceptance is not None else 0
        return self._world.sync_ticks + test_ticks + to_ticks(command.resume_seconds)

    def load(self, command: Sync, replica: int) -> Ticks:
        """As long as a publication to all."""
        return self._world.sync_ticks + to_ticks(command.resume_seconds)

    def pull(self, replica: int) -> Ticks:
        return self._world.pull_time(replica)

    def switch(self, command: SetRole, waited: Ticks) -> Ticks:
        return self._world.to_training_ticks if command.role == "train" else self._world.to_rollout_ticks

    def tool(self, command: CallTool, place: Place) -> Ticks:
        return to_ticks(self._world.workload.tool_latency_seconds(*place, command.turn))

    def reward(self, command: Score, place: Place) -> Ticks:
        return to_ticks(self._world.workload.reward_latency_seconds(*place))
