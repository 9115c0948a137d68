"""When a server had work: windows cover exactly the time in which calls were under way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rlsim.live.openai.engine import BusyWindows


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30))
def test_windows_hold_as_many_call_ticks_as_there_were(changes: list[tuple[int, int]]) -> None:
    busy, now, calls, call_ticks = BusyWindows(3), 0, 0, 0
    for wait, next_calls in [*changes, (1, 0)]:
        now, call_ticks = now + wait, call_ticks + wait * calls
        busy.change(now, next_calls)
        calls = next_calls
    assert sum((row.end - row.start) * row.decodes for row in busy.rows) == call_ticks
    assert all(before.end <= after.start for before, after in zip(busy.rows, busy.rows[1:], strict=False))
    assert {(row.replica, row.steps) for row in busy.rows} <= {(3, 0)}
