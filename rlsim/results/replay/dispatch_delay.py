"""How long calls were on their way to an engine that was at work: read from the step in which each of them began.

An engine takes in what waits whenever it has a seat and tokens to spare. So a call that was not in such a step had not
reached the engine when that step began: it came before the next. Where the step before had nothing to spare, nothing
is known of the way, and it counts as none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rlsim.core.log import WindowRow
from rlsim.core.ticks import Ticks
from rlsim.engine.requests import EngineLimits
from rlsim.sim.recorded import CallKey


class Step(NamedTuple):
    """One engine step, and the window that it was told in."""

    start: Ticks
    end: Ticks
    row: WindowRow


class Began(NamedTuple):
    """A call."""

    key: CallKey
    cause: Ticks
    """Of the decision that submitted it."""
    first_token: Ticks
    """When it was heard of; -1 for a call that was under way when the run ended, of which nothing was told."""
    tokens: int = 0
    """That it had made when it ended by itself."""
    reported: Ticks = -1
    """When the policy heard of that; -1 where it did not end by itself."""


def ways(calls: Sequence[Began], steps: Sequence[Step], limits: EngineLimits) -> Iterator[tuple[CallKey, Ticks]]:
    """Ticks from its cause until just before the step in which a call began, for the calls of one replica."""
    for call, place in first_steps(calls, steps):
        if not place:
            continue
        before = steps[place - 1].row
        has_slot = before.decodes + before.chunks < limits.max_num_seqs
        if has_slot and before.decodes + before.prefill_tokens < limits.max_num_batched_tokens:
            yield call.key, max(0, steps[place - 1].end - 1 - call.cause)


def in_order(
    submissions: Sequence[tuple[CallKey, Ticks]], known: Mapping[CallKey, Ticks]
) -> Iterator[tuple[CallKey, Ticks]]:
    """Ways of the calls of one replica in the order of their submission: none overtakes another on its way."""
    there = 0
    for key, cause in submissions:
        there = max(there, cause + known.get(key, 0))
        yield key, there - cause


def ends(calls: Sequence[Began], steps: Sequence[Step]) -> Iterator[tuple[Began, Ticks]]:
    """When calls that ended by themselves did so: a token a step from their first, unless that is not over by then.

    A call that did not run in every step (preempted, or cut and resumed) ended with the last step that was over.
    """
    over = [step.end for step in steps]
    place_of = {call.key: place for call, place in first_steps(calls, steps)}
    for call in calls:
        if call.reported < 0:
            continue
        latest = bisect_right(over, call.reported) - 1
        place = place_of.get(call.key, latest) + call.tokens - 1
        last_step = (
            place
            if place <= latest and (place + 1 == len(steps) or steps[place].row is not steps[place + 1].row)
            else latest
        )
        yield call, over[last_step] if last_step >= 0 else call.reported


def first_steps(calls: Sequence[Began], steps: Sequence[Step]) -> Iterator[tuple[Began, int]]:
    """Calls by their prefill steps: the later a first token was heard of, the later the step that made it."""
    slots = [place for place, step in enumerate(steps) for _ in range(step.row.chunks)]
    ends = [steps[place].end for place in slots]
    delivering = [call for call in calls if call.first_token >= 0]
    left, spare = len(slots), set(range(len(slots)))
    for call in sorted(delivering, key=lambda call: call.first_token, reverse=True):
        left = min(left, bisect_right(ends, call.first_token)) - 1
        if left < 0:
            return
        spare.discard(left)
        yield call, slots[left]
    untold = sorted((call for call in calls if call.first_token < 0), key=lambda call: call.cause)
    if len(untold) == len(spare):  # otherwise some steps computed a context again
        yield from zip(untold, (slots[place] for place in sorted(spare)), strict=True)
