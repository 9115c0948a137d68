"""Numbers of output tokens at which the caller of a running request wants to be told."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping

from rlsim.core.engine import Request


class Marks:
    """The next mark of every decode of one engine that has one."""

    def __init__(self) -> None:
        self.passed: list[tuple[Request, int]] = []
        """Requests that came to a mark in the last steps, with their output tokens; some may have ended with it."""
        self._heap: list[tuple[int, int, int]] = []
        """(step, entry, sample), some of them out of date."""

    def __bool__(self) -> bool:
        return bool(self._heap or self.passed)

    def steps_to_next(self, step: int, steps: int) -> int:
        """At most ``steps``, and not beyond the next mark."""
        return min(steps, self._heap[0][0] - step) if self._heap else steps

    def expect(self, request: Request, step: int) -> None:
        """Note the step after which a decode has come to its next mark, if that is before its end."""
        made = _made(request, step)
        request.marks = request.marks[bisect_right(request.marks, made) :]
        if request.marks and (at := step + request.marks[0] - made) < request.finish_at:
            heapq.heappush(self._heap, (at, request.entry, request.sample))

    def token_of_prefill(self, request: Request) -> None:
        """The token that ends a prefill, by which a request that was preempted may come to a mark."""
        made = request.tokens - request.context_tokens
        if made in request.marks:
            self.passed.append((request, made))

    def advance(self, step: int, running: Mapping[int, Request]) -> None:
        """The engine has done ``step`` steps; what was noted of requests that left or stood still is forgotten."""
        self.passed.clear()
        while self._heap and self._heap[0][0] <= step:
            _, entry, sample = heapq.heappop(self._heap)
            request = running.get(sample)
            if request is None or request.entry != entry or request.finish_at < 0 or not request.marks:
                continue
            if request.marks[0] == _made(request, step):
                self.passed.append((request, request.marks[0]))
                self.expect(request, step)


def _made(request: Request, step: int) -> int:
    """Output tokens of a decode after ``step`` steps."""
    return request.tokens + step - request.joined_at - request.context_tokens
