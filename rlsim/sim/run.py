"""From a plan to a simulated run."""

from __future__ import annotations

from rlsim.build import Plan
from rlsim.core.errors import ParameterError
from rlsim.policies.hooks import NeedsRewards
from rlsim.sim.collector import collector_paused
from rlsim.sim.simulation import Simulation
from rlsim.world.making import Run, budget_of, make_controller, make_world


def simulate(plan: Plan, replication: int = 0, steps: int | None = None) -> Run:
    """Run one replication of a plan; ``DeadlockError`` when it cannot progress.

    ``ParameterError`` for a policy that decides by rewards, where only a live task would give them.
    """
    if plan.learning is None and isinstance(plan.policy(plan.shape).allocation, NeedsRewards):
        raise ParameterError("learning", None, "a learning section: simulated samples earn nothing without one")
    workload = plan.workload_of(replication)
    world = make_world(plan, workload)
    controller = make_controller(plan, workload)
    run = plan.scenario.run
    with collector_paused():
        log = Simulation(controller, world).run(steps or run.steps, run.max_simulated_seconds, budget_of(plan))
    return Run(plan, replication, log)
