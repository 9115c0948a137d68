"""One inference replica in time: lockstep ranks of an engine, run window by window.

A window is a run of steps whose batch cannot change. With ``B`` decodes and a step time affine in the KV tokens,
``n`` steps last ``n*one + slope*n(n-1)/2`` with ``slope = B * kv_ps[B]``: no loop over steps. Several ranks (data
parallelism inside one engine) step together and wait for the slowest, so a window also ends where another
rank's line becomes the highest. A pure state machine: ``begin`` opens a window, ``cut`` shortens it to the first
step boundary after an instant, ``end`` applies it. Whoever drives it keeps the clock.

Rule: a step under way at an instant does not see what arrives at that instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isqrt

from rlsim.core.log import WindowRow
from rlsim.core.ticks import Ticks
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.scheduler import Scheduler
from rlsim.engine.steptime import Extra, StepTime, attention_pairs


class Replica:
    """``ranks`` engines in lockstep behind one address."""

    def __init__(
        self,
        index: int,
        limits: EngineLimits,
        law: StepTime,
        ranks: int = 1,
        noise: Extra | None = None,
        jump: bool = True,
    ) -> None:
        self.index, self.limits, self.law = index, limits, law
        self.ranks = [Scheduler(limits, law) for _ in range(ranks)]
        self.version = 0
        self.steps = 0
        """Steps of the window under way; 0 between windows."""
        self.marked: list[tuple[Request, int]] = []
        """Requests that came to one of their marks in the last window and go on, with their output tokens."""
        self.noise, self.jump = noise, jump
        self.total_steps = self.windows = 0
        self._start = self._one = self._slope = 0
        self._active: list[Scheduler] = []
        self._rank_of: dict[int, Scheduler] = {}
        self._leaving: list[int] = []
        self._left: dict[int, Request] = {}
        """Aborted by the last step, until they are asked for."""

    # -- requests -------------------------------------------------------------------------------------

    def submit(self, request: Request) -> bool:
        """Enqueue on the least loaded rank; true when the window under way should be cut for it."""
        rank = self.ranks[0] if len(self.ranks) == 1 else min(self.ranks, key=_load)
        self._rank_of[request.sample] = rank
        return rank.add(request) and self.steps > 1

    def abort(self, samples: Iterable[int]) -> list[Request]:
        """Abort requests between windows; those that were still here, with their tokens so far.

        Those that were told to leave during the last step (:meth:`leave`) have left, without what it made.
        """
        aborted = []
        for sample in samples:
            if sample in self._left:
                aborted.append(self._left.pop(sample))
                continue
            rank = self._rank_of.pop(sample, None)
            request = rank.abort(sample) if rank is not None else None
            if request is not None:
                aborted.append(request)
        return aborted

    def leave(self, samples: Iterable[int]) -> None:
        """Requests that are aborted while a step is under way: its end takes them out, and loses what it made for them.

        So does vLLM (``EngineCore._process_aborts_queue`` comes before ``update_from_output``).
        """
        self._leaving += samples

    def set_length(self, length: Callable[[Request, int], int]) -> None:
        """Ask ``length`` for the target of a request when its first token is made."""
        for rank in self.ranks:
            rank.length = length

    def set_law(self, law: StepTime) -> None:
        """Other times for the steps of later windows; a discipline goes on by those it was made with."""
        self.law = law

    @property
    def law_ticks(self) -> Ticks:
        """What the law says of the first step of the window that has just begun."""
        return self._one

    def requests(self) -> list[Request]:
        """All that wait or run here."""
        return [r for rank in self.ranks for r in (*rank.running.values(), *rank.waiting)]

    def has_requests(self) -> bool:
        """Whether any waits or runs here."""
        return any(rank.has_requests() for rank in self.ranks)

    def set_version(self, version: int) -> None:
        """New weights, between windows."""
        self.version = version
        for rank in self.ranks:
            rank.set_version(version)

    def reset(self) -> None:
        """Drop all KV, between windows: running requests go back to the head of the queue."""
        for rank in self.ranks:
            rank.reset()

    # -- windows --------------------------------------------------------------------------------------

    def begin(self, now: Ticks) -> Ticks | None:
        """Open a window at a step boundary; when it ends, None when there is nothing to run."""
        self._active.clear()
        steps = 0
        for rank in self.ranks:
            while not (stands := rank.schedule()) and rank.preempted:
                pass  # Asked again when it only preempted.
            if stands:
                self._active.append(rank)
                steps = min(steps, stands) if steps else stands
        if not steps:
            return None
        self.steps = steps if self.jump else 1
        self._start = now
        self._set_pace()
        if self.noise is not None:
            self.noise.open(self.steps)
        return now + self._duration(self.steps)

    def cut(self, now: Ticks) -> Ticks | None:
        """Shorten the window to the first step boundary after ``now``; its new end, None when unchanged."""
        steps = self._steps_beyond(now - self._start)
        if steps >= self.steps:
            return None
        self.steps = steps
        return self._start + self._duration(steps)

    def end(self, now: Ticks) -> list[Request]:
        """Apply the window; the requests that finished, in the engine's order."""
        finished: list[Request] = []
        self.marked.clear()
        for rank in self._active:
            finished += rank.advance(self.steps, self._leave(rank) if self._leaving else ())
            for request in rank.first_tokens:
                request.first_token = now
            self.marked += [mark for mark in rank.token_watch.passed if mark[0].finish_at >= 0]
        for request in finished:
            del self._rank_of[request.sample]
        self.total_steps += self.steps
        self.windows += 1
        self.steps = 0
        self._leaving.clear()
        return finished

    def _leave(self, rank: Scheduler) -> list[int]:
        here = {sample: rank.running[sample] for sample in self._leaving if rank.in_step(sample)}
        self._left |= here
        for sample in here:
            del self._rank_of[sample]
        return list(here)

    def stop(self, now: Ticks) -> Ticks | None:
        """Shorten the window to the steps done by ``now``; its end, None when there is none."""
        if self.steps:
            within = self._steps_beyond(now - self._start)
            self.steps = within - (self._duration(within) > now - self._start)
            self._leaving.clear()  # the step that was to take them out does not end
        return self._start + self._duration(self.steps) if self.steps else None

    def window(self, end: Ticks) -> WindowRow:
        """The window under way, as if it ended at ``end``."""
        decodes = chunks = prefill_tokens = kv_tokens = 0
        for rank in self._active:
            decodes += rank.decodes
            kv_tokens += rank.kv_tokens
            chunks += len(rank.chunks)
            prefill_tokens += sum(tokens for _, tokens in rank.chunks) if rank.chunks else 0
        return WindowRow(
            replica=self.index,
            start=self._start,
            end=end,
            steps=self.steps,
            decodes=decodes,
            chunks=chunks,
            prefill_tokens=prefill_tokens,
            kv_tokens=kv_tokens,
        )

    def _set_pace(self) -> None:
        """First step and growth of the slowest rank, and where another becomes the slowest."""
        if len(self._active) == 1:
            self._one, self._slope = self._line(self._active[0])
            return
        lines = [self._line(rank) for rank in self._active]
        one, slope = max(lines)
        self._one, self._slope = one, slope
        for other, growth in lines:
            if growth > slope:
                self.steps = min(self.steps, (one - other) // (growth - slope) + 1)

    def _line(self, rank: Scheduler) -> tuple[Ticks, Ticks]:
        law, decodes = self.law, rank.decodes
        if not rank.chunks:
            return law.decode(decodes, rank.kv_tokens), law.kv_ps[decodes] * decodes
        tokens = pairs = 0
        for request, chunk in rank.chunks:
            tokens += chunk
            pairs += attention_pairs(chunk, request.computed)
        return law.mixed(decodes, rank.kv_tokens, len(rank.chunks), tokens, pairs), 0

    def _duration(self, steps: int) -> Ticks:
        ticks = steps * self._one + self._slope * (steps * (steps - 1) // 2)
        return ticks if self.noise is None else ticks + self.noise.ticks(steps)

    def _steps_beyond(self, elapsed: Ticks) -> int:
        """Least number of steps, at most the window's, that last longer than ``elapsed``."""
        if self.noise is None:
            return min(self.steps, max(1, _steps_within(elapsed, self._one, self._slope) + 1))
        low, high = 1, self.steps
        while low < high:
            middle = (low + high) // 2
            if self._duration(middle) > elapsed:
                high = middle
            else:
                low = middle + 1
        return low


def _steps_within(elapsed: Ticks, one: Ticks, slope: Ticks) -> int:
    """Most steps with ``n*one + slope*n(n-1)/2 <= elapsed``, exactly."""
    if not slope:
        return elapsed // one
    linear = 2 * one - slope
    return (isqrt(linear * linear + 8 * slope * elapsed) - linear) // (2 * slope)


def _load(rank: Scheduler) -> int:
    """VLLM's data-parallel balancer: a waiting request weighs four running ones."""
    return 4 * rank.waiting_count + rank.running_count
