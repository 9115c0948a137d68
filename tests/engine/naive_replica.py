"""A replica that walks every sequence of every rank in every step: the timed oracle of the jumping replica."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from naive import NaiveScheduler
from naive_discipline import Batch, DisciplinedScheduler

from rlsim.core.ticks import Ticks
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime, attention_pairs


@dataclass
class Rank:
    scheduler: NaiveScheduler
    decoding: set[int] = field(default_factory=set)
    """Samples with output since they were last admitted."""

    def load(self) -> int:
        return 4 * self.scheduler.waiting_count + self.scheduler.running_count

    def decide(self) -> Batch | None:
        """The next step, asked for again while it only preempts; None if nothing can run."""
        while not self.scheduler.schedule():
            if not self.scheduler.preempted:
                return None
            self.decoding.difference_update(self.scheduler.preempted)
        self.decoding.difference_update(self.scheduler.preempted)
        return self.batch()

    def batch(self) -> Batch:
        batch = Batch()
        for sample, tokens in self.scheduler.scheduled().items():
            request = self.scheduler.requests[sample]
            if sample in self.decoding:
                assert (tokens, request.computed + 1) == (1, request.tokens)
                batch.decodes += 1
                batch.kv_tokens += request.tokens
            else:
                batch.chunks += 1
                batch.prefill_tokens += tokens
                batch.pairs += attention_pairs(tokens, request.computed)
        return batch

    def run(self) -> tuple[list[Request], list[Request]]:
        """Requests that got a token, and those of them that finished."""
        before = {sample: self.scheduler.requests[sample].tokens for sample in self.scheduler.scheduled()}
        served = [self.scheduler.requests[sample] for sample in before]
        finished = self.scheduler.advance(1)
        grown = [request for request in served if request.tokens > before[request.sample]]
        self.decoding.update(request.sample for request in grown)
        self.decoding.difference_update(request.sample for request in finished)
        return grown, finished

    def samples(self, sample: int) -> bool:
        """Whether the step makes a token for it: a decode, or the chunk that ends a prefill."""
        tokens = self.scheduler.scheduled().get(sample, 0)
        request = self.scheduler.requests.get(sample)
        return bool(tokens) and request is not None and request.computed + tokens == request.tokens

    def abort(self, sample: int) -> Request | None:
        self.decoding.discard(sample)
        return self.scheduler.abort(sample)

    def reset(self) -> None:
        self.decoding.clear()
        self.scheduler.reset()


class NaiveReplica:
    """``ranks`` engines in lockstep under one step-time law; a step lasts as long as its slowest rank."""

    def __init__(self, index: int, limits: EngineLimits, law: StepTime, ranks: int = 1) -> None:
        self.index, self.limits, self.law = index, limits, law
        self.ranks = [Rank(DisciplinedScheduler(limits, law)) for _ in range(ranks)]
        self.version = 0
        self.steps = self.decoded_tokens = self.prefill_tokens = self.lost_tokens = 0
        self.aborted: list[Request] = []
        """What the last ``end``, or the last ``abort`` outside a step, took out."""
        self._to_abort: list[int] = []
        self._in_step: list[Rank] = []

    def submit(self, request: Request, rank: int | None = None) -> None:
        chosen = min(self.ranks, key=Rank.load) if rank is None else self.ranks[rank]
        chosen.scheduler.add(request)

    def abort(self, samples: Iterable[int]) -> list[Request]:
        """Requests taken out at once; none during a step, whose end takes them out."""
        self._to_abort += samples
        return [] if self._in_step else self._apply_aborts()

    def begin(self, now: Ticks) -> Ticks | None:
        """Decide a step on every rank; the tick at which it ends, or None if nothing can run."""
        decided = [(rank, rank.decide()) for rank in self.ranks]
        batches = [batch for _, batch in decided if batch is not None]
        if not batches:
            return None
        self._in_step = [rank for rank, batch in decided if batch is not None]
        self.steps += 1
        self.prefill_tokens += sum(batch.prefill_tokens for batch in batches)
        return now + max(batch.ticks(self.law) for batch in batches)

    def end(self, now: Ticks) -> list[Request]:
        """Apply the aborts that came during the step, which lose what it made, then run it; who finished."""
        lost = sum(rank.samples(sample) for sample in self._to_abort for rank in self._in_step)
        self.lost_tokens += lost
        self.decoded_tokens += lost
        self._apply_aborts()
        finished: list[Request] = []
        for rank in self._in_step:
            grown, done = rank.run()
            for request in grown:
                self._stamp(request, now)
            finished += done
        self._in_step = []
        return finished

    def _stamp(self, request: Request, now: Ticks) -> None:
        self.decoded_tokens += 1
        if request.first_token < 0:
            request.first_token = now
        if request.segments and request.segments[-1][0] == self.version:
            request.segments[-1] = (self.version, request.segments[-1][1] + 1)
        else:
            request.segments.append((self.version, 1))

    def _apply_aborts(self) -> list[Request]:
        found = [rank.abort(sample) for sample in self._to_abort for rank in self.ranks]
        self.aborted = [request for request in found if request is not None]
        self._to_abort = []
        return self.aborted

    def reset(self) -> None:
        for rank in self.ranks:
            rank.reset()
