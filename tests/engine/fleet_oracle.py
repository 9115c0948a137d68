"""The naive replica behind the interface by which the fleet drives the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from naive import Content
from naive_discipline import Batch, DisciplinedScheduler
from naive_replica import NaiveReplica, Rank

from rlsim.core.log import WindowRow
from rlsim.core.ticks import Ticks
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime

Length = Callable[[Request, int], int]


class VersionedScheduler(DisciplinedScheduler):
    """Knows named contents too, and lengths that the version at the first token decides."""

    version = 0
    length: Length | None = None

    def _content(self, request: Request, index: int) -> Content:
        content = super()._content(request, index)
        own = content == ("sample", request.sample, index)
        return (*request.content, index) if own else content  # type: ignore[return-value]

    def _is_finished(self, request: Request) -> bool:
        if self.length is not None and request.tokens == request.context_tokens + 1:
            request.target_tokens = self.length(request, self.version)
        return super()._is_finished(request)


class OracleReplica(NaiveReplica):
    """One step a window: there is never anything to cut."""

    def __init__(self, index: int, limits: EngineLimits, law: StepTime, ranks: int = 1) -> None:
        super().__init__(index, limits, law, ranks)
        self.ranks = [Rank(VersionedScheduler(limits, law)) for _ in range(ranks)]
        self._start: Ticks = 0
        self._left: dict[int, Request] = {}
        self.marked: list[tuple[Request, int]] = []

    def end(self, now: Ticks) -> list[Request]:
        self.aborted, self.marked = [], []
        finished = super().end(now)
        self._left |= {request.sample: request for request in self.aborted}
        self.marked = [(request, made) for request, made in self.marked if request not in finished]
        return finished

    def _stamp(self, request: Request, now: Ticks) -> None:
        super()._stamp(request, now)
        made = request.tokens - request.context_tokens
        if made in request.marks:
            self.marked.append((request, made))

    @property
    def total_steps(self) -> int:
        return self.steps

    def submit(self, request: Request, rank: int | None = None) -> bool:
        super().submit(request, rank)
        return False

    def leave(self, samples: Iterable[int]) -> None:
        super().abort(samples)

    def abort(self, samples: Iterable[int]) -> list[Request]:
        """Those that left during the last step are answered for in the order asked."""
        found = []
        for sample in samples:
            found += [self._left.pop(sample)] if sample in self._left else super().abort([sample])
        return found

    def set_length(self, length: Length) -> None:
        for rank in self.ranks:
            rank.scheduler.length = length

    def set_law(self, law: StepTime) -> None:
        self.law = law

    def set_version(self, version: int) -> None:
        self.version = version
        for rank in self.ranks:
            rank.scheduler.version = version

    def has_requests(self) -> bool:
        return bool(self.requests())

    def requests(self) -> list[Request]:
        return [request for rank in self.ranks for request in rank.scheduler.requests.values()]

    def begin(self, now: Ticks) -> Ticks | None:
        self._start = now
        return super().begin(now)

    def cut(self, now: Ticks) -> Ticks | None:
        return None

    def stop(self, now: Ticks) -> Ticks | None:
        """Take back the step under way: what is not done by ``now`` does not count."""
        if self._in_step:
            self.steps -= 1
            self.prefill_tokens -= sum(batch.prefill_tokens for batch in self._batches())
            self._in_step, self._to_abort = [], []
        return None

    def window(self, end: Ticks) -> WindowRow:
        batches = self._batches()
        return WindowRow(
            self.index,
            self._start,
            end,
            1,
            sum(batch.decodes for batch in batches),
            sum(batch.chunks for batch in batches),
            sum(batch.prefill_tokens for batch in batches),
            sum(batch.kv_tokens for batch in batches),
        )

    def _batches(self) -> list[Batch]:
        return [rank.batch() for rank in self._in_step]
