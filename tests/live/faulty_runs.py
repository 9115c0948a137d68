"""Fake live runs in which something is lost, and the laws that such a run keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from policy_runs import POLICIES, scenario

from rlsim.core.commands import Submit, Train
from rlsim.core.events import ReplicaLost
from rlsim.core.log import RunLog
from rlsim.executor.driver import SERVICES
from rlsim.executor.run import make_controller, make_world
from rlsim.live.clock import LiveClock, run_virtual
from rlsim.live.components import LiveComponents
from rlsim.live.execution import Ending, Execution
from rlsim.live.fake import FakeEngine, fake_components
from rlsim.presets import load_preset
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.results.replay.decisions import NoJournal, from_json, replay, to_json

Arrange = Callable[[LiveClock, LiveComponents, Execution], None]
"""Sets a fault up before the run begins."""

THREE = {"cluster__gpus": 6, "rollout__gpus": 3, "trainer__gpus": 3}
POOLS = [{"name": "prefill", "gpus": 1}, {"name": "decode", "gpus": 2}]
SHARED = [
    {"name": "prefill", "gpus": 2, "sm_share": 0.4},
    {"name": "decode", "gpus": 2, "shares_gpus_with": "prefill", "sm_share": 0.6},
]


def planned(preset: str, **changes: Any) -> ResolvedScenario:
    """A preset on three replicas, or as many as it needs at least (four where two share a GPU)."""
    sizes: dict[str, Any] = dict(THREE)
    needs = load_preset(preset).needs
    if "rollout.pools" in needs:
        shared = any("shares_gpus_with" in pool for pool in needs["rollout.pools"])
        sizes |= {"rollout__gpus": 2, "rollout__pools": SHARED} if shared else {"rollout__pools": POOLS}
    elif needs:
        sizes = {}
    return resolve(scenario({"preset": preset, **POLICIES[preset]}, **{**sizes, **changes}))


def lived(
    made: ResolvedScenario, arrange: Arrange, change: Callable[[LiveComponents], LiveComponents] = lambda crew: crew
) -> Ending:
    """A fake run under faults, with a crew changed; oracles are let in, so that every preset can be tried."""

    async def main(clock: LiveClock) -> Ending:
        workload = made.workload_of(0)
        world = make_world(made, workload)
        controller = make_controller(made, workload)
        crew = change(fake_components(world, clock))
        execution = Execution(controller, world, clock, crew, NoJournal())
        arrange(clock, crew, execution)
        return await execution.run(made.scenario.run.steps)

    return run_virtual(main)


def losing(at: Mapping[int, int]) -> Arrange:
    """Replicas that die at given ticks."""

    def arrange(clock: LiveClock, crew: LiveComponents, execution: Execution) -> None:
        for replica, tick in at.items():
            engine = crew.engines[replica]
            assert isinstance(engine, FakeEngine)
            clock.call_at(tick, SERVICES, engine.lose)

    return arrange


def hold(made: ResolvedScenario, log: RunLog) -> None:
    """The log is complete: it replays, every sample has one outcome, every token is in the ledger."""
    told = [from_json(to_json(decision)) for decision in log.decisions]
    replay(told, make_controller(made, made.workload_of(0)))
    carried_out = log.decisions[:-1] if log.last_commands_idle else log.decisions
    commands = [command for row in carried_out for command in row.commands]
    submitted = {command.sample for command in commands if isinstance(command, Submit)}
    named = Counter(row.sample for row in log.final)
    assert set(named.values()) <= {1}
    assert submitted <= set(named)
    assert sum(row.tokens for row in log.final) + log.undelivered_tokens == log.generated_tokens
    trained = Counter(sample for command in commands if isinstance(command, Train) for sample in command.samples)
    assert set(trained.values()) <= {1}


def losses(log: RunLog) -> list[ReplicaLost]:
    """Losses that the controller was told of."""
    return [row.event for row in log.decisions if isinstance(row.event, ReplicaLost)]
