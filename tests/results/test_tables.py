"""Tables: what they say of hand-made logs, and identities between them and the log."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from handmade import handmade
from runs import PRESETS, TURNS, small_run

from rlsim.core.commands import Submit
from rlsim.core.events import Aborted, Finished
from rlsim.resolve import resolve
from rlsim.results.activity import activity
from rlsim.results.history import read_history
from rlsim.results.metrics import metrics
from rlsim.results.tables import TABLES, tables
from rlsim.scenario.document import load
from rlsim.sim.simulation import simulate

WATCHED = Path(__file__).parents[2] / "scenarios" / "live" / "watched.yaml"


def test_samples_of_the_handmade_run() -> None:
    samples = tables(handmade())["samples"].set_index("sample")
    third = samples.loc[2]
    assert (third.group, third.member, third.prompt_tokens, third.response_tokens, third.calls) == (1, 0, 100, 8, 1)
    assert (third.submitted_seconds, third.first_token_seconds, third.finished_seconds) == (12, 13, 25)
    assert (third.trained_step, third.trained_seconds, third.outcome, third.finish_reason) == (1, 32, "trained", "stop")
    assert (third.version_first, third.version_last, third.version_trained) == (0, 1, 2)
    assert samples.outcome.tolist() == ["trained"] * 4 + ["in_flight"] * 2
    assert samples.loc[4, "trained_step"] == -1
    assert np.isnan(samples.loc[4, "start_lag"])


def test_segments_and_updates_of_the_handmade_run() -> None:
    found = tables(handmade())
    assert found["segments"].to_numpy().tolist() == [
        [0, 0, 0, 0, 10],
        [1, 0, 0, 0, 12],
        [2, 0, 0, 0, 6],
        [2, 1, 0, 1, 2],
        [3, 0, 0, 1, 4],
    ]
    updates = found["updates"]
    assert updates["train_start_seconds"].tolist() == [12, 32]
    assert updates["train_end_seconds"].tolist() == [20, 40]
    assert updates["version"].tolist() == [0, 2]
    assert updates["step_seconds"].tolist() == [21, 20]
    assert updates["tokens"].tolist() == [222, 212]
    assert updates["update_actor_seconds"].tolist() == [8, 8]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_replica_does_exactly_one_thing_at_every_instant(preset: str) -> None:
    run = small_run(preset, 0, TURNS)
    rows = activity(run.log, run.plan.colocated, 2, read_history(run.log))
    actors = (0, 1) if run.plan.colocated else (-1, 0, 1)
    for who in actors:
        mine = rows.who == who
        assert rows.start[mine][0] == 0
        assert rows.end[mine][-1] == run.log.end
        assert (rows.start[mine][1:] == rows.end[mine][:-1]).all()
        assert (rows.end[mine] > rows.start[mine]).all()
    assert rows.counts[:, 0].sum() == run.log.engine_steps


@pytest.mark.parametrize("preset", PRESETS)
def test_segments_are_the_tokens_of_calls_that_ended(preset: str) -> None:
    run = small_run(preset)
    found = tables(run)
    samples, segments = found["samples"], found["segments"]
    reported = 0
    for decision in run.log.decisions:
        if isinstance(decision.event, Finished):
            reported += decision.event.tokens
        elif isinstance(decision.event, Aborted):
            reported += sum(cut.tokens for cut in decision.event.cuts)
    made = segments.groupby("sample")["tokens"].sum()
    ended = samples[samples.finish_reason != ""].set_index("sample")
    assert segments["tokens"].sum() == reported
    assert (made[ended.index] == ended["response_tokens"]).all()
    heard = run.log.decisions[:-1] if run.log.last_commands_idle else run.log.decisions
    assert samples["calls"].sum() == sum(isinstance(c, Submit) for d in heard for c in d.commands)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_step_trains_one_batch(preset: str) -> None:
    found = tables(small_run(preset))
    assert found["updates"]["samples"].tolist() == [16] * 5
    trained = found["samples"].query("trained_step >= 0")
    assert (trained.groupby(["trained_step", "group"]).size() == 4).all()
    assert (trained.finished_seconds <= trained.trained_seconds).all()
    assert (trained.first_token_seconds.fillna(0) <= trained.finished_seconds).all()


def test_a_response_that_the_policy_ends_has_ended_when_it_was_cut() -> None:
    sets = ["run.steps=12", "run.warmup_steps=6"]
    run = simulate(resolve(load(WATCHED, sets=sets).resolve("precog")), 0)
    samples = tables(run)["samples"].query("outcome == 'trained'")
    cut = samples[samples.finish_reason == "cut"]
    assert 0 < len(cut) < len(samples)
    assert (cut.finished_seconds > cut.first_token_seconds).all()
    assert (cut.finished_seconds <= cut.trained_seconds).all()
    assert samples.finished_seconds.notna().all()
    assert all(math.isfinite(value) for value in metrics(run).as_dict().values() if isinstance(value, float))


def test_tool_output_is_read_by_later_turns() -> None:
    samples = tables(small_run("areal", 0, TURNS))["samples"]
    done = samples[samples.finish_reason == "stop"]
    assert (done.turns == 3).all()
    assert (done.tool_tokens == 60).all()


def test_services_wait_for_workers() -> None:
    services = tables(small_run("one-step-off", 0, (*TURNS, "workload.turns.environments=2")))["services"]
    tools = services[services.what == "tool"]
    assert set(services.what) == {"tool", "reward"}
    assert (tools.end_seconds - tools.start_seconds).to_numpy() == pytest.approx(2.0)
    assert (tools.start_seconds > tools.asked_seconds).any()


def test_equal_runs_give_equal_tables_with_equal_types() -> None:
    first, second = tables(small_run("copris")), tables(small_run("copris"))
    assert tuple(first) == TABLES
    for name in TABLES:
        pd.testing.assert_frame_equal(first[name], second[name])
        assert first[name].dtypes.equals(tables(small_run("areal", 0, TURNS))[name].dtypes)


@pytest.mark.parametrize("preset", PRESETS)
def test_calls_that_did_not_end_are_still_under_way(preset: str) -> None:
    run = small_run(preset)
    history = read_history(run.log)
    under_way = len(history.call_starts) - len(history.call_ends)
    assert sum(history.running.values()) == under_way
    assert under_way == sum(row.outcome == "in_flight" for row in run.log.final)


def test_a_sample_that_waited_without_a_token_and_resumes_as_the_run_ends_has_a_row() -> None:
    crowded = small_run("copris", 0, ("rollout.max_num_seqs=2", "policy.partial_rollout_pool_size=40"))
    last = {command.sample for command in crowded.log.decisions[-1].commands if isinstance(command, Submit)}
    samples = tables(crowded)["samples"].set_index("sample")
    waited = samples.loc[[sample for sample in last if sample in samples.index]].query("response_tokens == 0")
    assert len(waited) > 0
    assert set(waited.outcome) == {"buffered"}
