"""Marks of calls whose tokens come several at a time: each is told once, as soon as its token is there."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rlsim.engine.requests import Request
from rlsim.live.protocols import Call, CallOutput
from rlsim.live.running import MarkTeller


def call(marks: tuple[int, ...]) -> Call:
    request = Request(1, 0, 4, 4, 100)
    request.marks = marks
    return Call(1, [5] * 4, 100, True, 0, request)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.sets(st.integers(2, 60)))
def test_every_mark_that_the_call_passes_is_told_once_in_order(pieces: list[int], marks: set[int]) -> None:
    teller, told, made = MarkTeller(), [], CallOutput()
    teller.marked = lambda request, tokens: told.append((tokens, len(made.tokens)))
    ordered = call(tuple(sorted(marks)))
    for number, piece in enumerate(pieces):
        before = len(made.tokens)
        made.tokens += [7] * piece
        teller.grown(ordered, made, before, ended=number == len(pieces) - 1)
    ends = list(itertools.accumulate(pieces))
    expected = [(mark, next(end for end in ends if end >= mark)) for mark in sorted(marks) if mark < ends[-1]]
    assert told == expected


def test_nobody_is_told_where_nobody_watches() -> None:
    made = CallOutput([7] * 9)
    MarkTeller().grown(call((2, 4)), made, 0, ended=False)
