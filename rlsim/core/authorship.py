"""Which weights versions made the tokens of a request, booked when it stops decoding."""

from __future__ import annotations

from bisect import bisect_right

from rlsim.core.engine import Request


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
        mark = bisect_right(marks, at, key=_step_of) - 1
        while at < until:
            end = marks[mark + 1][0] if mark + 1 < len(marks) else until
            _add(request, marks[mark][1], end - at)
            at, mark = end, mark + 1


def _add(request: Request, version: int, tokens: int) -> None:
    segments = request.segments
    if segments and segments[-1][0] == version:
        tokens += segments.pop()[1]
    segments.append((version, tokens))


def _step_of(mark: tuple[int, int]) -> int:
    return mark[0]
