"""What holds under every preset, from recorded decisions of small runs."""

from __future__ import annotations

import pytest
from policy_runs import (
    AGENTS,
    POLICIES,
    SIZES,
    Owed,
    batches,
    commands,
    moments,
    run_of,
    scenario,
)

from rlsim.core.commands import Abort, CallTool, Submit, Sync
from rlsim.core.events import Aborted, Started, ToolReturned
from rlsim.executor.run import make_controller
from rlsim.presets import load_preset, preset_names
from rlsim.resolve import resolve
from rlsim.sim.simulation import simulate

EVERY = pytest.mark.parametrize("preset", POLICIES)
COLOCATED = [name for name in POLICIES if load_preset(name).parts["placement"]["use"] == "colocated"]


def test_every_preset_is_held_to_its_published_semantics() -> None:
    assert set(POLICIES) == set(preset_names()) >= set(SIZES)


@EVERY
def test_each_command_has_one_reply_and_no_reply_comes_unasked(preset: str) -> None:
    owed, replies = Owed(), 0
    log = run_of(preset, **AGENTS)
    for row in log.decisions:
        replies += not isinstance(row.event, Started)
        owed.take(row.event)
        for command in row.commands:
            owed.ask(command)
            assert all(count == 1 for key, count in owed.due.items() if key is not Abort)
    asked = sum(len(row.commands) for row in log.decisions)
    cuts = sum(len(row.event.cuts) for row in log.decisions if isinstance(row.event, Aborted))
    assert asked == replies + cuts + len(owed.due)


@EVERY
def test_every_sample_has_one_outcome_and_every_token_is_in_the_ledger(preset: str) -> None:
    log = run_of(preset, **AGENTS)
    named = [row.sample for row in log.final]
    submitted = {made.sample for _, made in commands(log, Submit)}
    assert len(named) == len(set(named))
    assert submitted <= set(named)
    assert all(row.tokens == 0 for row in log.final if row.sample not in submitted)
    assert sum(row.tokens for row in log.final) + log.undelivered_tokens == log.generated_tokens


@EVERY
def test_a_fresh_controller_gives_the_same_commands_for_the_recorded_events(preset: str) -> None:
    made = resolve(scenario({"preset": preset, **POLICIES[preset]}, **AGENTS))
    log = simulate(made).log
    fresh = make_controller(made, made.workload_of(0))
    assert [tuple(fresh.handle(row.now, row.event)) for row in log.decisions] == [row.commands for row in log.decisions]


@EVERY
def test_a_step_trains_on_whole_groups_and_never_twice_on_a_sample(preset: str) -> None:
    size = 1 if preset == "sao" else 2
    trained = [sample for batch in batches(run_of(preset, **AGENTS)) for sample in batch]
    assert len(trained) == len(set(trained)) == 5 * 3 * size
    assert {sample ^ (size - 1) for sample in trained} == set(trained)


def drains(preset: str) -> bool:
    """Whether the update part waits for calls under way."""
    update = load_preset(preset).filled(POLICIES[preset], "policy")["update"]
    return str(update.get("mode", "drain")) == "drain"


@pytest.mark.parametrize("preset", [name for name in POLICIES if drains(name)])
def test_drain_publishes_only_when_nothing_is_in_flight_and_no_tool_is_running(preset: str) -> None:
    tools: set[int] = set()
    seen = 0
    for moment in moments(run_of(preset, **AGENTS)):
        tools |= {made.sample for made in moment.commands if isinstance(made, CallTool)}
        if isinstance(moment.event, ToolReturned):
            tools.discard(moment.event.sample)
        if any(isinstance(made, Sync) for made in moment.commands):
            assert not moment.calls | tools
            seen += 1
    assert seen == (5 if preset != "asyncflow" else 2)


@pytest.mark.parametrize("preset", COLOCATED)
def test_on_shared_gpus_engine_steps_and_the_trainer_never_overlap(preset: str) -> None:
    log = run_of(preset, rollout__gpus=4, trainer__gpus=4, **AGENTS)
    busy = sorted((row.start, row.end, "engine", row.replica) for row in log.windows)
    held = sorted((row.start, row.end) for row in log.spans if row.who == -1)
    for start, end in held:
        assert all(until <= start or since >= end for since, until, _, _ in busy)
    assert {row.what for row in log.spans} >= {"switch", "sync", "update_actor"}


@EVERY
def test_the_file_says_what_its_bound_counts_and_uses_every_parameter(preset: str) -> None:
    made = load_preset(preset)
    used = {name for name in made.parameters if f"${name}" in str(made.parts)}
    assert used == set(made.parameters)
    assert all([made.source, made.bound, *(parameter.help for parameter in made.parameters.values())])
