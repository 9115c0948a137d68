"""The replicas on the clock: submissions, boundaries, aborts, pauses and weight updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from rlsim.core.events import Cut
from rlsim.core.log import RunLog, SpanRow
from rlsim.core.ticks import Ticks
from rlsim.engine.replica import Replica
from rlsim.engine.requests import Request
from rlsim.engine.steptime import StepTime
from rlsim.executor.driver import WAKES
from rlsim.executor.termination import cut_of
from rlsim.sim.clock import SimClock, SimTimer

Then = Callable[[], None]


class Caller(Protocol):
    """Who is told about calls that end."""

    def finished(self, request: Request, replica: int) -> None:
        """A call ended by itself."""
        ...

    def marked(self, request: Request, made_tokens: int) -> None:
        """A call came to one of its marks."""
        ...


class SimFleet:
    """All replicas of a run."""

    def __init__(self, clock: SimClock, replicas: Sequence[Replica], log: RunLog, caller: Caller) -> None:
        self._clock, self.replicas, self._log, self._caller = clock, replicas, log, caller
        self._timers: list[SimTimer | None] = [None] * len(replicas)
        """The end of the window under way; None while idle."""
        self._waking = [False] * len(replicas)
        self._paused = [False] * len(replicas)
        self._at_boundary: list[list[Then]] = [[] for _ in replicas]
        self._offered: list[tuple[int, Callable[[int], Ticks]] | None] = [None] * len(replicas)
        """A version that a replica is to load once it is empty, and how long that will take."""
        self._unreported: list[list[Cut]] = []
        """Of aborts that wait for some replica's boundary."""
        self._ends: list[Callable[[SimTimer], None]] = [partial(self._boundary, replica) for replica in replicas]
        self._wakes: list[Callable[[SimTimer], None]] = [partial(self._wake, replica) for replica in replicas]

    def submit(self, index: int, request: Request) -> None:
        """Enqueue a call on a replica."""
        replica = self.replicas[index]
        wants_cut = replica.submit(request)
        if self._timers[index] is None:
            if not self._paused[index]:
                self._wake_now(replica)
        elif wants_cut:
            self._cut(replica)

    def abort(self, by_replica: dict[int, list[int]], then: Callable[[list[Cut]], None]) -> None:
        """End calls at the next boundary of their replicas; ``then`` gets what they had made by the steps before."""
        cuts: list[Cut] = []
        self._unreported.append(cuts)
        waiting = set(by_replica)

        def cut(index: int) -> None:
            cuts.extend(cut_of(request, index) for request in self.replicas[index].abort(by_replica[index]))
            waiting.discard(index)
            if not waiting:
                self._unreported = [other for other in self._unreported if other is not cuts]
                then(sorted(cuts, key=lambda ended: ended.sample))

        for index, samples in list(by_replica.items()):
            self.replicas[index].leave(samples if self._timers[index] is not None else ())
            self._when_quiet(self.replicas[index], partial(cut, index))

    @property
    def at_work(self) -> bool:
        """Whether any engine step is under way."""
        return any(timer is not None for timer in self._timers)

    def set_laws(self, laws: Sequence[StepTime]) -> None:
        """Other step times for every replica: a step under way keeps its length, and what follows is planned anew."""
        for replica, law in zip(self.replicas, laws, strict=True):
            self._when_quiet(replica, partial(replica.set_law, law))

    def pause(self, then: Then) -> None:
        """Stop every replica at its next boundary; ``then`` runs when the last has stopped."""
        waiting = set(range(len(self.replicas)))

        def quiet(index: int) -> None:
            waiting.discard(index)
            if not waiting:
                then()

        for replica in self.replicas:
            self._paused[replica.index] = True
        for replica in self.replicas:
            self._when_quiet(replica, partial(quiet, replica.index))

    def resume(self) -> None:
        """Let every replica run again."""
        for replica in self.replicas:
            self._paused[replica.index] = False
            self._wake_now(replica)

    def update_each(self, version: int, ticks: Callable[[int], Ticks], reset: bool, then: Then) -> None:
        """Give every replica new weights on its own: it pauses at its boundary for ``ticks`` of it."""
        waiting = set(range(len(self.replicas)))

        def updated(replica: Replica, start: Ticks) -> None:
            self.set_version(version, reset, [replica])
            self._log.spans.append(SpanRow(replica.index, "sync", start, self._clock.now, version))
            self._paused[replica.index] = False
            self._wake_now(replica)
            waiting.discard(replica.index)
            if not waiting:
                then()

        def stopped(replica: Replica) -> None:
            self._clock.after(ticks(replica.index), partial(updated, replica, self._clock.now))

        for replica in self.replicas:
            self._paused[replica.index] = True
            self._when_quiet(replica, partial(stopped, replica))

    def offer(self, version: int, ticks: Callable[[int], Ticks]) -> None:
        """New weights that every replica loads, in ``ticks`` of it, when it is empty."""
        for replica in self.replicas:
            self._offered[replica.index] = (version, ticks)
            if self._stands(replica.index):
                self._load_offered(replica)

    def _load_offered(self, replica: Replica) -> bool:
        """Begin to load what was offered, if the replica is empty."""
        offered = self._offered[replica.index]
        if offered is None or replica.has_requests():
            return False
        self._offered[replica.index] = None
        self._paused[replica.index] = True
        self._clock.after(offered[1](replica.index), partial(self._loaded, replica, offered[0], self._clock.now))
        return True

    def _loaded(self, replica: Replica, version: int, start: Ticks) -> None:
        self.set_version(version, True, [replica])
        self._log.spans.append(SpanRow(replica.index, "sync", start, self._clock.now, version))
        self._paused[replica.index] = False
        if not self._load_offered(replica):
            self._wake_now(replica)

    def set_version(self, version: int, reset: bool, replicas: Iterable[Replica] | None = None) -> None:
        """New weights on paused replicas, with or without the KV made by the old ones."""
        for replica in self.replicas if replicas is None else replicas:
            if reset:
                replica.reset()
                for request in replica.requests():
                    request.restored_tokens = 0
            replica.set_version(version)

    def forget(self, replicas: Iterable[int]) -> None:
        """The KV caches of empty replicas are gone: their memory is another's."""
        for index in replicas:
            self.replicas[index].reset()

    def close(self) -> list[Cut]:
        """The run is over: apply the steps done by now; what the calls not reported have made."""
        cuts = [cut for ended in self._unreported for cut in ended]
        for replica in self.replicas:
            end = replica.stop(self._clock.now)
            if end is not None:
                self._log.windows.append(replica.window(end))
                replica.end(end)
            here = [request.sample for request in replica.requests()]
            cuts += [cut_of(request, replica.index) for request in replica.abort(here)]
        return cuts

    def _when_quiet(self, replica: Replica, action: Then) -> None:
        if self._timers[replica.index] is None:
            action()
            return
        self._at_boundary[replica.index].append(action)
        self._cut(replica)

    def _cut(self, replica: Replica) -> None:
        if replica.steps > 1:
            end = replica.cut(self._clock.now)
            if end is not None:
                self._timers[replica.index] = self._clock.at(end, replica.index, self._ends[replica.index])

    def _boundary(self, replica: Replica, timer: SimTimer) -> None:
        index = replica.index
        if timer is not self._timers[index]:
            return
        now = self._clock.now
        self._log.windows.append(replica.window(now))
        finished = replica.end(now)
        for request, made_tokens in replica.marked:
            self._caller.marked(request, made_tokens)
        for request in finished:
            self._caller.finished(request, index)
        self._timers[index] = None
        if self._at_boundary[index]:
            actions, self._at_boundary[index] = self._at_boundary[index], []
            for action in actions:
                action()
        if not self._paused[index]:
            self._begin(replica, now)

    def _begin(self, replica: Replica, now: Ticks) -> None:
        if self._offered[replica.index] is not None and self._load_offered(replica):
            return
        end = replica.begin(now)
        if end is not None:
            self._timers[replica.index] = self._clock.at(end, replica.index, self._ends[replica.index])

    def _wake_now(self, replica: Replica) -> None:
        if not self._waking[replica.index]:
            self._waking[replica.index] = True
            self._clock.at(self._clock.now, WAKES + replica.index, self._wakes[replica.index])

    def _wake(self, replica: Replica, timer: SimTimer) -> None:
        self._waking[replica.index] = False
        if self._stands(replica.index):
            self._begin(replica, self._clock.now)

    def _stands(self, index: int) -> bool:
        """Whether no step is under way and none is forbidden."""
        return self._timers[index] is None and not self._paused[index]
