"""Recorded requests through simulated engines: one, or as many as a run has data-parallel ranks.

Ranks of a mixture of experts meet in every layer, so they step together; ranks of a dense model are engines of their
own (``run_engine_core`` in vllm/v1/engine/core.py of vLLM 0.32). Either way a request goes to the rank with the least
load when it arrives, a waiting request counting as four running ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from calibration.serving.score import Replayed
from calibration.serving.timelines import Gauge, RecordedRun
from rlsim.core.errors import ParameterError
from rlsim.core.log import WindowRow
from rlsim.core.ticks import Ticks, to_seconds, to_ticks
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.replica import Replica
from rlsim.engine.requests import EngineLimits, Request

WAITING_WEIGHT = 4


def replay(run: RecordedRun, limits: EngineLimits, step_model: StepTimeModel, asynchronous: bool) -> Replayed:
    """Simulate the requests of ``run`` on its data-parallel ranks, each with ``limits``.

    ``asynchronous``: step N+1 is decided while step N runs, so a request that arrives during N enters N+2. Raises
    ``ParameterError`` when a request can never be admitted.
    """
    together = run.lockstep_ranks
    apart = run.settings.data_parallel // together
    engines = [_Engine(index, limits, step_model, asynchronous, together) for index in range(apart)]
    placed = []
    for sample, timeline in enumerate(run.timelines):
        prompt = timeline.input_tokens
        request = Request(sample, sample, prompt, prompt, timeline.output_tokens)
        arrival = to_ticks(timeline.queued_seconds)
        for engine in engines:
            engine.run(arrival)
        chosen = min(engines, key=lambda engine: engine.load)
        chosen.add(request, arrival)
        placed.append((request, chosen))
    for engine in engines:
        engine.run(None)
    return _replayed(run, engines, placed)


def _replayed(run: RecordedRun, engines: list[_Engine], placed: list[tuple[Request, _Engine]]) -> Replayed:
    return Replayed(
        tuple(
            recorded._replace(
                first_token_seconds=to_seconds(request.first_token),
                last_token_seconds=to_seconds(engine.ends[request.sample]),
            )
            for recorded, (request, engine) in zip(run.timelines, placed, strict=True)
        ),
        tuple(_summed(engines)),
        sum(engine.replica.total_steps for engine in engines),
        sum(engine.preemptions for engine in engines),
        max(engine.peak_kv_blocks for engine in engines),
        tuple(tuple(engine.windows) for engine in engines),
        tuple(engine.replica.index for _, engine in placed),
    )


def _summed(engines: list[_Engine]) -> Iterator[Gauge]:
    """Running and waiting requests of all engines, at every change of one."""
    changes = sorted((gauge.seconds, engine.replica.index, gauge) for engine in engines for gauge in engine.gauges)
    now = {engine.replica.index: Gauge(0.0, 0, 0) for engine in engines}
    for seconds, index, gauge in changes:
        now[index] = gauge
        yield Gauge(seconds, sum(each.running for each in now.values()), sum(each.waiting for each in now.values()))


class _Engine:
    """Ranks that step together, and the requests that are on their way to them."""

    def __init__(
        self, index: int, limits: EngineLimits, step_model: StepTimeModel, asynchronous: bool, ranks: int
    ) -> None:
        quantised = step_model.quantise(limits.max_num_batched_tokens, limits.max_num_seqs)
        self.replica = Replica(index, limits, quantised, ranks)
        self.gauges: list[Gauge] = []
        self.windows: list[WindowRow] = []
        self.ends: dict[int, Ticks] = {}
        self._limits, self._asynchronous = limits, asynchronous
        self._now: Ticks = 0
        self._end: Ticks | None = None
        """Of the window under way."""
        self._coming = deque[tuple[Ticks, Request]]()
        self._held: list[Request] = []
        """Arrived while the step now to begin was already decided."""
        self._least_free = limits.kv_blocks

    @property
    def load(self) -> int:
        """What the balancer compares."""
        waiting = len(self._coming) + len(self._held)
        running = sum(rank.running_count for rank in self.replica.ranks)
        return WAITING_WEIGHT * (waiting + sum(rank.waiting_count for rank in self.replica.ranks)) + running

    @property
    def preemptions(self) -> int:
        """Of all ranks."""
        return sum(rank.preemptions for rank in self.replica.ranks)

    @property
    def peak_kv_blocks(self) -> int:
        """Most blocks in use on a rank."""
        return self._limits.kv_blocks - self._least_free

    def add(self, request: Request, arrival: Ticks) -> None:
        """A request that arrives no earlier than all before it; the window under way ends with its step."""
        self._coming.append((arrival, request))
        if self._end is not None and arrival < self._end:
            self._end = _earlier(self.replica.cut(arrival), self._end)

    def run(self, until: Ticks | None) -> None:
        """Go on to the window that is under way at ``until``, or to the end."""
        while until is None or self._now < until:
            if self._end is None and not self._begin():
                return
            if self._end is None or (until is not None and self._end > until):
                return
            self._finish(self._end)

    def _begin(self) -> bool:
        """Open the next window; False where there is nothing to run yet."""
        self._admit()
        end = self.replica.begin(self._now)
        if end is None and self._held:
            return self._begin()
        if end is None and self._coming:
            self._now = max(self._now, self._coming[0][0])
            return self._begin()
        if end is None:
            if self.replica.has_requests():
                raise ParameterError("kv_blocks", self._limits.kv_blocks, "enough for the longest request")
            self._note(0, 0)
            return False
        if self._held:
            end = _earlier(self.replica.cut(self._now), end)
        if self._coming and self._coming[0][0] < end:
            end = _earlier(self.replica.cut(self._coming[0][0]), end)
        self._end = end
        return True

    def _admit(self) -> None:
        arrived = []
        while self._coming and self._coming[0][0] <= self._now:
            arrived.append(self._coming.popleft()[1])
        idle = not any(rank.running_count for rank in self.replica.ranks) and not self._held
        waits = self._asynchronous and not idle
        admitted, self._held = (self._held, arrived) if waits else (self._held + arrived, [])
        for request in admitted:
            request.arrival = self._now
            self.replica.submit(request)

    def _finish(self, end: Ticks) -> None:
        self.windows.append(self.replica.window(end))
        ranks = self.replica.ranks
        waiting = sum(rank.waiting_count for rank in ranks) + len(self._held)
        self._least_free = min(self._least_free, *(rank.free_blocks for rank in ranks))
        self._note(sum(rank.running_count for rank in ranks), waiting)
        for request in self.replica.end(end):
            self.ends[request.sample] = end
        self._now, self._end = end, None

    def _note(self, running: int, waiting: int) -> None:
        gauge = Gauge(to_seconds(self._now), running, waiting)
        if not self.gauges or self.gauges[-1] != gauge:
            self.gauges.append(gauge)


def _earlier(cut: Ticks | None, end: Ticks) -> Ticks:
    return end if cut is None else cut
