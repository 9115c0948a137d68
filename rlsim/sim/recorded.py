"""A simulation in which everything lasts as it was recorded: what is left of its error is the schedule's.

The k-th engine step of a replica lasts as its k-th recorded one, whatever it holds; so do the k-th training, the k-th
publication, the k-th switch; a tool call or a scoring as that of the same trajectory. What the record does not have
takes the modelled time, and is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rlsim.core.commands import CallTool, Score, SetRole, Submit, Sync, Train
from rlsim.core.events import Finished
from rlsim.core.ticks import Ticks
from rlsim.executor.run import FinishedRun, budget_of, prepare
from rlsim.resolve import ResolvedScenario
from rlsim.sim.collector import collector_paused
from rlsim.sim.durations import Durations, Modelled, Place
from rlsim.sim.simulation import Simulation

Key = tuple[int, int, int]
"""A trajectory in any run of the workload: (draw, times recycled, member)."""
CallKey = tuple[Key, int, int]
"""A call of it: turn, and how many calls of the turn came before."""


@dataclass(frozen=True, slots=True)
class Recording:
    """How long everything lasted, in ticks and in the order in which it happened."""

    steps: Sequence[Sequence[Ticks]]
    """By replica; empty where an engine did not tell."""
    trainings: Sequence[Sequence[tuple[str, Ticks]]]
    """Phases of each training command."""
    publications: Sequence[Ticks]
    """From the command to the reply."""
    loads: Sequence[Sequence[Ticks]]
    """By replica: of new weights that it took on its own."""
    switches: Sequence[Ticks]
    """From the command to the reply."""
    tools: Mapping[tuple[Key, int], Ticks] = field(default_factory=dict)
    """By trajectory and turn."""
    rewards: Mapping[Key, Ticks] = field(default_factory=dict)
    ways: Mapping[CallKey, Ticks] = field(default_factory=dict)
    """From the cause of a call's submission until an engine at work could take it in; none where it is not known."""
    reports: Mapping[CallKey, Ticks] = field(default_factory=dict)
    """From the end of a call on its engine until the policy heard of it."""
    leads: Sequence[Ticks] = ()
    """Of each publication, from the command until engines were told to stop."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """A simulation with recorded durations."""

    run: FinishedRun
    unrecorded_steps: int
    """Engine steps beyond the record, which took the modelled time."""
    unrecorded_others: int
    """Trainings, publications, switches, tool calls and scorings likewise."""


class CallKeys:
    """Names calls as they are submitted."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[Key, int]] = Counter()

    def next(self, command: Submit) -> CallKey:
        """The call that a command begins."""
        key = (command.draw, command.recycle, command.member)
        self._calls[key, command.turn] += 1
        return key, command.turn, self._calls[key, command.turn] - 1


class RecordedSteps:
    """The recorded steps of one replica, handed out in order as what a step takes beside its law."""

    def __init__(self, ticks: Iterable[Ticks], law_ticks: Callable[[], Ticks]) -> None:
        """``law_ticks`` is what the law says of the step that is about to be handed out."""
        self._left, self._law_ticks = iter(ticks), law_ticks
        self._extra = 0
        self.missing = 0
        """Steps that the record did not have."""

    def open(self, steps: int) -> None:
        """The next step begins; the replica steps one by one."""
        recorded = next(self._left, None)
        self.missing += recorded is None
        self._extra = 0 if recorded is None else recorded - self._law_ticks()

    def ticks(self, steps: int) -> Ticks:
        return self._extra


class Recorded:
    """Everything but engine steps as recorded; ``modelled`` where the record ends."""

    def __init__(self, recording: Recording, modelled: Durations) -> None:
        self._recording, self._modelled = recording, modelled
        self._trainings = iter(recording.trainings)
        self._publications, self._switches = iter(recording.publications), iter(recording.switches)
        self._leads = iter(recording.leads)
        self._loads: list[Iterator[Ticks]] = [iter(ticks) for ticks in recording.loads]
        self._keys = CallKeys()
        self._calls: dict[int, CallKey] = {}
        """Under way, by sample."""
        self.missing = 0
        """What the record did not have."""

    def way(self, command: Submit) -> Ticks:
        key = self._calls[command.sample] = self._keys.next(command)
        return self._recording.ways.get(key, 0)

    def report(self, ended: Finished) -> Ticks:
        return self._recording.reports.get(self._calls.pop(ended.sample), 0)

    def training(self, command: Train, samples: Sequence[tuple[int, int]]) -> Sequence[tuple[str, Ticks]]:
        modelled = self._modelled.training(command, samples)  # asked always: it counts the parts of a step
        recorded = next(self._trainings, None)
        self.missing += recorded is None
        return modelled if recorded is None else recorded

    def contended(self, phase: Ticks) -> Ticks:
        """As recorded: what engines cost it is in it."""
        return phase

    def lead(self, command: Sync) -> Ticks:
        return next(self._leads, 0)

    def publication(self, command: Sync, waited: Ticks) -> Ticks:
        """What is left of the next one, after the wait for the engines."""
        recorded = next(self._publications, None)
        return self._or(
            None if recorded is None else max(0, recorded - waited), self._modelled.publication(command, waited)
        )

    def load(self, command: Sync, replica: int) -> Ticks:
        return self._or(next(self._loads[replica], None), self._modelled.load(command, replica))

    def pull(self, replica: int) -> Ticks:
        return self._or(next(self._loads[replica], None), self._modelled.pull(replica))

    def switch(self, command: SetRole, waited: Ticks) -> Ticks:
        """What is left of the next one, after the wait for the engines."""
        recorded = next(self._switches, None)
        return self._or(None if recorded is None else max(0, recorded - waited), self._modelled.switch(command, waited))

    def tool(self, command: CallTool, place: Place) -> Ticks:
        """That of the same trajectory and turn."""
        key = (command.draw, command.recycle, command.member), command.turn
        return self._or(self._recording.tools.get(key), self._modelled.tool(command, place))

    def reward(self, command: Score, place: Place) -> Ticks:
        key = command.draw, command.recycle, command.member
        return self._or(self._recording.rewards.get(key), self._modelled.reward(command, place))

    def _or(self, recorded: Ticks | None, modelled: Ticks) -> Ticks:
        self.missing += recorded is None
        return modelled if recorded is None else recorded


def simulate_recorded(
    plan: ResolvedScenario, recording: Recording, replication: int = 0, steps: int | None = None
) -> Rerun:
    """One replication with recorded durations; ``DeadlockError`` when it cannot progress."""
    controller, system = prepare(plan, replication)
    handed = []
    for replica, ticks in zip(system.replicas, recording.steps, strict=True):
        noise = RecordedSteps(ticks, lambda replica=replica: replica.law_ticks)  # type: ignore[misc]
        replica.noise, replica.jump = noise, False
        handed.append(noise)
    durations = Recorded(recording, Modelled(system))
    simulation = Simulation(controller, system, durations=durations)
    section = plan.scenario.run
    with collector_paused():
        log = simulation.run(steps or section.steps, section.max_simulated_seconds, budget_of(plan))
    return Rerun(FinishedRun(plan, replication, log), sum(noise.missing for noise in handed), durations.missing)
