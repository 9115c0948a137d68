"""What a replica is told: the limits of its engine and the requests it serves.

Which weights versions made the tokens of a request, booked when it stops decoding.

Numbers of output tokens at which the caller of a running request wants to be told.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

from rlsim.core.ticks import Ticks
from rlsim.core.view import as_made
from rlsim.engine.discipline import VLLM, Discipline


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The settings of one vLLM V1 engine that its scheduler obeys, under vLLM's own names."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    kv_blocks: int
    """Blocks that requests can hold: vLLM's ``num_gpu_blocks`` less its null block."""
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    discipline: Discipline = VLLM

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return as_made(self)


class Request:
    """One generate call: a turn of a sample on one replica, from submission to its end.

    ``context_tokens`` are given (the prompt, and what earlier turns or a resumed prefix hold);
    ``target_tokens`` are to be generated. The blocks of the first ``prompt_tokens`` tokens have the
    content of ``prompt`` and can be shared by the group; all later ones are the sample's own.
    """

    __slots__ = (
        "arrival",
        "blocks",
        "cached_blocks",
        "computed",
        "content",
        "context_tokens",
        "entry",
        "finish_at",
        "first_token",
        "joined_at",
        "lineage",
        "lost_tokens",
        "marks",
        "max_tokens",
        "preemptions",
        "priority",
        "prompt",
        "prompt_tokens",
        "restored_tokens",
        "runs",
        "sample",
        "segments",
        "target_tokens",
        "tokens",
    )

    def __init__(
        self,
        sample: int,
        prompt: int,
        prompt_tokens: int,
        context_tokens: int,
        target_tokens: int,
        priority: int = 0,
        arrival: int = 0,
        restored_tokens: int = 0,
        max_tokens: int = 0,
    ) -> None:
        self.sample, self.prompt = sample, prompt
        self.content: tuple[object, ...] = ("sample", sample)
        """Names what the blocks behind the prompt hold: a call with the same content can hit them."""
        self.lineage: tuple[tuple[tuple[object, ...], int], ...] = ()
        """Contents between the prompt's and its own, each with the tokens of context up to which it goes."""
        self.prompt_tokens, self.context_tokens = prompt_tokens, context_tokens
        self.target_tokens = target_tokens
        self.priority, self.arrival = priority, arrival
        self.restored_tokens = restored_tokens
        """Tokens of the context whose KV is brought back from the host instead of computed."""
        self.max_tokens = max_tokens
        """Most tokens that the caller allows, which an engine is told; 0: as many as the longest sequence leaves."""
        self.tokens = context_tokens
        """Context and output so far; while decoding, as of step ``joined_at``."""
        self.computed = 0
        self.blocks = self.cached_blocks = 0
        self.runs: list[object] = []
        self.entry = self.joined_at = self.finish_at = -1
        self.marks: tuple[int, ...] = ()
        """Numbers of output tokens, ascending, at which the caller is to be told."""
        self.segments: list[tuple[int, int]] = []
        """(weights version, tokens) of each maximal run under one version."""
        self.first_token: Ticks = -1
        self.preemptions = self.lost_tokens = 0
        """Times sent back to the queue; tokens sampled by a step during which it was aborted."""


class Authorship:
    """The versions of one engine, by the step from which each makes tokens."""

    __slots__ = ("_marks", "version")

    def __init__(self) -> None:
        self.version = 0
        self._marks: list[tuple[int, int]] = [(0, 0)]

    def change(self, step: int, version: int) -> None:
        """Tokens from ``step`` on are made by these weights."""
        self.version = version
        if self._marks[-1][0] == step:
            self._marks.pop()
        self._marks.append((step, version))

    def credit(self, request: Request, tokens: int) -> None:
        """Tokens of the version of now."""
        _add(request, self.version, tokens)

    def credit_steps(self, request: Request, at: int, until: int) -> None:
        """A token a step, from step ``at`` to before ``until``, under the versions that made them."""
        marks = self._marks
        if marks[-1][0] <= at:
            if at < until:
                _add(request, self.version, until - at)
            return
        mark = bisect_right(marks, at, key=itemgetter(0)) - 1
        while at < until:
            end = marks[mark + 1][0] if mark + 1 < len(marks) else until
            _add(request, marks[mark][1], end - at)
            at, mark = end, mark + 1


def _add(request: Request, version: int, tokens: int) -> None:
    segments = request.segments
    if segments and segments[-1][0] == version:
        tokens += segments.pop()[1]
    segments.append((version, tokens))


class TokenWatch:
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
        generated = _generated(request, step)
        request.marks = request.marks[bisect_right(request.marks, generated) :]
        if request.marks and (at := step + request.marks[0] - generated) < request.finish_at:
            heapq.heappush(self._heap, (at, request.entry, request.sample))

    def token_of_prefill(self, request: Request) -> None:
        """The token that ends a prefill, by which a request that was preempted may come to a mark."""
        generated = request.tokens - request.context_tokens
        if generated in request.marks:
            self.passed.append((request, generated))

    def advance(self, step: int, running: Mapping[int, Request]) -> None:
        """The engine has done ``step`` steps; what was noted of requests that left or stood still is forgotten."""
        self.passed.clear()
        while self._heap and self._heap[0][0] <= step:
            _, entry, sample = heapq.heappop(self._heap)
            request = running.get(sample)
            if request is None or request.entry != entry or request.finish_at < 0 or not request.marks:
                continue
            if request.marks[0] == _generated(request, step):
                self.passed.append((request, request.marks[0]))
                self.expect(request, step)


def _generated(request: Request, step: int) -> int:
    """Output tokens of a decode after ``step`` steps."""
    return request.tokens + step - request.joined_at - request.context_tokens
