"""Marks of calls on real engines, whose tokens come one by one or several at a time."""

from __future__ import annotations

from rlsim.core.engine import Request
from rlsim.live.protocols import Call, Made, Marked


class MarkTeller:
    """Tells when the tokens of a call have come to its marks; not of one that the call has ended with."""

    def __init__(self) -> None:
        self.marked: Marked = _to_nobody

    def grown(self, call: Call, made: Made, before: int, ended: bool) -> None:
        """Tokens have come: there were ``before`` of them."""
        most = len(made.tokens) - ended
        for mark in call.request.marks:
            if before < mark <= most:
                self.marked(call.request, mark)


def _to_nobody(request: Request, made_tokens: int) -> None:
    """Nobody watches."""
