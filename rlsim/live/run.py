"""From a plan to a live run: what is refused, who carries it out, and how it ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from rlsim.build import Plan
from rlsim.core.errors import ParameterError, RlsimError
from rlsim.live.clock import Clock, run_real, run_virtual
from rlsim.live.crew import Crew
from rlsim.live.execution import Ending, Execution, Journal
from rlsim.workload.workload import Workload
from rlsim.world.making import Run, make_controller, make_world
from rlsim.world.world import World

Watch = Callable[[Execution, Crew], None]


class StoppedError(RlsimError):
    """Somebody stopped the run; it has put everything away."""


class Backend(Protocol):
    """A kind of live execution."""

    virtual: bool
    """Whether time is virtual: nothing real takes any."""
    emulated: bool
    """Whether some of what it measures is put in, not found."""
    label: str
    """What it is, for every output: an emulated run says so."""

    def refusals(self, plan: Plan) -> list[ParameterError]:
        """What the plan asks for that this backend cannot give, with key paths; nothing is started."""
        ...

    def workload(self, plan: Plan, replication: int) -> Workload:
        """Prompts and lengths of a run; those of a task are not the scenario's laws."""
        ...

    def crew(self, plan: Plan, world: World, clock: Clock, work: Path) -> Crew:
        """Everything real, not yet started; files go to the folder ``work``."""
        ...

    def facts(self) -> dict[str, Any]:
        """Versions and settings, for the record."""
        ...


@dataclass(frozen=True, slots=True)
class LiveRun:
    """One live run and how it ended."""

    run: Run
    ending: Ending
    crew: Crew


def refuse(plan: Plan, backend: Backend) -> None:
    """Raise the first thing that the backend cannot give (``ParameterError``): nothing has been started."""
    for error in [*oracles(plan), *backend.refusals(plan)]:
        raise error


def oracles(plan: Plan) -> Iterator[ParameterError]:
    """Parts that know lengths still to come: no live run can tell them."""
    policy = plan.policy(plan.shape)
    for choice in fields(policy):
        if getattr(getattr(policy, choice.name), "oracle", False):
            part = type(getattr(policy, choice.name)).__name__
            allowed = "a part that is no oracle: a live run cannot tell lengths still to come"
            yield ParameterError(f"policy.parts.{choice.name}", part, allowed)


def run_live(
    plan: Plan,
    backend: Backend,
    journal: Journal,
    work: Path,
    replication: int = 0,
    steps: int | None = None,
    watch: Watch = lambda execution, crew: None,
) -> LiveRun:
    """One run; ``watch`` sees it before it begins. What stopped it early is in the ending, its log is whole."""

    async def main(clock: Clock) -> LiveRun:
        workload = backend.workload(plan, replication)
        world = make_world(plan, workload)
        crew = backend.crew(plan, world, clock, work)
        controller = make_controller(plan, workload, oracle=False)
        await started(crew)
        clock.restart()
        execution = Execution(controller, world, clock, crew, journal)
        watch(execution, crew)
        with interruptible(execution):
            ending = await execution.run(steps or plan.scenario.run.steps, plan.scenario.run.max_simulated_seconds)
        return LiveRun(Run(plan, replication, ending.log), ending, crew)

    return run_virtual(main) if backend.virtual else run_real(main)


async def started(crew: Crew) -> None:
    """Start engines and trainer side by side; when one cannot, stop the others."""
    told = await asyncio.gather(
        *(engine.start() for engine in crew.engines), crew.trainer.start(), return_exceptions=True
    )
    faults = [answer for answer in told if isinstance(answer, BaseException)]
    if faults:
        await asyncio.gather(*(engine.close() for engine in crew.engines), crew.trainer.close(), return_exceptions=True)
        raise faults[0]


@contextmanager
def interruptible(execution: Execution) -> Iterator[None]:
    """Ctrl-C and a request to terminate put everything away; a second Ctrl-C does not wait for that."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        execution.stop(StoppedError("interrupted: everything up to here is in the log"))

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
    except (ValueError, RuntimeError, NotImplementedError):
        pass  # not the main thread, which alone gets signals
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
