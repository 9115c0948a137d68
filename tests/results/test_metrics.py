"""Metrics against hand-made logs, and what must hold of every run."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from handmade import handmade
from runs import PRESETS, TURNS, small_run

from rlsim.core.errors import ParameterError
from rlsim.core.log import IterationRow, RunLog
from rlsim.results.metrics import ledger_tokens, measured, metrics
from rlsim.results.tables import tables

RUNS = [(preset, seed, ()) for preset in PRESETS for seed in (0, 1)] + [
    ("areal", 0, TURNS),
    ("sync-colocated", 0, TURNS),
    ("one-step-off", 0, (*TURNS, "workload.turns.environments=2")),
]


def test_a_step_is_the_interval_between_ends_of_iterations_without_the_warm_up() -> None:
    log = RunLog(iterations=[IterationRow(step, end * 10**12, step) for step, end in enumerate((100, 110, 125, 140))])
    window = measured(log, 1)
    assert (window.start, window.end, window.steps) == (100 * 10**12, 140 * 10**12, 3)
    assert measured(log, 0).start == 0


def test_a_warm_up_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(ParameterError, match="below the 1 training"):
        measured(RunLog(iterations=[IterationRow(0, 1, 1)]), 1)


def test_times_and_rates_of_the_handmade_run() -> None:
    found = metrics(handmade())
    assert found.step_seconds == pytest.approx(20)
    assert found.samples_per_second == pytest.approx(2 / 20)
    assert found.response_tokens_per_second == pytest.approx(12 / 20)
    assert found.tokens_per_second_per_gpu == pytest.approx((200 + 12) / 20 / 4)
    assert found.generation_seconds_per_step == pytest.approx(9)
    assert found.train_seconds_per_step == pytest.approx(8)
    assert found.sync_seconds_per_step == pytest.approx(1)
    assert found.wait_seconds_per_step == pytest.approx(11)
    assert (found.response_tokens_mean, found.response_tokens_max, found.truncated_share) == (6, 8, 0.5)


def test_all_five_lags_of_the_handmade_run() -> None:
    found = metrics(handmade())
    assert (found.start_lag_mean, found.start_lag_max) == (1.5, 2)
    assert (found.end_lag_mean, found.end_lag_max) == (1, 1)
    assert (found.span_mean, found.span_max) == (0.5, 1)
    assert (found.token_weighted_lag_mean, found.token_weighted_lag_max) == ((1.75 + 1) / 2, 1.75)
    assert (found.intra_batch_lag_mean, found.intra_batch_lag_max) == (2.5, 5)


def test_utilisation_of_the_handmade_run() -> None:
    found = metrics(handmade()).utilisation
    rollout = {name: share for name, share in found.rollout.items() if share}
    trainer = {name: share for name, share in found.trainer.items() if share}
    assert rollout == pytest.approx({"decode": 9 / 20, "sync": 1 / 20, "idle:staleness": 10 / 20})
    assert trainer == pytest.approx({"update_actor": 8 / 20, "sync": 1 / 20, "idle:data": 11 / 20})
    assert found.all["update_actor"] == pytest.approx(8 / 20 * 3 / 4)


def test_verls_utilisations_of_the_handmade_run() -> None:
    found = metrics(handmade())
    train = 8 / 9
    rollout = (2 * (25 - 21) + 1 * (30 - 25)) / (2 * 20)
    x = 11 / 20
    assert found.verl_u_train == pytest.approx(train)
    assert found.verl_u_rollout == pytest.approx(rollout)
    assert found.verl_u_cluster == pytest.approx(((1 - x) * 3 * train + (x * 3 + 1) * rollout) / 4)


def test_money_of_the_handmade_run() -> None:
    found = metrics(handmade())
    assert found.gpu_hours_per_step == pytest.approx(4 * 20 / 3600)
    assert found.usd_per_step == pytest.approx(9 * 4 * 20 / 3600)
    assert found.usd_per_million_trained_tokens == pytest.approx(found.usd_per_step / 212 * 1e6)
    assert found.price_source == "given in the scenario"


def test_a_price_that_nobody_gave_is_called_an_assumption() -> None:
    assert "assumption" in metrics(small_run()).price_source


@pytest.mark.parametrize(("preset", "seed", "extra"), RUNS)
def test_what_must_hold_of_every_run(preset: str, seed: int, extra: tuple[str, ...]) -> None:
    run = small_run(preset, seed, extra)
    found = metrics(run)
    assert sum(ledger_tokens(run.log).values()) == run.log.generated_tokens > 0
    assert found.ledger_closes
    for shares in (found.utilisation.rollout, found.utilisation.trainer, found.utilisation.all):
        assert math.fsum(shares.values()) == pytest.approx(1, abs=1e-12)
        assert min(shares.values()) >= 0
    ends = [row.end / 1e12 for row in run.log.iterations]
    assert found.step_seconds == pytest.approx((ends[4] - ends[0]) / 4)
    assert found.start_lag_max >= found.token_weighted_lag_max >= found.end_lag_max >= 0
    assert found.start_lag_mean == pytest.approx(found.end_lag_mean + found.span_mean)
    assert 0 < found.verl_u_cluster <= 1
    assert 0 < found.kv_peak_share <= 1


def test_synchronous_policies_are_on_policy_and_one_step_off_is_one_step_off() -> None:
    assert metrics(small_run("sync-disaggregated")).start_lag_max == 0
    assert metrics(small_run("one-step-off")).start_lag_mean == 1
    assert metrics(small_run("nemo-rl-async")).start_lag_max <= 1


def test_a_colocated_step_is_generation_switching_training_and_publication() -> None:
    found = metrics(small_run("sync-colocated"))
    parts = (
        found.generation_seconds_per_step,
        found.train_seconds_per_step,
        found.switch_seconds_per_step,
        found.sync_seconds_per_step,
    )
    assert sum(parts) == pytest.approx(found.step_seconds, rel=1e-9)
    assert found.wait_seconds_per_step == pytest.approx(found.generation_seconds_per_step)


def test_tools_keep_replicas_idle() -> None:
    slow = ("workload.turns.count=3", "workload.turns.tool_latency_seconds=30.0", "workload.turns.tool_output_tokens=5")
    assert metrics(small_run("sync-colocated", 0, slow)).utilisation.rollout["idle:tools"] > 0.5
    assert metrics(small_run("sync-colocated", 0, TURNS)).utilisation.rollout["idle:reward"] > 0


def test_the_flat_form_is_json_with_the_same_keys_for_every_policy() -> None:
    flat = [metrics(small_run(preset)).as_dict() for preset in PRESETS]
    assert len({tuple(one) for one in flat}) == 1
    assert json.loads(json.dumps(flat[0], allow_nan=False)) == flat[0]
    assert flat[0]["utilisation.rollout.decode"] == metrics(small_run("sync-colocated")).utilisation.rollout["decode"]


def test_a_run_without_decisions_is_refused() -> None:
    run = handmade()
    run.log.decisions.clear()
    with pytest.raises(ParameterError, match=r"log\.decisions"):
        metrics(run)


def test_metrics_repeat_exactly() -> None:
    run = small_run("slime-april")
    assert dataclasses.astuple(metrics(run)) == dataclasses.astuple(metrics(run))
    assert np.isfinite([value for value in metrics(run).as_dict().values() if isinstance(value, float)]).all()


def test_the_tail_is_what_follows_the_first_nine_tenths_of_a_steps_samples() -> None:
    run = small_run("sync-disaggregated")
    samples = tables(run)["samples"]
    shares = []
    for step in range(1, 5):
        mine = samples[samples.trained_step == step]
        last, first = mine.finished_seconds.max(), mine.submitted_seconds.min()
        shares.append((last - np.quantile(mine.finished_seconds, 0.9, method="inverted_cdf")) / (last - first))
    assert metrics(run).tail_share == pytest.approx(np.mean(shares))
    assert 0 < metrics(run).tail_share < 1


def test_lengths_and_preemptions_of_a_run() -> None:
    run = small_run("areal", 0, ("rollout.kv_blocks=60",))
    samples = tables(run)["samples"]
    tokens = samples[samples.trained_step >= 1].response_tokens
    found = metrics(run)
    assert found.response_tokens_p50 == pytest.approx(np.median(tokens))
    assert found.response_tokens_p99 == pytest.approx(np.percentile(tokens, 99))
    assert found.preemptions_per_step == run.log.preemptions / 5 > 0
