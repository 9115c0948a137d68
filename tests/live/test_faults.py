"""What is not a replica fails: trainer, tools, rewards, the program itself; the run ends with a whole log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty_runs import hold, lived, losing, planned
from policy_runs import AGENTS

from rlsim.core.commands import CallTool, Score, Train
from rlsim.core.events import Scored, ToolReturned, TrainerLost
from rlsim.core.log import RunLog
from rlsim.executor.run import make_controller, make_world
from rlsim.live.backends import Fake
from rlsim.live.clock import LiveClock, run_virtual
from rlsim.live.components import Limits, LiveComponents
from rlsim.live.execution import Ending, Execution
from rlsim.live.pool import WorkerPool
from rlsim.live.protocols import (
    Call,
    CallOutput,
    EngineLostError,
    Experience,
    Learnt,
    Record,
    TrainerLostError,
    Weights,
)
from rlsim.live.run import run_live, started
from rlsim.results.replay.decisions import JournalError, NoJournal

NOTHING = losing({})
QUICK = Limits(0.02, 1, 0.02, 1)


# -- trainer ------------------------------------------------------------------------------------------


class Dies:
    """A trainer that is gone at its ``number``-th training or publication."""

    def __init__(self, trainer: Any, what: str, number: int) -> None:
        self._trainer, self._what, self._left = trainer, what, number
        self.closed = False

    def _count(self, what: str) -> None:
        self._left -= what == self._what
        if self._left <= 0:
            raise TrainerLostError("the process ended with code -9")

    async def start(self) -> None: ...

    async def train(self, command: Train, batch: Sequence[Experience]) -> Learnt:
        self._count("train")
        told: Learnt = await self._trainer.train(command, batch)
        return told

    async def publish(self, version: int) -> Weights:
        self._count("publish")
        told: Weights = await self._trainer.publish(version)
        return told

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("what", ["train", "publish"])
@pytest.mark.parametrize("preset", ["verl-sync", "areal", "slime-april", "laminar", "nemo-rl-async", "roll-agentic"])
def test_a_lost_trainer_stops_the_run_with_its_own_word(preset: str, what: str) -> None:
    made = planned(preset, **AGENTS)
    crews: list[LiveComponents] = []

    def change(crew: LiveComponents) -> LiveComponents:
        crews.append(replace(crew, trainer=Dies(crew.trainer, what, 3)))
        return crews[0]

    ending = lived(made, NOTHING, change)
    assert str(ending.fault) == "the trainer is gone: the process ended with code -9"
    assert isinstance(ending.log.decisions[-1].event, TrainerLost)
    assert crews[0].trainer.closed  # type: ignore[attr-defined]
    hold(made, ending.log)


# -- tools and rewards --------------------------------------------------------------------------------


class Service:
    """A tool or a reward that hangs, raises, or ignores that it is called off, for some samples."""

    def __init__(self, how: str, every: int = 3) -> None:
        self._how, self._every, self.attempts = how, every, 0

    async def _run(self, sample: int) -> None:
        if sample % self._every:
            return
        self.attempts += 1
        if self._how == "raises":
            raise ValueError("no such file")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if self._how == "hangs":
                raise
            await asyncio.sleep(0.1)

    async def call(self, command: CallTool, turn: Sequence[int]) -> Sequence[int]:
        await self._run(command.sample)
        return range(4)

    async def score(self, command: Score, response: Sequence[int]) -> float:
        await self._run(command.sample)
        return 1.0


def told_outcomes(log: RunLog, kind: type) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for row in log.decisions:
        if isinstance(row.event, ToolReturned | Scored) and isinstance(row.event, kind):
            found.setdefault(row.event.outcome, set()).add(row.event.sample)
    return found


@pytest.mark.parametrize(("how", "outcome"), [("hangs", "timeout"), ("ignores", "timeout"), ("raises", "failed")])
def test_a_tool_that_does_not_answer_is_an_event_and_its_trajectory_goes_on(how: str, outcome: str) -> None:
    made = planned("one-step-off", **{**AGENTS, "run__steps": 2})
    tool = Service(how)
    said = replace_tool(tool)
    ending = lived(made, NOTHING, said)
    assert ending.fault is None
    hold(made, ending.log)
    outcomes = told_outcomes(ending.log, ToolReturned)
    assert {sample % 3 for sample in outcomes[outcome]} == {0}
    assert all(sample % 3 for sample in outcomes["done"])
    told = [row.event for row in ending.log.decisions if isinstance(row.event, ToolReturned)]
    assert {event.output_tokens for event in told if event.outcome == outcome} == {7}
    counts, first = ending.unserved["tool"]
    returned = sum(event.outcome != "done" for event in told)
    assert returned <= sum(counts.values())
    assert ("no answer in 0.02 s" if outcome == "timeout" else "ValueError: no such file") in first
    assert tool.attempts >= 2 * returned


def replace_tool(tool: Service) -> Any:
    return lambda crew: replace(crew, tools=tool, limits=QUICK, tool_fault=lambda served: range(7))


@pytest.mark.parametrize(("how", "outcome"), [("hangs", "timeout"), ("raises", "failed")])
def test_a_reward_that_cannot_be_told_is_counted_and_the_run_goes_on(how: str, outcome: str) -> None:
    made = planned("one-step-off", **{**AGENTS, "run__steps": 2})
    ending = lived(made, NOTHING, lambda crew: replace(crew, rewards=Service(how), limits=QUICK))
    assert ending.fault is None
    hold(made, ending.log)
    assert {sample % 3 for sample in told_outcomes(ending.log, Scored)[outcome]} == {0}
    assert ending.unserved["reward"][0][outcome] >= 1


def test_a_timeout_that_the_tool_itself_raises_is_its_failure() -> None:
    async def raises() -> int:
        raise TimeoutError("upstream")

    async def main(clock: LiveClock) -> tuple[str, str]:
        served = await WorkerPool(clock, RunLog(), "tool", 1, None, 0).serve(0, raises)
        return served.outcome, served.fault

    assert run_virtual(main) == ("failed", "TimeoutError: upstream")


@pytest.mark.parametrize(("fails", "tries", "outcome"), [(0, 1, "done"), (2, 3, "done"), (9, 4, "failed")])
def test_a_job_is_tried_until_it_is_done_or_its_retries_are_used(fails: int, tries: int, outcome: str) -> None:
    made = 0

    async def job() -> None:
        nonlocal made
        made += 1
        if made <= fails:
            raise ValueError("not yet")

    async def main(clock: LiveClock) -> str:
        return (await WorkerPool(clock, RunLog(), "tool", 1, None, 3).serve(0, job)).outcome

    assert (run_virtual(main), made) == (outcome, tries)


def test_a_job_that_is_called_off_from_outside_is_called_off_inside() -> None:
    async def main(clock: LiveClock) -> bool:
        stopped = asyncio.Event()

        async def job() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                stopped.set()

        task = asyncio.ensure_future(WorkerPool(clock, RunLog(), "tool", None, 50.0, 0).serve(0, job))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.01)
        return stopped.is_set()

    assert run_virtual(main)


# -- mistakes in the program --------------------------------------------------------------------------


def closed_by(crew: LiveComponents) -> list[int]:
    """Engines that are closed, as they are."""
    closed: list[int] = []
    for number, engine in enumerate(crew.engines):

        async def close(was: Any = engine.close, number: int = number) -> Any:
            closed.append(number)
            return await was()

        engine.close = close  # type: ignore[method-assign]
    return closed


@pytest.mark.parametrize("method", ["generate", "pause", "load", "resume", "abort"])
def test_a_mistake_in_an_engine_ends_the_run_with_everything_closed(method: str) -> None:
    made = planned("areal", **AGENTS)
    closed: list[list[int]] = []

    def arrange(clock: LiveClock, crew: LiveComponents, execution: Execution) -> None:
        closed.append(closed_by(crew))
        engine, calls = crew.engines[1], 0
        was = getattr(engine, method)

        async def broken(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise ZeroDivisionError("a mistake")
            return await was(*given)

        setattr(engine, method, broken)

    ending = lived(made, arrange)
    assert isinstance(ending.fault, ZeroDivisionError)
    assert sorted(closed[0]) == [0, 1, 2]
    hold(made, ending.log)


def test_a_mistake_on_the_clock_ends_the_run() -> None:
    made = planned("one-step-off")

    def arrange(clock: LiveClock, crew: LiveComponents, execution: Execution) -> None:
        clock.call_at(10**12, 0, lambda: 1 // 0)  # type: ignore[arg-type, return-value]

    ending = lived(made, arrange)
    assert isinstance(ending.fault, ZeroDivisionError)
    hold(made, ending.log)


def test_a_mistake_of_the_policy_ends_the_run() -> None:
    made = planned("one-step-off")

    def arrange(clock: LiveClock, crew: LiveComponents, execution: Execution) -> None:
        handle = execution._driver.controller.handle

        def broken(now: int, event: Any) -> Any:
            if now > 10**12:
                raise KeyError(event)
            return handle(now, event)

        execution._driver.controller.handle = broken  # type: ignore[method-assign]

    ending = lived(made, arrange)
    assert isinstance(ending.fault, KeyError)
    assert ending.log.decisions


def test_an_engine_that_is_lost_while_it_is_closed_leaves_its_tokens_in_the_ledger() -> None:
    made = planned("areal")

    def arrange(clock: LiveClock, crew: LiveComponents, execution: Execution) -> None:
        engine: Any = crew.engines[0]
        was = engine.close

        async def close() -> Any:
            engine.lose()
            return await was()

        engine.close = close

    hold(made, lived(made, arrange).log)


def test_an_engine_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    made = planned("areal")
    closed: list[list[int]] = []

    def arrange(clock: LiveClock, crew: LiveComponents, execution: Execution) -> None:
        closed.append(closed_by(crew))

        async def close() -> Any:
            raise OSError("no such process")

        crew.engines[0].close = close  # type: ignore[method-assign]

    ending = lived(made, arrange)
    assert sorted(closed[0]) == [1, 2]
    assert isinstance(ending.fault, OSError)
    assert len(ending.log.iterations) == made.scenario.run.steps


# -- start and cancellation ---------------------------------------------------------------------------


class Engine:
    """Starts, hangs or fails."""

    def __init__(self, how: str) -> None:
        self._how, self.closed = how, False

    async def start(self) -> None:
        if self._how == "fails":
            raise EngineLostError("out of memory")
        if self._how == "hangs":
            await asyncio.sleep(60)

    async def generate(self, call: Call, made: CallOutput) -> None: ...

    async def close(self) -> None:
        self.closed = True


def test_when_one_engine_cannot_start_all_are_closed_at_once() -> None:
    made = planned("areal")
    engines: list[Any] = [Engine(how) for how in ("starts", "hangs", "fails")]

    async def main(clock: LiveClock) -> None:
        crew = Fake().crew(made, make_world(made, made.workload_of(0)), clock, Path())
        await started(replace(crew, engines=engines))

    with pytest.raises(EngineLostError, match="out of memory"):
        run_virtual(main)
    assert all(engine.closed for engine in engines)


def test_a_run_that_is_cancelled_from_outside_closes_its_engines() -> None:
    made = planned("areal")

    async def main(clock: LiveClock) -> tuple[list[int], bool]:
        workload = made.workload_of(0)
        world = make_world(made, workload)
        crew = Fake().crew(made, world, clock, Path())
        closed = closed_by(crew)
        execution = Execution(make_controller(made, workload), world, clock, crew, NoJournal())
        run = asyncio.ensure_future(execution.run(10**6))
        await asyncio.sleep(0.05)
        run.cancel()
        try:
            await run
        except asyncio.CancelledError:
            return closed, bool(execution.log.final)
        raise AssertionError("not cancelled")

    closed, settled = run_virtual(main)
    assert sorted(closed) == [0, 1, 2]
    assert settled


def test_a_journal_that_fails_ends_the_run_with_the_decision_in_the_log(tmp_path: Path) -> None:
    made = planned("one-step-off")

    class Full:
        def __init__(self) -> None:
            self.left = 40

        def note(self, decision: object) -> None:
            self.left -= 1
            if not self.left:
                raise JournalError("no space left")

    told = run_live(made, Fake(), Full(), tmp_path)
    ending: Ending = told.ending
    assert str(ending.fault) == "no space left"
    assert len(ending.log.decisions) == 40
    hold(made, ending.log)


@pytest.mark.parametrize("preset", ["laminar", "areal", "pipelinerl", "slime-april"])
@pytest.mark.parametrize("seed", range(4))
def test_an_engine_that_was_closed_is_left_alone(preset: str, seed: int) -> None:
    """Nothing pauses it, cuts its calls or brings it weights any more: a server goes on serving others."""
    asked: list[str] = []

    def arrange(clock: LiveClock, crew: LiveComponents, execution: Execution) -> None:
        for engine in crew.engines:
            close = engine.close

            async def closed(engine: Any = engine, close: Any = close) -> Record:
                for name in ("pause", "load", "abort", "sleep"):
                    _note_calls(engine, name, asked)
                record: Record = await close()
                await asyncio.sleep(0)
                return record

            engine.close = closed  # type: ignore[method-assign]

    ending = lived(planned(preset, seed=seed), arrange)
    assert ending.fault is None
    assert asked == []


def _note_calls(engine: Any, name: str, asked: list[str]) -> None:
    done = getattr(engine, name)

    async def noted(*given: Any) -> Any:
        asked.append(name)
        return await done(*given)

    setattr(engine, name, noted)
