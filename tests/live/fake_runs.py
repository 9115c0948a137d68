"""Live runs of fake engines, to be held to simulations."""

from __future__ import annotations

from rlsim.controller import Controller
from rlsim.core.log import RunLog
from rlsim.executor.run import budget_of, make_controller, make_world
from rlsim.live.clock import LiveClock, run_virtual
from rlsim.live.components import LiveComponents
from rlsim.live.execution import Ending, Execution
from rlsim.live.fake import fake_components
from rlsim.resolve import ResolvedScenario
from rlsim.results.replay.decisions import NoJournal


def lived(made: ResolvedScenario) -> RunLog:
    """The log of a fake run; oracles are let in, so that every preset can be compared."""

    async def main(clock: LiveClock) -> Ending:
        workload = made.workload_of(0)
        world = make_world(made, workload)
        controller: Controller = make_controller(made, workload)
        crew: LiveComponents = fake_components(world, clock)
        run = made.scenario.run
        execution = Execution(controller, world, clock, crew, NoJournal())
        return await execution.run(run.steps, run.max_simulated_seconds, budget_of(made))

    ending = run_virtual(main)
    assert ending.fault is None
    return ending.log
