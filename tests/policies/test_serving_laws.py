"""Open arrivals on a single server are M/G/1: held against closed forms, a naive server, and Little's law."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_runs import (
    STEP_SECONDS,
    Served,
    lengths,
    mean_wait_seconds,
    phipps,
    pollaczek_khinchine,
    requests,
    served,
    single_server,
)

from rlsim.core.commands import Submit, Train
from rlsim.core.events import Trained
from rlsim.core.log import RunLog
from rlsim.core.ticks import TICKS_PER_SECOND, to_seconds
from rlsim.executor.run import FinishedRun, make_controller
from rlsim.results.latency import request_columns
from rlsim.results.replay.decisions import replay
from rlsim.results.statistics import interval
from rlsim.workload.lengths import Constant, Gamma, LengthDistribution, Uniform

few = settings(max_examples=15, deadline=None, derandomize=True)
FCFS: dict[str, Any] = {"use": "fcfs"}
SJF: dict[str, Any] = {"use": "shortest-first", "predictor": "oracle"}
LAWS: dict[str, tuple[LengthDistribution, dict[str, Any]]] = {
    "M/D/1": (Constant(20), {"law": "constant", "tokens": 20}),
    "M/U/1": (Uniform(1, 39), {"law": "uniform", "low_tokens": 1, "high_tokens": 39}),
    "M/M/1": (
        Gamma(20.0, 1.0, 400),
        {"law": "gamma", "mean_tokens": 20.0, "shape": 1.0, "cap_tokens": 400},
    ),
}
RATE = 3.5
"""Requests a second: a load of 0.7 for a mean of 20 tokens of 0.01 s."""
RUNS = 10
REQUESTS: dict[str, Any] = {"run__steps": 30, "workload__prompts_per_step": 100}


def waits_of(ordering: dict[str, Any], law: dict[str, Any]) -> list[float]:
    runs = (served(ordering, RATE, number, workload__response_tokens=law, **REQUESTS) for number in range(RUNS))
    return [mean_wait_seconds(run) for run in runs]


def contains(values: list[float], expected: float) -> bool:
    """Whether the 99.9 % interval over runs contains what is expected."""
    found = interval(values, 0.999)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low < expected, "an interval this wide says nothing"
    return found.low <= expected <= found.high


@pytest.mark.parametrize("name", LAWS)
def test_in_order_of_arrival_the_mean_wait_is_pollaczek_and_khinchines(name: str) -> None:
    law, given = LAWS[name]
    waits = waits_of(FCFS, given)
    assert contains(waits, pollaczek_khinchine(law, RATE))


@pytest.mark.parametrize("name", ["M/U/1", "M/M/1"])
def test_shortest_first_the_mean_wait_is_phippss(name: str) -> None:
    law, given = LAWS[name]
    waits = waits_of(SJF, given)
    expected = phipps(law, RATE)
    assert contains(waits, expected)
    assert expected < pollaczek_khinchine(law, RATE)


def test_the_closed_forms_agree_where_all_jobs_are_alike() -> None:
    assert phipps(Constant(20), RATE) == pytest.approx(pollaczek_khinchine(Constant(20), RATE))
    rho = RATE * 20 * STEP_SECONDS
    assert pollaczek_khinchine(Constant(20), RATE) == pytest.approx(rho * 0.2 / (2 * (1 - rho)))


@few
@given(
    seed=st.integers(0, 999),
    rate=st.floats(0.5, 12.0),
    burstiness=st.sampled_from([0.2, 1.0, 4.0]),
    order=st.sampled_from(["fcfs", "shortest-first", "longest-first"]),
)
def test_a_server_of_one_seat_does_what_a_naive_one_does_to_the_picosecond(
    seed: int, rate: float, burstiness: float, order: str
) -> None:
    ordering = {"use": order} if order == "fcfs" else {"use": order, "predictor": "oracle"}
    run = served(ordering, rate, seed, arrivals={"burstiness": burstiness}, run__steps=3)
    tokens, found = lengths(run), requests(run.log)
    sign = {"fcfs": 0, "shortest-first": 1, "longest-first": -1}[order]
    jobs = [(one.arrival, sign * tokens(one.draw), tokens(one.draw)) for one in found]
    expected = single_server(jobs, run.log.end)
    ended = {number: one.end for number, one in enumerate(found) if one.end >= 0}
    assert {job: end for job, end in expected.items() if end < run.log.end} == {
        job: end for job, end in ended.items() if end < run.log.end
    }


# -- arrivals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_stated_rate_and_spread(burstiness: float) -> None:
    log = served(FCFS, 50.0, arrivals={"burstiness": burstiness}, rollout__max_num_seqs=256, run__steps=40).log
    gaps = np.diff([one.arrival for one in requests(log)]) / TICKS_PER_SECOND
    assert len(gaps) >= 3900
    spread = 1 / np.sqrt(burstiness)
    assert gaps.mean() == pytest.approx(1 / 50, rel=5 * spread / np.sqrt(len(gaps)))
    assert gaps.std() / gaps.mean() == pytest.approx(spread, rel=0.1)


def arrivals(run: FinishedRun) -> list[int]:
    return [one.arrival for one in requests(run.log)]


def test_replications_have_arrivals_of_their_own_and_orders_have_the_same() -> None:
    first, second, other = served(FCFS, 4.0, 0), served(SJF, 4.0, 0), served(FCFS, 4.0, 1)
    both = min(len(arrivals(first)), len(arrivals(second)))
    assert arrivals(first)[:both] == arrivals(second)[:both]
    assert arrivals(first)[:10] != arrivals(other)[:10]
    assert arrivals(first)[:10] != arrivals(served(FCFS, 4.0, 0, arrivals={"seed": 1}))[:10]


def test_requests_come_while_the_trainer_works_and_its_time_changes_no_latency() -> None:
    quick, slow = (served(FCFS, 4.0, trainer__fixed_seconds_per_step=seconds) for seconds in (0.0, 20.0))
    began = next(row.now for row in slow.log.decisions if any(isinstance(made, Train) for made in row.commands))
    done = next(row.now for row in slow.log.decisions if isinstance(row.event, Trained))
    during = [one for one in requests(slow.log) if began < one.arrival < done]
    assert len(during) > 40
    both = min(len(requests(quick.log)), len(requests(slow.log)))
    for early, late in zip(requests(quick.log)[:both], requests(slow.log)[:both], strict=True):
        assert early.arrival == late.arrival
        assert early.end == late.end or early.end < 0 <= late.end or late.end < 0 <= early.end


def test_a_run_waits_for_the_first_request_and_for_rare_ones() -> None:
    run = served(FCFS, 0.001, run__steps=2, workload__prompts_per_step=2)
    assert len(run.log.iterations) == 2
    assert run.log.end > 500 * TICKS_PER_SECOND


def test_a_replay_of_the_recorded_run_gives_the_same_commands() -> None:
    run = served({"use": "weighted-fair", "predictor": "class-corrected"}, 6.0, 3, run__steps=4)
    workload = run.plan.workload_of(3)
    replay(run.log.decisions, make_controller(run.plan, workload))


def submissions(log: RunLog) -> int:
    return sum(isinstance(made, Submit) for row in log.decisions[:-1] for made in row.commands)


@few
@given(seed=st.integers(0, 999), rate=st.floats(1.0, 40.0), seats=st.sampled_from([1, 3, 64]))
def test_littles_law_holds_on_every_path(seed: int, rate: float, seats: int) -> None:
    """The time integral of requests in the system is the sum of their times in it."""
    run = served(FCFS, rate, seed, rollout__max_num_seqs=seats, run__steps=3)
    found, end = requests(run.log), run.log.end
    inside = sum((one.end if one.end >= 0 else end) - one.arrival for one in found)
    events = sorted([(one.arrival, 1) for one in found] + [(one.end, -1) for one in found if one.end >= 0])
    area = count = before = 0
    for now, change in events:
        area += count * (now - before)
        before, count = now, count + change
    assert area + count * (end - before) == inside
    rows = request_columns(run.log)
    took = np.nan_to_num(rows["finished_seconds"], nan=to_seconds(end)) - rows["submitted_seconds"]
    assert took.sum() == pytest.approx(to_seconds(inside), rel=1e-9)
    assert len(took) == submissions(run.log) == len(found)


# -- orders --------------------------------------------------------------------------------------------

TENANTS = {
    "quick": {"share": 9, "response_tokens": 5, "weight": 1.0, "priority": 1},
    "slow": {"share": 1, "response_tokens": 80, "weight": 3.0, "priority": 2},
}


def by_class(run: FinishedRun) -> dict[str, list[Served]]:
    workload = run.plan.workload_of(run.replication)
    found: dict[str, list[Served]] = {kind.name: [] for kind in run.plan.shape.classes}
    for one in requests(run.log):
        found[run.plan.shape.classes[workload.class_of(workload.prompt_at(one.draw)[0])].name].append(one)
    return found


OVERLOAD: dict[str, Any] = {"workload__classes": TENANTS, "run__steps": 8}


def test_shortest_first_starves_long_requests_under_overload_and_ageing_does_not() -> None:
    starved = by_class(served({**SJF}, 30.0, **OVERLOAD))["slow"]
    assert sum(one.end >= 0 for one in starved) <= 2
    rate = 20.0
    run = served({"use": "ageing", "predictor": "oracle", "tokens_per_second": rate}, 30.0, **OVERLOAD)
    found = requests(run.log)
    longest = 80
    for one in by_class(run)["slow"]:
        ahead = [
            other
            for other in found
            if other.end >= 0 and other.arrival > one.arrival + longest / rate * TICKS_PER_SECOND
        ]
        if one.end >= 0:
            assert all(other.end > one.end for other in ahead), "nobody overtakes it after its tokens / rate seconds"
    assert sum(one.end >= 0 for one in by_class(run)["slow"]) > 2


def test_a_higher_class_waits_for_the_call_under_way_only_and_ages_into_it() -> None:
    run = served({"use": "class-priority"}, 5.0, **OVERLOAD)
    quick = by_class(run)["quick"]
    for before, one in pairwise(quick):
        if one.end >= 0 and before.end < one.arrival:
            assert one.wait <= 80 * STEP_SECONDS * TICKS_PER_SECOND
    strict = by_class(served({"use": "class-priority"}, 30.0, **OVERLOAD))["slow"]
    assert sum(one.end >= 0 for one in strict) <= 2
    aged = by_class(served({"use": "class-priority", "ageing_seconds": 2.0}, 30.0, **OVERLOAD))["slow"]
    assert sum(one.end >= 0 for one in aged) > 2


@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0), (1.0, 5.0)])
@pytest.mark.parametrize("predictor", ["oracle", "class-corrected"])
def test_under_saturation_tokens_are_shared_by_weight(weights: tuple[float, float], predictor: str) -> None:
    classes = {
        "a": {
            "share": 1,
            "response_tokens": {"law": "uniform", "low_tokens": 1, "high_tokens": 9},
            "weight": weights[0],
        },
        "b": {
            "share": 1,
            "response_tokens": {"law": "uniform", "low_tokens": 2, "high_tokens": 58},
            "weight": weights[1],
        },
    }
    run = served(
        {"use": "weighted-fair", "predictor": predictor, "class_prior_tokens": {"a": 5, "b": 30}},
        150.0,
        workload__classes=classes,
        run__steps=40,
        workload__prompts_per_step=50,
    )
    tokens = {name: sum(one.tokens for one in found if one.end >= 0) for name, found in by_class(run).items()}
    a, b = tokens["a"] / weights[0], tokens["b"] / weights[1]
    if predictor == "oracle":
        assert abs(a - b) <= 2 * (9 / weights[0] + 58 / weights[1]), "the bound of Goyal, Vin and Cheng, Theorem 1"
    assert a / b == pytest.approx(1, rel=0.1)
