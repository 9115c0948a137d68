"""All engines of a live run: submissions, aborts, pauses, publications in every mode, and engines that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol

from rlsim.core.commands import UpdateMode
from rlsim.core.log import RunLog, SpanRow
from rlsim.core.ticks import Ticks
from rlsim.live.clock import LiveClock, sleep_until
from rlsim.live.protocols import Call, Engine, EngineLostError, Record, TakesCallsPaused, TellsSteps, Weights
from rlsim.live.running import Running

LAST_TOKENS_SECONDS = 5.0
"""Real time that calls have to end once their engine has been closed."""


class Caller(Protocol):
    """Who is told about calls that end."""

    def ended(self, running: Running) -> None:
        """A call ended by itself."""
        ...

    def lost(self, replica: int, cut: list[Running]) -> None:
        """A replica is gone, and with it these calls."""
        ...

    def refused(self, fault: Exception) -> None:
        """An engine refuses a call, breaks what it promised, or has a mistake: no other engine mends that."""
        ...

    def broken(self, task: asyncio.Task[None]) -> None:
        """A task of the fleet is over; what it raised nobody expected."""
        ...


class LiveFleet:
    """Engines by replica."""

    def __init__(
        self, clock: LiveClock, engines: Sequence[Engine], versions: list[int], log: RunLog, caller: Caller
    ) -> None:
        """``versions`` is where the fleet writes what each replica serves, by its own answer."""
        self._clock, self.engines, self._log, self._caller = clock, engines, log, caller
        self._versions = versions
        self.gone: set[int] = set()
        """Replicas that were lost."""
        self.delivered_tokens, self.undelivered_tokens = [0] * len(engines), [0] * len(engines)
        """Of calls that have ended, by replica: what was delivered, and what engines say they sampled beside it."""
        self._running: dict[int, Running] = {}
        self._on: list[dict[int, Running]] = [{} for _ in engines]
        self._offered: list[tuple[Weights, Ticks] | None] = [None] * len(engines)
        self._loading: list[bool] = [False] * len(engines)
        self._cut: list[bool] = [False] * len(engines)
        """Whether a publication has cut the calls of a replica, and they do not go on yet."""
        self._chores: set[asyncio.Task[None]] = set()

    @property
    def calls(self) -> int:
        """Calls under way."""
        return len(self._running)

    # -- calls ----------------------------------------------------------------------------------------

    def submit(self, replica: int, call: Call) -> None:
        """Start a call."""
        running = Running(replica, call)
        self._running[call.sample] = self._on[replica][call.sample] = running
        running.task = asyncio.create_task(self._run(running))
        running.task.add_done_callback(self._caller.broken)

    def so_far(self, sample: int) -> tuple[list[int], list[float]]:
        """What has arrived of a call under way; nothing where there is none."""
        running = self._running.get(sample)
        return ([], []) if running is None else running.so_far()

    def stop(self, samples: Iterable[int]) -> list[Running]:
        """The calls of these samples that are under way now, for ``abort``; later ones are not meant."""
        calls = [self._running[sample] for sample in samples if sample in self._running]
        for running in calls:
            running.stopped = True
            _release(running)
        return calls

    async def abort(self, calls: Sequence[Running]) -> list[Running]:
        """End calls that are stopped; those that had not ended by themselves, once they all have ended."""
        by_replica: dict[int, list[int]] = {}
        for running in calls:
            by_replica.setdefault(running.replica, []).append(running.call.sample)
        await self._each(by_replica, lambda replica: self.engines[replica].abort(by_replica[replica]))
        if calls:
            await asyncio.wait([running.task for running in calls])
        return [running for running in calls if running.output.reason == "abort" or running.lost]

    async def _run(self, running: Running) -> None:
        engine, call, replica = self.engines[running.replica], running.call, running.replica
        try:
            wanted = True
            if self._cut[replica]:  # It waits until the calls that are cut have gone on.
                running.output.reason = "abort"  # If it is not wanted any more by then.
                wanted = await self._may_go(running)
            while wanted and await self._cut_by_publication(engine, call, running):
                call = running.rest(self._clock.now)
        except EngineLostError:
            running.lost = True
        except Exception as fault:
            running.lost = True
            self._caller.refused(fault)
        del self._running[call.sample], self._on[replica][call.sample]
        self.delivered_tokens[replica] += running.made_tokens
        self.undelivered_tokens[replica] += running.output.undelivered_tokens
        if running.lost:
            self._on_engine_lost(replica, [running])
        elif running.output.reason != "abort":
            self._caller.ended(running)
        if self._offered[replica] is not None and not self._on[replica]:
            self._load_offered(replica)

    async def _cut_by_publication(self, engine: Engine, call: Call, running: Running) -> bool:
        """Run one engine call; whether it was cut to go on under other weights, once it may."""
        part = running.begin()
        try:
            await engine.generate(call, part)
        finally:
            running.end()
        if part.reason != "abort" or running.stopped:
            return False
        return await self._may_go(running)

    async def _may_go(self, running: Running) -> bool:
        """Wait until calls go on; whether this one is still wanted."""
        running.go = asyncio.get_running_loop().create_future()
        await running.go
        running.go = None
        return not running.stopped

    # -- engines that are lost ------------------------------------------------------------------------

    def _on_engine_lost(self, replica: int, ended: list[Running]) -> None:
        """Tell of a lost replica, and of its calls, which end now or have just ended."""
        first = replica not in self.gone
        self.gone.add(replica)
        for running in self._on[replica].values():
            _release(running)
        cut = [running for running in ended if not running.stopped]
        if first or cut:
            self._caller.lost(replica, cut)

    async def _each(self, replicas: Iterable[int], action: Callable[[int], Awaitable[object]]) -> None:
        """Do something with engines side by side; those that are lost meanwhile are told of."""
        alive = [replica for replica in replicas if replica not in self.gone]
        answers = await asyncio.gather(*(action(replica) for replica in alive), return_exceptions=True)
        for replica, answer in zip(alive, answers, strict=True):
            if isinstance(answer, EngineLostError):
                self._on_engine_lost(replica, [])
            elif isinstance(answer, BaseException):
                raise answer

    # -- weights --------------------------------------------------------------------------------------

    async def publish(self, weights: Weights, mode: UpdateMode, ticks: Ticks, what: str, version: int) -> None:
        """Give all replicas new weights while all are paused; it lasts at least ``ticks`` from the end of their steps.

        ``what`` and ``version`` are for the log: weights that were refused are the old ones.
        """
        requested_at = self._clock.now
        alive = [replica for replica in range(len(self.engines)) if replica not in self.gone]
        await self._each(alive, lambda replica: self.engines[replica].pause())
        if mode == "abort":
            await self._each(alive, self._cut_all)
        start = max((self._stopped(replica, requested_at) for replica in alive), default=requested_at)
        await self._each(alive, lambda replica: self._load(replica, weights, mode != "keep"))
        await sleep_until(self._clock, start + ticks)
        for replica in [replica for replica in alive if replica not in self.gone]:
            self._log.spans.append(SpanRow(replica, what, start, self._clock.now, version))
        await self._each(alive, self._go_on)

    async def publish_each(self, weights: Weights, mode: UpdateMode, ticks: Ticks) -> None:
        """Give every replica new weights on its own."""

        async def update(replica: int) -> None:
            requested_at = self._clock.now
            await self.engines[replica].pause()
            if mode == "abort":
                await self._cut_all(replica)
            await self._load_alone(replica, weights, mode != "keep", ticks, self._stopped(replica, requested_at))
            await self._go_on(replica)

        await self._each(range(len(self.engines)), update)

    def offer(self, weights: Weights, ticks: Callable[[int], Ticks]) -> None:
        """New weights that every replica loads, in ``ticks`` of it at least, when it is empty."""
        for replica in range(len(self.engines)):
            self._offered[replica] = (weights, ticks(replica))
            if not self._on[replica]:
                self._load_offered(replica)

    def _load_offered(self, replica: int) -> None:
        if not self._loading[replica] and replica not in self.gone:
            self._loading[replica] = True
            chore = asyncio.create_task(self._each([replica], self._take_offered))
            self._chores.add(chore)
            chore.add_done_callback(self._chores.discard)
            chore.add_done_callback(self._caller.broken)

    async def _take_offered(self, replica: int) -> None:
        """Load what is offered, then what is newer unless a call has come meanwhile: that waited long enough."""
        await self.engines[replica].pause()
        while (offered := self._offered[replica]) is not None:
            self._offered[replica] = None
            await self._load_alone(replica, offered[0], True, offered[1], self._clock.now)
            if self._on[replica]:
                break
        self._loading[replica] = False
        await self.engines[replica].resume()

    def _stopped(self, replica: int, requested_at: Ticks) -> Ticks:
        """When a paused engine stopped: at the end of its last step, if it tells, else now."""
        engine = self.engines[replica]
        return max(requested_at, engine.last_step_end()) if isinstance(engine, TellsSteps) else self._clock.now

    async def _load_alone(self, replica: int, weights: Weights, reset: bool, ticks: Ticks, start: Ticks) -> None:
        await self._load(replica, weights, reset)
        await sleep_until(self._clock, start + ticks)
        self._log.spans.append(SpanRow(replica, "sync", start, self._clock.now, weights.version))

    async def _load(self, replica: int, weights: Weights, reset: bool) -> None:
        self._versions[replica] = await self.engines[replica].load(weights, reset)

    async def _cut_all(self, replica: int) -> None:
        """Cut the calls of a replica; until they go on, those that come wait behind them."""
        self._cut[replica] = True
        await self.engines[replica].abort(list(self._on[replica]))

    async def _go_on(self, replica: int) -> None:
        """Cut calls first, then those that came meanwhile; together, where the engine takes them before it runs."""
        engine, were_cut = self.engines[replica], self._cut[replica]
        if not (were_cut and isinstance(engine, TakesCallsPaused)):
            await engine.resume()
        self._cut[replica] = False
        for running in self._on[replica].values():
            _release(running)
        if were_cut and isinstance(engine, TakesCallsPaused):
            await asyncio.sleep(0)  # the tasks of the calls go on, and ask the engine
            await engine.holds(list(self._on[replica]))
            await engine.resume()

    # -- roles and the end ----------------------------------------------------------------------------

    async def sleep(self, replicas: Iterable[int]) -> None:
        """Pause engines and give their memory to the trainer."""

        async def sleep(replica: int) -> None:
            await self.engines[replica].pause()
            await self.engines[replica].sleep()

        await self._each(replicas, sleep)

    async def wake(self, replicas: Iterable[int], resume: bool) -> None:
        """Give it back; ``resume`` lets them run at once, otherwise they wait for the next publication."""

        async def wake(replica: int) -> None:
            await self.engines[replica].wake()
            if resume:
                await self.engines[replica].resume()

        await self._each(replicas, wake)

    async def close(self) -> tuple[list[Record], list[Running], list[Exception]]:
        """Stop all engines: what they noted, the calls that this cut, and what went wrong in it."""
        under_way = list(self._running.values())
        for running in under_way:
            running.stopped = True
            _release(running)
        self._offered = [None] * len(self.engines)  # None is to be paused for weights by the end of its last call.
        for chore in (chores := list(self._chores)):
            chore.cancel()
        await settled(chores, LAST_TOKENS_SECONDS)
        answers = await asyncio.gather(*(engine.close() for engine in self.engines), return_exceptions=True)
        await settled({running.task for running in under_way}, LAST_TOKENS_SECONDS)
        faults = [answer for answer in answers if isinstance(answer, Exception)]
        return [answer if isinstance(answer, Record) else Record() for answer in answers], under_way, faults


async def settled(work: Collection[asyncio.Task[None]], seconds: float) -> None:
    """Let tasks end within real seconds; call off those that do not, and do not wait for what ignores that."""
    if work:
        _, late = await asyncio.wait(work, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=seconds)


def _release(running: Running) -> None:
    """Let a call that a publication has cut go on, or end."""
    if running.go is not None and not running.go.done():
        running.go.set_result(None)
