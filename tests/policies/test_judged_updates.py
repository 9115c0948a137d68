"""Publications that are triggered by what the trainer measures, and those that the replicas may refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest
from compositions import fault
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import commands, outcomes, ran

from rlsim.core.commands import Sync, Train
from rlsim.core.events import Aborted, Cut, Finished, Synced, Trained
from rlsim.core.log import RunLog
from rlsim.core.ticks import to_ticks
from rlsim.workload.mismatch import Mismatch

few = settings(max_examples=15, deadline=None)


def dlc(engine: float, growth: float, seed: int = 0, **parameters: Any) -> RunLog:
    mismatch = {"engine_variance": engine, "variance_per_step": growth}
    policy = {"preset": "dlc", "max_inflight_per_engine": 3, **parameters}
    return ran(policy, workload__mismatch=mismatch, seed=seed, run__steps=8)


def mipu(probability: float, test_seconds: float = 0.0, **changes: Any) -> RunLog:
    acceptance = {"probability": probability, "test_seconds": test_seconds}
    return ran("mipu", sync__acceptance=acceptance, **changes)


def measured(log: RunLog) -> list[float]:
    return [row.event.ess for row in log.decisions if isinstance(row.event, Trained) and row.event.ess is not None]


@given(st.lists(st.floats(0, 20), min_size=1), st.floats(0, 1), st.floats(0, 1))
def test_the_effective_sample_size_is_that_of_lognormal_weights(lags: list[float], engine: float, step: float) -> None:
    mean_square = sum(math.exp(engine + step * lag) for lag in lags) / len(lags)
    assert Mismatch(engine_variance=engine, variance_per_step=step).ess(lags) == pytest.approx(1 / mean_square)


@few
@given(growth=st.floats(0.05, 1.5), seed=st.integers(0, 100))
def test_weights_are_published_after_the_steps_whose_sample_size_has_fallen(growth: float, seed: int) -> None:
    log = dlc(0.1, growth, seed, max_steps_behind=4)
    behind = 0
    for row in log.decisions[:-1]:
        if isinstance(row.event, Trained):
            assert row.event.ess is not None
            behind += 1
            published = any(isinstance(made, Sync) for made in row.commands)
            assert published == (row.event.ess < 0.5 or behind == 4)
            behind = 0 if published else behind


@few
@given(growth=st.floats(0.05, 1.5), seed=st.integers(0, 100))
def test_what_the_trainer_measures_follows_from_who_made_the_tokens(growth: float, seed: int) -> None:
    log = dlc(0.1, growth, seed)
    tokens: dict[int, list[tuple[int, int]]] = {}
    published, steps, expected = [0], 0, []
    asked: tuple[int, ...] = ()
    for row in log.decisions[:-1]:
        match row.event:
            case Finished() as call:
                tokens.setdefault(call.sample, []).extend(call.segments)
            case Aborted(cuts=cuts):
                for cut in cuts:
                    assert isinstance(cut, Cut)
                    tokens.setdefault(cut.sample, []).extend(cut.segments)
            case Trained():
                expected.append(weight_share(asked, tokens, published, steps, growth))
                steps += 1
            case Synced():
                published.append(steps)
        asked = next((made.samples for made in row.commands if isinstance(made, Train)), asked)
    assert measured(log)[: len(expected)] == pytest.approx(expected)


def weight_share(
    samples: tuple[int, ...], tokens: dict[int, list[tuple[int, int]]], published: list[int], steps: int, growth: float
) -> float:
    squares = []
    for sample in samples:
        made = tokens[sample]
        age = sum(count * (steps - published[version]) for version, count in made) / sum(count for _, count in made)
        squares.append(math.exp(0.1 + growth * age))
    return len(squares) / sum(squares)


def test_the_faster_weights_drift_apart_the_more_often_they_are_published() -> None:
    counts = [len(commands(dlc(0.0, growth), Sync)) for growth in (0.0, 0.2, 2.0)]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert counts[2] == 7


def test_a_test_that_always_passes_in_no_time_changes_nothing() -> None:
    judged, plain = mipu(1.0), ran("sync-colocated")
    assert [row.end for row in judged.iterations] == [row.end for row in plain.iterations]
    assert judged.windows == plain.windows


def test_a_refused_publication_costs_itself_its_test_and_the_step() -> None:
    passed, refused = mipu(1.0, 0.3), mipu(0.0, 0.3)
    assert [row.version for row in refused.iterations] == [0] * 5
    assert [row.version for row in passed.iterations] == [1, 2, 3, 4, 5]
    assert refused.end == passed.end == mipu(1.0).end + 5 * to_ticks(0.3)
    assert {span.what for span in refused.spans} >= {"rejected"}
    assert outcomes(refused) <= {"trained", "buffered"}


def test_how_often_candidates_pass_is_the_probability_given() -> None:
    log = mipu(0.7, run__steps=300, workload__response_tokens=2)
    passed = sum(row.event.accepted for row in log.decisions if isinstance(row.event, Synced))
    assert abs(passed / 300 - 0.7) < 4 * math.sqrt(0.7 * 0.3 / 300)


def test_what_the_scenario_must_tell_such_policies() -> None:
    assert fault({"preset": "dlc"}, workload__mismatch=None)[0] == "workload.mismatch"
    assert fault({"preset": "mipu"}, sync__acceptance=None)[0] == "sync.acceptance"
    per_replica = {"probability": 0.5}
    assert fault({"preset": "mipu"}, sync__acceptance=per_replica, sync__scope="per_replica")[0] == "sync.scope"
    assert fault({"preset": "areal", "parts": {"update": {"use": "tested", "mode": "keep"}}})[0] == (
        "policy.parts.admission.use"
    )
