"""Calls that a publication cuts are handed to their engine, in order, before it runs again; later ones wait behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from rlsim.core.log import RunLog
from rlsim.engine.requests import Request
from rlsim.live.clock import RealClock
from rlsim.live.fleet import LiveFleet
from rlsim.live.protocols import Call, CallOutput, Record, TakesCallsPaused, Weights
from rlsim.live.running import Running


async def turns(count: int) -> None:
    """Let the event loop turn: an order of events that no load of the machine changes."""
    for _ in range(count):
        await asyncio.sleep(0)


class Desk:
    """An engine that notes what it is asked for; a call takes a while to reach it, and ends when it is aborted."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self._ends: dict[int, asyncio.Future[str]] = {}

    async def start(self) -> None:
        """Nothing to get ready."""

    async def generate(self, call: Call, made: CallOutput) -> None:
        await turns(5)
        self.noted.append(f"call {call.sample}")
        end = self._ends[call.sample] = asyncio.get_running_loop().create_future()
        made.reason = await end  # type: ignore[assignment]
        made.segments = ((0, 1),)

    async def abort(self, samples: Sequence[int]) -> None:
        for sample in samples:
            self._ends.pop(sample).set_result("abort")
        await asyncio.sleep(0)

    async def pause(self) -> None:
        self.noted.append("pause")

    async def resume(self) -> None:
        self.noted.append("resume")

    async def load(self, weights: Weights, reset: bool) -> int:
        await turns(50)
        return weights.version

    async def sleep(self) -> None:
        """It keeps its memory."""

    async def wake(self) -> None:
        """It has its memory."""

    async def close(self) -> Record:
        await self.abort(list(self._ends))
        return Record()


class AskedDesk(Desk):
    """One that knows which calls it has."""

    async def holds(self, samples: Sequence[int]) -> None:
        while not set(samples) <= set(self._ends):
            await asyncio.sleep(0)


class Listener:
    def ended(self, running: Running) -> None:
        """Nobody waits for it."""

    def lost(self, replica: int, cut: list[Running]) -> None:
        raise AssertionError(replica)

    def refused(self, fault: Exception) -> None:
        raise fault

    def broken(self, task: asyncio.Task[None]) -> None:
        """The fleet's tasks end with the test."""


def call(sample: int) -> Call:
    return Call(sample, range(4), 9, True, 0, Request(sample, sample, 4, 4, 9))


def noted(desk: Desk, work: Callable[[LiveFleet], Awaitable[None]]) -> list[str]:
    async def main() -> None:
        fleet = LiveFleet(RealClock(), [desk], [0], RunLog(), Listener())
        for sample in (3, 1, 2):
            fleet.submit(0, call(sample))
        await turns(100)
        desk.noted.clear()
        await work(fleet)
        await turns(100)
        await fleet.close()

    asyncio.run(main())
    return desk.noted


async def published_with_a_late_call(fleet: LiveFleet) -> None:
    publication = asyncio.create_task(fleet.publish(Weights(1, None), "abort", 0, "sync", 1))
    await turns(20)
    fleet.submit(0, call(7))
    await publication


def test_an_engine_that_can_be_asked_has_all_calls_before_it_runs() -> None:
    desk = AskedDesk()
    assert isinstance(desk, TakesCallsPaused)
    assert noted(desk, published_with_a_late_call) == ["pause", "call 3", "call 1", "call 2", "call 7", "resume"]


def test_another_runs_first_and_gets_them_in_the_same_order() -> None:
    desk = Desk()
    assert not isinstance(desk, TakesCallsPaused)
    assert noted(desk, published_with_a_late_call) == ["pause", "resume", "call 3", "call 1", "call 2", "call 7"]


def test_without_a_cut_a_call_that_comes_meanwhile_is_handed_on_at_once() -> None:
    async def keeping(fleet: LiveFleet) -> None:
        publication = asyncio.create_task(fleet.publish(Weights(1, None), "keep", 0, "sync", 1))
        await turns(20)
        fleet.submit(0, call(7))
        await publication

    assert noted(AskedDesk(), keeping) == ["pause", "call 7", "resume"]


@pytest.mark.parametrize("kind", [Desk, AskedDesk])
def test_a_call_that_waits_behind_a_publication_can_be_aborted(kind: type[Desk]) -> None:
    async def called_off(fleet: LiveFleet) -> None:
        publication = asyncio.create_task(fleet.publish(Weights(1, None), "abort", 0, "sync", 1))
        await turns(20)
        fleet.submit(0, call(7))
        stopped = fleet.stop([7])
        await asyncio.sleep(0)
        assert [running.call.sample for running in stopped if running.output.reason == "abort"] == [7]
        await publication

    assert [line for line in noted(kind(), called_off) if line.startswith("call")] == ["call 3", "call 1", "call 2"]
