"""How long everything lasted in a recorded run, read so that it can be put into a simulation.

A simulator acts at the instant of a cause; a live run acts when its executor has heard of it. Everything is therefore
measured *from its cause*: a training from the end of the engine step that completed its batch, an engine step from the
end of the one before, or, where the engine stood still, from what gave it work or let it run again. So the ways between
engine, executor and trainer are in what they delay, and nothing is counted twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate

from rlsim.core.commands import Abort, CallTool, Score, SetRole, Submit, Sync, Train
from rlsim.core.events import (
    Aborted,
    Cut,
    Finished,
    ReplicaLost,
    RoleSet,
    Scored,
    Started,
    Synced,
    ToolReturned,
    Trained,
)
from rlsim.core.log import Decision, RunLog, ServiceRow, SpanRow, WindowRow
from rlsim.core.ticks import Ticks
from rlsim.engine.steptime import StepTime
from rlsim.resolve import ResolvedScenario
from rlsim.results.replay.dispatch_delay import Began, Step, ends, in_order, ways
from rlsim.sim.recorded import CallKey, CallKeys, Key, Recording

TRAINER = -1
BETWEEN = ("sync", "rejected", "switch", "lent")
"""Spans of the trainer that are no phases of a training."""
Interval = tuple[Ticks, Ticks]


def recording_of(log: RunLog, plan: ResolvedScenario) -> Recording:
    """Durations from their causes; engine steps only where the engines told them."""
    reader = _Reader(log)
    reader.read()
    steps = _single_steps(log, plan)
    reports = _reports(reader, steps)
    return Recording(
        steps=_durations(reader, steps, _restores(log, plan)),
        trainings=reader.trainings,
        publications=reader.publications,
        loads=[_loads(log.spans, replica) for replica in range(plan.shape.replicas)],
        switches=reader.switches,
        tools=reader.tools,
        rewards=reader.rewards,
        ways=_ways(reader, steps, plan),
        reports=reports,
        leads=[_lead(requested, end, log.spans, steps) for requested, end in reader.publication_intervals],
    )


def tells_steps(log: RunLog) -> bool:
    """Whether the engines told their steps, not only when they had work."""
    return bool(log.windows) and all(row.steps for row in log.windows)


def submit_lags(log: RunLog) -> list[Ticks]:
    """Of each decision, how long after its cause it was taken."""
    reader = _Reader(log)
    reader.read()
    return reader.lags


def single_steps(row: WindowRow, law: StepTime) -> list[Interval]:
    """The steps of a window one by one, as long in proportion as the law says of growing contexts."""
    length = row.end - row.start
    if row.steps <= 1:
        return [(row.start, row.end)] * row.steps
    decodes = min(row.decodes, len(law.sequence_ps) - 1)
    weights = [max(1, law.decode(decodes, row.kv_tokens + step * row.decodes)) for step in range(row.steps)]
    whole = sum(weights)
    ends = [row.start + length * done // whole for done in accumulate(weights)]
    return list(zip([row.start, *ends[:-1]], ends, strict=True))


class _Reader:
    """One pass over the decisions, which finds the cause of each."""

    def __init__(self, log: RunLog) -> None:
        self.log = log
        self.lags: list[Ticks] = []
        """Of each decision, from what happened until it was taken."""
        self.trainings: list[list[tuple[str, Ticks]]] = []
        self.publications: list[Ticks] = []
        self.publication_intervals: list[Interval] = []
        """Of each publication, the cause of its command, and its end."""
        self.switches: list[Ticks] = []
        self.tools: dict[tuple[Key, int], Ticks] = {}
        self.rewards: dict[Key, Ticks] = {}
        self.work: dict[int, list[Interval]] = {}
        """By replica, when each call was there that did not end by itself."""
        self.began: dict[int, list[Began]] = {}
        """By replica, the calls that made a token or may have."""
        self.asked_calls: dict[int, list[tuple[CallKey, Ticks]]] = {}
        """By replica, in the order of their submission, with its cause."""
        self._keys = CallKeys()
        self._begun: dict[int, tuple[int, Ticks, CallKey]] = {}
        self._ends = _window_ends(log.windows)
        self._services = _services(log.services)
        self._phases = phases_of(log)
        self._synced = deque(_publication_ends(log))
        self._switched = deque(_trainer_spans(log.spans, ("switch",)))
        self._trained: deque[Ticks] = deque()
        self._replies = sum(type(decision.event) is Trained for decision in log.decisions)
        self._aborts: list[tuple[frozenset[int], Ticks]] = []
        self._handlers = {
            Finished: self._finished,
            Aborted: self._aborted,
            ReplicaLost: self._lost,
            ToolReturned: lambda now, event: self._served(now, event.sample, "tool"),
            Scored: lambda now, event: self._served(now, event.sample, "reward"),
            Trained: lambda now, event: self._trained.popleft() if self._trained else now,
            Synced: lambda now, event: self._synced.popleft() if self._synced else now,
            RoleSet: lambda now, event: self._switched.popleft().end if self._switched else now,
            Started: lambda now, event: 0,
        }

    def read(self) -> None:
        """All decisions."""
        last = len(self.log.decisions) - 1 if self.log.last_commands_idle else -1
        for number, decision in enumerate(self.log.decisions):
            handler = self._handlers.get(type(decision.event))
            cause = decision.now if handler is None else min(decision.now, handler(decision.now, decision.event))  # type: ignore[operator]
            self.lags.append(decision.now - cause)
            if number != last:
                # an end of a call is told as late as it was, and its decision is then on time
                self._take_commands(decision, decision.now if type(decision.event) is Finished else cause)
        for replica, since, key in self._begun.values():
            self.work.setdefault(replica, []).append((since, self.log.end))
            self.began.setdefault(replica, []).append(Began(key, since, -1))

    # -- causes ---------------------------------------------------------------------------------------

    def _step_end(self, replica: int, now: Ticks) -> Ticks:
        """Of the last step on a replica by now."""
        ends = self._ends.get(replica, [])
        place = bisect_right(ends, now)
        return ends[place - 1] if place else now

    def _finished(self, now: Ticks, event: Finished) -> Ticks:
        cause = self._step_end(event.replica, now)
        replica, since, key = self._begun.pop(event.sample)
        self.began.setdefault(replica, []).append(Began(key, since, event.first_token_at, event.tokens, now))
        return cause

    def _aborted(self, now: Ticks, event: Aborted) -> Ticks:
        samples = {cut.sample for cut in event.cuts}
        request = next((abort for abort in self._aborts if samples <= abort[0]), None)
        if request is not None:
            self._aborts.remove(request)
        ends = [self._step_end(cut.replica, now) for cut in event.cuts]
        cause = max([request[1] if request else now, *ends])
        for cut in event.cuts:
            self._call_cut(cut, cause)
        return cause

    def _lost(self, now: Ticks, event: ReplicaLost) -> Ticks:
        for cut in event.cuts:
            self._call_cut(cut, now)
        return now

    def _call_cut(self, ended: Cut, at: Ticks) -> None:
        replica, since, key = self._begun.pop(ended.sample)
        self.work.setdefault(replica, []).append((since, max(since, at)))
        if ended.first_token_at >= 0:
            self.began.setdefault(replica, []).append(Began(key, since, ended.first_token_at))

    def _served(self, now: Ticks, sample: int, what: str) -> Ticks:
        rows = self._services.get((sample, what))
        return rows.popleft().end if rows else now

    # -- durations ------------------------------------------------------------------------------------

    def _take_commands(self, decision: Decision, cause: Ticks) -> None:
        for command in decision.commands:
            if type(command) is Submit:
                key = self._keys.next(command)
                self._begun[command.sample] = command.replica, cause, key
                self.asked_calls.setdefault(command.replica, []).append((key, cause))
            elif type(command) is Abort:
                self._aborts.append((frozenset(command.samples), cause))
            elif type(command) is Train:
                self._train(cause)
            elif type(command) is Sync and self._synced:
                self.publications.append(self._synced[0] - cause)
                self.publication_intervals.append((cause, self._synced[0]))
            elif type(command) is SetRole and self._switched:
                self.switches.append(self._switched[0].end - cause)
            elif type(command) is CallTool:
                self._serve(command, "tool", cause)
            elif type(command) is Score:
                self._serve(command, "reward", cause)

    def _train(self, cause: Ticks) -> None:
        """The way to the trainer is booked with its first phase; one that never ended has no duration."""
        spans = next(self._phases)
        if len(self.trainings) == self._replies:
            return
        starts = [cause, *(span.start for span in spans[1:])]
        self.trainings.append([(span.what, span.end - start) for span, start in zip(spans, starts, strict=False)])
        self._trained.append(spans[-1].end if spans else self.log.end)

    def _serve(self, command: CallTool | Score, what: str, cause: Ticks) -> None:
        rows = self._services.get((command.sample, what))
        if not rows:
            return
        row, key = rows[0], (command.draw, command.recycle, command.member)
        waited_for_worker = row.start > row.requested
        ticks = row.end - (row.start if waited_for_worker else cause)
        if isinstance(command, CallTool):
            self.tools[key, command.turn] = ticks
        else:
            self.rewards[key] = ticks


def _window_ends(windows: Sequence[WindowRow]) -> dict[int, list[Ticks]]:
    ends: dict[int, list[Ticks]] = {}
    for row in windows:
        ends.setdefault(row.replica, []).append(row.end)
    return {replica: sorted(times) for replica, times in ends.items()}


def _services(rows: Sequence[ServiceRow]) -> dict[tuple[int, str], deque[ServiceRow]]:
    by_sample: dict[tuple[int, str], deque[ServiceRow]] = {}
    for row in sorted(rows, key=lambda row: row.requested):
        by_sample.setdefault((row.sample, row.what), deque()).append(row)
    return by_sample


def _trainer_spans(spans: Sequence[SpanRow], whats: tuple[str, ...]) -> list[SpanRow]:
    return sorted((row for row in spans if row.who == TRAINER and row.what in whats), key=lambda row: row.start)


def _publication_ends(log: RunLog) -> Iterator[Ticks]:
    """When engines ran again, which the trainer hears of later; for replicas that pull, when they could."""
    replicas = [row for row in log.spans if row.who >= 0 and row.what in ("sync", "rejected")]
    commands = [command for decision in log.decisions for command in decision.commands if type(command) is Sync]
    for command, span in zip(commands, _trainer_spans(log.spans, ("sync", "rejected")), strict=False):
        within = [row.end for row in replicas if span.start <= row.start and row.end <= span.end]
        yield max(within) if within and command.mode != "pull" else span.end


def phases_of(log: RunLog) -> Iterator[list[SpanRow]]:
    """Spans of each training command: those from its decision to the next one's."""
    starts = [now for now, _, commands in log.decisions for command in commands if type(command) is Train]
    spans = sorted(
        (row for row in log.spans if row.who == TRAINER and row.what not in BETWEEN), key=lambda row: row.start
    )
    for number, begin in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else log.end + 1
        yield [row for row in spans if begin <= row.start < end]


def _loads(spans: Sequence[SpanRow], replica: int) -> list[Ticks]:
    return [row.end - row.start for row in spans if row.who == replica and row.what == "sync"]


# -- engine steps ---------------------------------------------------------------------------------------


def _single_steps(log: RunLog, plan: ResolvedScenario) -> list[list[Step]]:
    """By replica; none where engines do not tell."""
    by_replica: list[list[Step]] = [[] for _ in range(plan.shape.replicas)]
    if not tells_steps(log):
        return by_replica
    laws = [pool.law.quantise(pool.limits.max_num_batched_tokens, pool.limits.max_num_seqs) for pool in plan.pools]
    law_of = {replica: law for pool, law in zip(plan.pools, laws, strict=True) for replica in pool.place.replicas}
    for row in sorted(log.windows, key=lambda row: row.start):
        by_replica[row.replica] += [Step(start, end, row) for start, end in single_steps(row, law_of[row.replica])]
    return by_replica


def _durations(reader: _Reader, by_replica: Sequence[Sequence[Step]], restores: bool) -> list[list[Ticks]]:
    """Each step's end less the end of the one before, or less what let the engine begin after that."""
    if restores:
        return [[step.end - step.start for step in steps] for steps in by_replica]
    durations: list[list[Ticks]] = []
    for replica, steps in enumerate(by_replica):
        may_begin, before = _may_begin(reader, replica), 0
        durations.append([])
        for start, end, _ in steps:
            place = bisect_right(may_begin, start)
            began = max(before, may_begin[place - 1]) if place else start
            durations[-1].append(end - min(began, start))
            before = end
    return durations


def _reports(reader: _Reader, by_replica: Sequence[Sequence[Step]]) -> dict[CallKey, Ticks]:
    """How late the policy heard of ends; the work of engines ends with them."""
    delays: dict[CallKey, Ticks] = {}
    for replica, steps in enumerate(by_replica):
        for call, end in ends(reader.began.get(replica, []), steps):
            delays[call.key] = call.reported - end
            reader.work.setdefault(replica, []).append((call.cause, max(call.cause, end)))
    return delays


def _ways(reader: _Reader, by_replica: Sequence[Sequence[Step]], plan: ResolvedScenario) -> dict[CallKey, Ticks]:
    """Where contexts are not brought from the host or another replica, which has a way of its own."""
    if _restores(reader.log, plan):
        return {}
    delays: dict[CallKey, Ticks] = {}
    for replica, steps in enumerate(by_replica):
        pool = plan.pool_of(replica)
        if pool.rollout.data_parallel == 1:
            known = dict(ways(reader.began.get(replica, []), steps, pool.limits))
            delays.update(in_order(reader.asked_calls.get(replica, []), known))
    return delays


def _lead(requested: Ticks, end: Ticks, spans: Sequence[SpanRow], by_replica: Sequence[Sequence[Step]]) -> Ticks:
    """How long engines went on after a publication was asked for: until the last step before it had begun."""
    leads = [0]
    for row in spans:
        if row.who >= 0 and row.what in ("sync", "rejected") and requested <= row.start and row.end <= end:
            begun = [step.start for step in by_replica[row.who] if requested < step.start < row.start]
            leads += [max(begun) + 1 - requested] if begun else []
    return max(leads)


def _restores(log: RunLog, plan: ResolvedScenario) -> bool:
    """Whether calls may wait for their KV before the engine has them, which the simulator models."""
    commands = (command for decision in log.decisions for command in decision.commands)
    fetched = any(command.kv_from_pool for command in commands if type(command) is Submit)
    return fetched or plan.scenario.rollout.kv_while_waiting == "offload"


def _may_begin(reader: _Reader, replica: int) -> list[Ticks]:
    """Instants from which the engine has had work again, or may run again, in order."""
    resumed = [row.end for row in reader.log.spans if row.who == replica and row.what in ("sync", "rejected")]
    # Starts of the union of intervals.
    work = reader.work.get(replica, [])
    starts, until = [], -1
    for begin, end in sorted(work):
        if begin > until:
            starts.append(begin)
        until = max(until, end)
    return sorted([*resumed, *starts])
