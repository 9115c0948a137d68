"""Decisions survive JSON exactly, and a fresh controller takes them again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import PRESETS, TURNS, small_run

from rlsim.controller import Controller
from rlsim.core.commands import Abort, Command, Submit, Sync, Train
from rlsim.core.events import Aborted, Cut, Event, Finished, Started
from rlsim.core.log import Decision
from rlsim.executor.run import FinishedRun, make_controller
from rlsim.results.replay.decisions import RecordError, ReplayError, from_json, replay, to_json

WHOLE = st.integers(0, 2**60)
SEGMENTS = st.lists(st.tuples(WHOLE, WHOLE), max_size=3).map(tuple)
CUTS = st.lists(st.builds(Cut, WHOLE, WHOLE, WHOLE, SEGMENTS), max_size=3).map(tuple)
EVENTS = st.one_of(
    st.builds(Started),
    st.builds(Aborted, CUTS),
    st.builds(Finished, WHOLE, WHOLE, WHOLE, SEGMENTS, st.sampled_from(["stop", "length", "tool"]), WHOLE),
)
COMMANDS = st.one_of(
    st.builds(Abort, st.lists(WHOLE, max_size=3).map(tuple)),
    st.builds(Train, WHOLE, st.lists(WHOLE, max_size=3).map(tuple), st.booleans()),
    st.builds(Sync, WHOLE, st.sampled_from(["drain", "keep"]), st.floats(0, 1e9)),
)


def fresh(run: FinishedRun) -> Controller:
    return make_controller(run.plan, run.plan.workload_of(run.replication))


def through_json(decision: Decision) -> Decision:
    return from_json(json.loads(json.dumps(to_json(decision))))


@given(WHOLE, EVENTS, st.lists(COMMANDS, max_size=3))
def test_any_decision_survives_json(now: int, event: Event, commands: list[Command]) -> None:
    decision = Decision(now, event, tuple(commands))
    assert through_json(decision) == decision


@pytest.mark.parametrize("preset", PRESETS)
def test_a_recorded_run_replays_to_the_same_commands(preset: str) -> None:
    run = small_run(preset, 0, TURNS)
    decisions = [through_json(decision) for decision in run.log.decisions]
    assert decisions == run.log.decisions
    replay(decisions, fresh(run))


def test_a_command_that_differs_is_named_with_both_versions() -> None:
    run = small_run("areal")
    decisions = list(run.log.decisions)
    place = next(number for number, found in enumerate(decisions) if number and found.commands)
    first = decisions[place].commands[0]
    assert isinstance(first, Submit)
    changed = (first._replace(replica=first.replica + 5), *decisions[place].commands[1:])
    decisions[place] = decisions[place]._replace(commands=changed)
    with pytest.raises(ReplayError) as differs:
        replay(decisions, fresh(run))
    text = str(differs.value)
    assert f"decision {place} at" in text
    assert "command 0 differs" in text
    assert f"recorded {changed[0]}" in text
    assert f"new      {first}" in text


def test_a_command_of_another_type_that_holds_the_same_is_a_difference() -> None:
    run = small_run("areal")
    first = run.log.decisions[0]
    untyped = (tuple(first.commands[0]), *first.commands[1:])
    assert untyped == first.commands
    with pytest.raises(ReplayError, match="command 0 differs"):
        replay([first._replace(commands=untyped)], fresh(run))  # type: ignore[arg-type]


def test_a_command_that_is_missing_is_a_difference() -> None:
    run = small_run("areal")
    first = run.log.decisions[0]
    with pytest.raises(ReplayError, match=rf"recorded none \(of {len(first.commands) - 1}\)"):
        replay([first._replace(commands=first.commands[:-1])], fresh(run))


def test_an_event_that_cannot_have_happened_is_a_difference() -> None:
    run = small_run("areal")
    with pytest.raises(ReplayError, match=r"decision 0 at .* cannot take it"):
        replay([Decision(0, Finished(99, 0, 1, ((0, 1),), "stop", 0), ())], fresh(run))


GOOD: dict[str, Any] = {
    "now": 1,
    "event": {"type": "ToolReturned", "sample": 2, "output_tokens": 3, "outcome": "done"},
    "commands": [],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"now": 1.5}, "now: found 1.5; allowed: int"),
        ({"now": True}, "now: found True"),
        ({"event": None}, "event: found None; allowed: a mapping with a type"),
        ({"event": {"type": "Sinced", "version": 2}}, "did you mean 'Synced'"),
        ({"event": {"type": "Submit"}}, r"event\.type"),
        ({"event": {"type": "Synced"}}, "exactly version, accepted"),
        ({"event": {"type": "Synced", "version": 2, "more": 1}}, "exactly version, accepted"),
        ({"event": {"type": "RoleSet", "role": "sleep"}}, r"event\.role: found 'sleep'"),
        ({"event": {"type": "Aborted", "cuts": [{"sample": 1}]}}, r"event\.cuts"),
        ({"commands": {}}, "commands: found {}; allowed: a list"),
        ({"commands": [{"type": "Abort", "samples": ["1"]}]}, r"commands\[0\]\.samples: found '1'"),
        ({"extra": 1}, "exactly now, event, commands"),
    ],
)
def test_what_is_not_a_decision_is_refused_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        from_json({**GOOD, **change})


def test_the_good_record_is_good() -> None:
    assert to_json(from_json(GOOD)) == GOOD
