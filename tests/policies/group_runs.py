"""Groups of recorded runs: when they began, in which order they were complete, which were trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from policy_runs import groups_of

from rlsim.core.commands import Command, Score, Submit, Train
from rlsim.core.events import Event, Finished, Scored, Synced
from rlsim.core.log import RunLog


@dataclass(slots=True)
class Books:
    """Before the commands of one decision, and after."""

    event: Event
    commands: tuple[Command, ...]
    version: int
    begun_before: int
    taken_before: int
    begun: dict[int, int]
    """Version in which each group began, commands included."""
    complete: list[int]
    """Groups complete so far, in order."""
    taken: list[int]
    """Groups given to the trainer so far, commands included, in order of the commands."""

    @property
    def under_way(self) -> list[int]:
        """Groups begun and not complete."""
        return [group for group in self.begun if group not in self.complete]

    @property
    def trains(self) -> list[Train]:
        """Training that this decision asks for."""
        return [made for made in self.commands if isinstance(made, Train)]


def books(log: RunLog, members: int = 2) -> Iterator[Books]:
    """The run decision by decision; its last commands, which nobody carries out, are left out."""
    begun: dict[int, int] = {}
    complete: list[int] = []
    taken: list[int] = []
    ended: dict[int, int] = {}
    version = 0
    for place, (_, event, told) in enumerate(log.decisions):
        commands = told if place < len(log.decisions) - 1 else ()
        if isinstance(event, Synced):
            version = event.version
        scored = {made.sample for made in commands if isinstance(made, Score)}
        if isinstance(event, Scored) or (
            isinstance(event, Finished) and event.reason in ("stop", "length") and event.sample not in scored
        ):
            group = event.sample // members
            ended[group] = ended.get(group, 0) + 1
            if ended[group] == members:
                complete.append(group)
        counts = len(begun), len(taken)
        for command in commands:
            if isinstance(command, Submit):
                begun.setdefault(command.sample // members, version)
            elif isinstance(command, Train):
                taken += sorted(groups_of(command.samples, members), key=complete.index)
        yield Books(event, commands, version, *counts, dict(begun), list(complete), list(taken))
