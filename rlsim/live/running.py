"""A generate call of the policy, which may take several calls of an engine: publications cut and resume it.

Marks of calls on real engines, whose tokens come one by one or several at a time.
"""

from __future__ import annotations

import asyncio

from rlsim.core.events import Segments
from rlsim.core.ticks import Ticks
from rlsim.engine.requests import Request
from rlsim.live.protocols import Call, CallOutput, Marked


class Running:
    """One submitted call until it has ended."""

    __slots__ = ("call", "go", "lost", "output", "part", "replica", "stopped", "task")

    def __init__(self, replica: int, call: Call) -> None:
        self.replica, self.call = replica, call
        self.output = CallOutput()
        """By the engine calls that have ended."""
        self.part: CallOutput | None = None
        """By the one under way."""
        self.stopped = False
        """Whether the policy has asked for its end."""
        self.lost = False
        """Whether it ended with its replica."""
        self.go: asyncio.Future[None] | None = None
        """What it waits for between a cut by a publication and its resumption."""
        self.task: asyncio.Task[None]

    def begin(self) -> CallOutput:
        """What the engine call that begins now is to fill."""
        self.part = CallOutput()
        return self.part

    def so_far(self) -> tuple[list[int], list[float]]:
        """Token ids, and their log-probabilities where engines tell, of all that has arrived."""
        part = self.part or CallOutput()
        return [*self.output.tokens, *part.tokens], [*self.output.log_probs, *part.log_probs]

    def end(self) -> None:
        """Take in what the engine call has made that ends now."""
        output, part, self.part = self.output, self.part or CallOutput(), None
        output.tokens += part.tokens
        output.log_probs += part.log_probs
        output.segments = joined(output.segments, part.segments)
        output.reason = part.reason
        output.undelivered_tokens += part.undelivered_tokens
        output.draft_log_probs = part.draft_log_probs
        if output.first_token_at < 0:
            output.first_token_at = part.first_token_at

    @property
    def made_tokens(self) -> int:
        """Made so far, by engine calls that have ended."""
        return sum(tokens for _, tokens in self.output.segments)

    def rest(self, now: Ticks) -> Call:
        """The engine call that goes on where the last one was cut."""
        call, request, made_tokens = self.call, self.call.request, self.made_tokens
        left = Request(
            request.sample,
            request.prompt,
            request.prompt_tokens,
            request.context_tokens + made_tokens,
            request.target_tokens - made_tokens,
            request.priority,
            now,
            max_tokens=request.max_tokens - made_tokens if request.max_tokens else 0,
        )
        left.content, left.lineage = request.content, request.lineage
        left.marks = tuple(mark - made_tokens for mark in request.marks)
        context = [*call.context, *self.output.tokens] if call.context else ()
        most = call.max_tokens - made_tokens
        return Call(call.sample, context, most, call.ignore_eos, call.priority, left, call.draft_tokens)

    def settle(self) -> Request:
        """The request as an engine would have left it that ran the call in one go."""
        request = self.call.request
        request.segments = list(self.output.segments)
        request.tokens = request.context_tokens + self.made_tokens
        request.first_token = self.output.first_token_at
        return request


def joined(before: Segments, after: Segments) -> Segments:
    """Two lists of segments as one: runs of one version that meet are one run."""
    if before and after and before[-1][0] == after[0][0]:
        return (*before[:-1], (after[0][0], before[-1][1] + after[0][1]), *after[1:])
    return (*before, *after)


class MarkTeller:
    """Tells when the tokens of a call have come to its marks; not of one that the call has ended with."""

    def __init__(self) -> None:
        self.marked: Marked = lambda request, made_tokens: None

    def grown(self, call: Call, output: CallOutput, before: int, ended: bool) -> None:
        """Tokens have come: there were ``before`` of them."""
        most = len(output.tokens) - ended
        for mark in call.request.marks:
            if before < mark <= most:
                self.marked(call.request, mark)
