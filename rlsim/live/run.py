"""From a plan to a live run: what is refused, who carries it out, and how it ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from rlsim.core.errors import ParameterError, RlsimError
from rlsim.executor.driver import Journal
from rlsim.executor.run import FinishedRun, budget_of, make_controller, make_world
from rlsim.executor.system import System
from rlsim.live.clock import LiveClock, run_real, run_virtual
from rlsim.live.components import LiveComponents
from rlsim.live.execution import Ending, Execution
from rlsim.live.fleet import settled
from rlsim.resolve import ResolvedScenario
from rlsim.workload.workload import Workload

Watch = Callable[[Execution, LiveComponents], None]
CALLED_OFF_SECONDS = 5.0
"""Real time that starts under way have to end when one has failed."""
STOPPED = "the run was stopped; everything up to here is in its log"


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

    def refusals(self, plan: ResolvedScenario) -> list[ParameterError]:
        """What the plan asks for that this backend cannot give, with key paths; nothing is started."""
        ...

    def workload(self, plan: ResolvedScenario, replication: int) -> Workload:
        """Prompts and lengths of a run; those of a task are not the scenario's laws."""
        ...

    def crew(self, plan: ResolvedScenario, world: System, clock: LiveClock, work: Path) -> LiveComponents:
        """Everything real, not yet started; files go to the folder ``work``."""
        ...

    def facts(self) -> dict[str, Any]:
        """Versions and settings, for the record."""
        ...


@dataclass(frozen=True, slots=True)
class LiveRun:
    """One live run and how it ended."""

    run: FinishedRun
    ending: Ending
    crew: LiveComponents


def refuse(plan: ResolvedScenario, backend: Backend) -> None:
    """Raise the first thing that the backend cannot give (``ParameterError``): nothing has been started."""
    for error in [*oracles(plan), *backend.refusals(plan)]:
        raise error


def oracles(plan: ResolvedScenario) -> Iterator[ParameterError]:
    """Parts that know lengths still to come: no live run can tell them."""
    policy = plan.policy(plan.shape)
    for choice in fields(policy):
        if getattr(getattr(policy, choice.name), "oracle", False):
            part = type(getattr(policy, choice.name)).__name__
            allowed = "a part that is no oracle: a live run cannot tell lengths still to come"
            yield ParameterError(f"policy.parts.{choice.name}", part, allowed)


def run_live(
    plan: ResolvedScenario,
    backend: Backend,
    journal: Journal,
    work: Path,
    replication: int = 0,
    steps: int | None = None,
    watch: Watch = lambda execution, crew: None,
) -> LiveRun:
    """One run; ``watch`` sees it before it begins. What stopped it early is in the ending, its log is whole."""

    async def main(clock: LiveClock) -> LiveRun:
        workload = backend.workload(plan, replication)
        # Where a model learns a task, nothing stands in for what it earns and learns.
        learns = plan.scenario.live.task is not None and not backend.virtual
        world = make_world(replace(plan, learning=None) if learns else plan, workload)
        crew = backend.crew(plan, world, clock, work)
        controller = make_controller(plan, workload, oracle=False)
        await started_unless_stopped(crew)
        clock.restart()
        execution = Execution(controller, world, clock, crew, journal)
        watch(execution, crew)
        with interruptible(lambda name: execution.stop(StoppedError(f"{name}: {STOPPED}"))):
            section = plan.scenario.run
            ending = await execution.run(steps or section.steps, section.max_simulated_seconds, budget_of(plan))
        return LiveRun(FinishedRun(plan, replication, ending.log), ending, crew)

    return run_virtual(main) if backend.virtual else run_real(main)


async def started(crew: LiveComponents) -> None:
    """Start engines and trainer side by side; when one cannot, or somebody stops it, stop them all."""
    jobs = {asyncio.create_task(engine.start()) for engine in crew.engines}
    jobs |= {asyncio.create_task(one.start()) for one in crew.trainers}
    try:
        done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_EXCEPTION)
        for job in done:
            job.result()
    except BaseException:
        for job in jobs:
            job.cancel()
        await settled(jobs, CALLED_OFF_SECONDS)
        await asyncio.gather(*(engine.close() for engine in crew.engines), crew.close(), return_exceptions=True)
        raise


async def started_unless_stopped(crew: LiveComponents) -> None:
    """Start; ``StoppedError`` when somebody stops it meanwhile."""
    starting = asyncio.create_task(started(crew))
    with interruptible(lambda name: starting.cancel()):
        try:
            await starting
        except asyncio.CancelledError:
            raise StoppedError("interrupted while engines and trainer were starting: nothing was run") from None


@contextmanager
def interruptible(stop: Callable[[str], object]) -> Iterator[None]:
    """Ctrl-C and a request to terminate call ``stop`` with the signal's name; a second one does not wait for it.

    The second has the effect that the signal has by default: ``KeyboardInterrupt``, or the end of the process.
    """
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def first(number: signal.Signals) -> None:
        for each in signals:
            loop.remove_signal_handler(each)
        stop(number.name)

    try:
        for number in signals:
            loop.add_signal_handler(number, first, number)
    except (ValueError, RuntimeError, NotImplementedError):
        pass  # not the main thread, which alone gets signals
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
