"""Small clusters with a hard life, and a driver that lives it on any kind of replica.

A ``Cluster`` is a plain value: the engines and everything that will happen to them, so that it can be drawn
from a seed or by hypothesis and shrunk. ``live`` drives it as the simulator does: step boundaries, services and
tools, then one controller that reads an inbox. The ``Outcome`` holds every integer that a user could see.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from fleet_oracle import OracleReplica

from rlsim.core.events import Cut
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks
from rlsim.engine.replica import Replica
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime
from rlsim.executor.driver import CONTROLLER, SERVICES
from rlsim.sim.clock import SimClock, SimTimer
from rlsim.sim.fleet import SimFleet

Then = Callable[[], None]


MARKS = (2, 3, 6, 11)
"""Output tokens of every third sample's calls at which the caller is told."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One generate call: ``given_tokens`` of tool output come first, ``delay`` after the turn before."""

    target_tokens: int
    given_tokens: int = 0
    delay: Ticks = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """A trajectory of turns; ``arrival`` None: submitted when others end."""

    prompt: int
    prompt_tokens: int
    """How much of ``prompt`` it has: some share its head only."""
    turns: tuple[Turn, ...]
    arrival: Ticks | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Abort:
    """At ``at``, end the calls of every ``stride``-th sample; resume them after a while, or never."""

    at: Ticks
    stride: int
    resume_after: Ticks | None


@dataclass(frozen=True, slots=True)
class Update:
    """From ``at``, when the update before it is done: pause all replicas, or each on its own, for ``ticks``."""

    at: Ticks
    ticks: Ticks
    scope: Literal["all", "each"]
    reset: bool
    publishes: bool


@dataclass(frozen=True, slots=True)
class Slow:
    """From ``at`` for ``ticks``, steps that begin take ``factor`` times as long; overlapping ones end together."""

    at: Ticks
    ticks: Ticks
    factor: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """Engines and what happens to them."""

    limits: EngineLimits
    law: StepTime
    replicas: int
    ranks: int
    samples: tuple[Sample, ...]
    in_flight: int
    """Samples that run at once, of those without an arrival of their own."""
    aborts: tuple[Abort, ...] = ()
    updates: tuple[Update, ...] = ()
    slow: tuple[Slow, ...] = ()
    round_robin: bool = False
    sticky: bool = True
    """A sample's later calls go to the replica of its first."""
    forgets: bool = False
    """A turn finds nothing of the turns before it in the prefix cache."""
    offloads: bool = False
    """A turn brings the KV of its context back from the host."""
    drift: int = 0
    """Tokens by which each version lengthens what has not begun."""
    close_at: Ticks | None = None
    states_longest: bool = False
    """Calls tell the engine how much they may make; else only the longest sequence bounds them."""


class Outcome(NamedTuple):
    """Everything that must not depend on how the engine counts."""

    events: tuple[object, ...]
    """What the controller was told, in order: (tick, what, ...). The last tick is the end of the run."""
    calls: tuple[object, ...]
    """Every call: first token, tokens, segments, preemptions."""
    replicas: tuple[object, ...]
    """Every replica: steps, decoded tokens, prefill tokens, and the same again from its activity log."""
    spans: tuple[object, ...]
    """Every weight update of every replica that updated on its own."""


def jumping(cluster: Cluster) -> list[Replica]:
    return [Replica(index, cluster.limits, cluster.law, cluster.ranks) for index in range(cluster.replicas)]


def stepping(cluster: Cluster) -> list[Replica]:
    return [Replica(index, cluster.limits, cluster.law, cluster.ranks, jump=False) for index in range(cluster.replicas)]


def naive(cluster: Cluster) -> list[OracleReplica]:
    return [OracleReplica(index, cluster.limits, cluster.law, cluster.ranks) for index in range(cluster.replicas)]


def live(cluster: Cluster, replicas: Sequence[Replica] | Sequence[OracleReplica]) -> Outcome:
    """Run ``cluster`` on ``replicas`` to its end."""
    return Life(cluster, replicas).outcome()


@dataclass(slots=True)
class Course:
    """How far one sample has come."""

    plan: Sample
    state: Literal["queued", "calling", "aborting", "away", "over"] = "queued"
    turn: int = 0
    replica: int = -1
    tokens: int = 0
    made: int = 0
    """Tokens of the turn under way that earlier calls made."""
    target: int = 0
    call: Request | None = field(default=None, repr=False)
    lineage: tuple[tuple[tuple[object, ...], int], ...] = ()


class Life:
    """The controller, the tools and the trainer of one cluster, as simple as they can be."""

    def __init__(self, cluster: Cluster, replicas: Sequence[Replica] | Sequence[OracleReplica]) -> None:
        self.cluster = cluster
        self.replicas: Sequence[Replica] = replicas  # type: ignore[assignment]
        self.clock, self.log = SimClock(), RunLog()
        self.fleet = SimFleet(self.clock, self.replicas, self.log, self)
        self.courses = [
            Course(sample, tokens=sample.prompt_tokens + sample.turns[0].given_tokens) for sample in cluster.samples
        ]
        self.backlog = deque(index for index, sample in enumerate(cluster.samples) if sample.arrival is None)
        self.events: list[object] = []
        self.calls: list[tuple[int, Request]] = []
        self.busy = [0] * cluster.replicas
        self.running = self.routed = self.version = 0
        self.updates: deque[Update] = deque()
        self.updating = False
        self._inbox: deque[Then] = deque()
        if cluster.drift:
            for replica in self.replicas:
                replica.set_length(self._length)

    def outcome(self) -> Outcome:
        self._schedule_plan()
        over = self.clock.event()
        if self.cluster.close_at is None:
            self.clock.run()
            assert all(course.state == "over" for course in self.courses), "a sample never ended"
        else:
            self.clock.at(self.cluster.close_at, CONTROLLER, lambda _: over.succeed())
            self.clock.run(until=over)
            self._tell("closed", *sorted(self.fleet.close(), key=lambda cut: cut.sample))
        return Outcome(
            tuple(self.events),
            tuple((sample, *_facts(call)) for sample, call in self.calls),
            tuple((*_counters(replica), *_activity(self.log, replica.index)) for replica in self.replicas),
            tuple(self.log.spans),
        )

    def _schedule_plan(self) -> None:
        plan: list[tuple[Ticks, Then]] = [
            (course.plan.arrival, partial(self._submit, index))
            for index, course in enumerate(self.courses)
            if course.plan.arrival is not None
        ]
        plan += [(abort.at, partial(self._abort, abort)) for abort in self.cluster.aborts]
        plan += [(update.at, partial(self._ask_update, update)) for update in self.cluster.updates]
        for slow in self.cluster.slow:
            plan.append((slow.at, partial(self._set_law, slow.factor)))
            plan.append((slow.at + slow.ticks, partial(self._set_law, 1.0)))
        for at, action in plan:
            self.clock.at(at, SERVICES, lambda _, action=action: self._deliver(action))
        self._deliver(self._refill)

    def _set_law(self, factor: float) -> None:
        self.fleet.set_laws([self.cluster.law.slowed(factor)] * self.cluster.replicas)

    # -- the inbox ------------------------------------------------------------------------------------

    def _deliver(self, action: Then) -> None:
        self._inbox.append(action)
        if len(self._inbox) == 1:
            self.clock.at(self.clock.now, CONTROLLER, self._attend)

    def _attend(self, timer: SimTimer) -> None:
        while self._inbox:
            self._inbox[0]()
            self._inbox.popleft()

    def _tell(self, *what: object) -> None:
        self.events.append((self.clock.now, *what))

    # -- calls ----------------------------------------------------------------------------------------

    def _refill(self) -> None:
        while self.backlog and self.running < self.cluster.in_flight:
            self.running += 1
            self._submit(self.backlog.popleft())

    def _submit(self, sample: int) -> None:
        course, cluster = self.courses[sample], self.cluster
        turn = course.plan.turns[course.turn]
        if course.replica < 0 or not cluster.sticky:
            course.replica = self._route()
        course.target = course.target or turn.target_tokens
        if sample % 5 == 4 and not course.lineage:
            self._begin_like(course, sample - 1, turn.target_tokens)
        course.call = request = Request(
            sample,
            course.plan.prompt,
            course.plan.prompt_tokens,
            course.tokens,
            course.target - course.made,
            course.plan.priority,
            self.clock.now,
            course.tokens - 1 if cluster.offloads and course.turn else 0,
            course.target - course.made + 2 if cluster.states_longest and not cluster.drift else 0,
        )
        if cluster.forgets and course.turn:
            request.content = ("turn", sample, course.turn)
        if sample % 3 == 0:
            request.marks = MARKS
        if sample % 5 == 4:
            request.lineage = course.lineage
        course.state = "calling"
        self.busy[course.replica] += 1
        self.calls.append((sample, request))
        self.fleet.submit(course.replica, request)

    def _begin_like(self, course: Course, sample: int, target_tokens: int) -> None:
        """Take over the context of another sample with the same prompt, where it has one and there is room for it."""
        other, plan = self.courses[sample], course.plan
        alike = (other.plan.prompt, other.plan.prompt_tokens) == (plan.prompt, plan.prompt_tokens)
        fits = other.tokens + target_tokens <= self.cluster.limits.max_model_len
        if alike and fits and not course.made and other.tokens > course.tokens:
            course.tokens = other.tokens
            course.lineage = ((("sample", sample), other.tokens),)

    def _route(self) -> int:
        self.routed += 1
        if self.cluster.round_robin:
            return self.routed % len(self.busy)
        return min(range(len(self.busy)), key=self.busy.__getitem__)

    def _length(self, request: Request, version: int) -> int:
        course = self.courses[request.sample]
        if course.made:
            return request.target_tokens
        course.target = course.plan.turns[course.turn].target_tokens + version * self.cluster.drift
        return course.target

    def finished(self, request: Request, replica: int) -> None:
        """A call ended by itself."""
        self._tell("finished", request.sample, replica)
        course = self.courses[request.sample]
        assert course.call is request
        course.state, course.tokens = "away", request.tokens
        self._deliver(partial(self._ended, request.sample))

    def marked(self, request: Request, made_tokens: int) -> None:
        """A call came to one of its marks."""
        self._tell("marked", request.sample, made_tokens)

    def _ended(self, sample: int) -> None:
        course = self.courses[sample]
        self.busy[course.replica] -= 1
        course.turn, course.made, course.target = course.turn + 1, 0, 0
        if course.turn < len(course.plan.turns):
            turn = course.plan.turns[course.turn]
            course.tokens += turn.given_tokens
            if course.tokens < self.cluster.limits.max_model_len:
                self._after(turn.delay, partial(self._submit, sample))
                return
        self._over(course)

    def _over(self, course: Course) -> None:
        course.state = "over"
        if course.plan.arrival is None:
            self.running -= 1
            self._refill()

    def _after(self, delay: Ticks, action: Then) -> None:
        self.clock.after(delay, partial(self._deliver, action))

    # -- aborts and updates ---------------------------------------------------------------------------

    def _abort(self, abort: Abort) -> None:
        by_replica: dict[int, list[int]] = {}
        for sample in range(0, len(self.courses), abort.stride):
            course = self.courses[sample]
            if course.state == "calling":
                course.state = "aborting"
                by_replica.setdefault(course.replica, []).append(sample)
        if by_replica:
            self.fleet.abort(by_replica, partial(self._aborted, abort))

    def _aborted(self, abort: Abort, cuts: list[Cut]) -> None:
        self._tell("aborted", *cuts)
        self._deliver(partial(self._book_cuts, abort, cuts))

    def _book_cuts(self, abort: Abort, cuts: list[Cut]) -> None:
        for cut in cuts:
            course = self.courses[cut.sample]
            self.busy[cut.replica] -= 1
            course.tokens += cut.tokens
            course.made += cut.tokens
            course.state = "away"
            if abort.resume_after is None:
                self._over(course)
            else:
                self._after(abort.resume_after, partial(self._submit, cut.sample))

    def _ask_update(self, update: Update) -> None:
        self.updates.append(update)
        if not self.updating:
            self._update()

    def _update(self) -> None:
        self.updating = bool(self.updates)
        if not self.updating:
            return
        update = self.updates.popleft()
        self.version += update.publishes
        if update.scope == "each":
            self.fleet.update_each(self.version, lambda replica: update.ticks, update.reset, self._updated)
        else:
            self.fleet.pause(lambda: self.clock.after(update.ticks, partial(self._resume, update)))

    def _resume(self, update: Update) -> None:
        if update.publishes or update.reset:
            self.fleet.set_version(self.version, update.reset)
        self.fleet.resume()
        self._updated()

    def _updated(self) -> None:
        self._tell("updated", self.version)
        self._deliver(self._update)


def _facts(call: Request) -> tuple[object, ...]:
    return call.first_token, call.tokens, tuple(call.segments), call.preemptions


def _counters(replica: Replica | OracleReplica) -> tuple[int, int, int, int]:
    if isinstance(replica, OracleReplica):
        return replica.total_steps, replica.decoded_tokens, replica.prefill_tokens, replica.lost_tokens
    ranks = replica.ranks
    return (
        replica.total_steps,
        sum(rank.decoded_tokens for rank in ranks),
        sum(rank.prefill_tokens for rank in ranks),
        sum(rank.lost_tokens for rank in ranks),
    )


def _activity(log: RunLog, replica: int) -> tuple[int, ...]:
    """Busy ticks, steps, decodes, chunks, prefill tokens and KV tokens read, summed over the steps of the log."""
    sums: Counter[str] = Counter()
    for row in log.windows:
        if row.replica == replica:
            growth = row.decodes * (row.steps * (row.steps - 1) // 2)
            sums["ticks"] += row.end - row.start
            sums["steps"] += row.steps
            sums["decodes"] += row.steps * row.decodes
            sums["chunks"] += row.chunks
            sums["prefill"] += row.prefill_tokens
            sums["kv"] += row.steps * row.kv_tokens + growth
    return tuple(sums[name] for name in ("ticks", "steps", "decodes", "chunks", "prefill", "kv"))
