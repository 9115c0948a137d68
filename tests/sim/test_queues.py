"""Pools of workers against queueing theory: Kiefer-Wolfowitz paths, Erlang C, Pollaczek-Khinchine, Little."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import partial
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import FEW, MANY, STEP, UNIFORM, finishes, in_flight_ticks, in_tools_ticks, ran, submissions, turns

from rlsim.core.log import RunLog, ServiceRow
from rlsim.core.ticks import TICKS_PER_SECOND, Ticks
from rlsim.executor.driver import SERVICES
from rlsim.sim.clock import SimClock, SimTimer
from rlsim.sim.trainer import WorkerPool

JOBS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 30)), min_size=1, max_size=30)
RUNS, JOBS_A_RUN, WARM_UP = 16, 2500, 300

Draw = Callable[[np.random.Generator, int], np.ndarray]


def served(arrivals: Sequence[Ticks], services: Sequence[Ticks], workers: int | None) -> list[ServiceRow]:
    """What a pool does with jobs that come at given times; rows in order of arrival."""
    clock, log = SimClock(), RunLog()
    pool = WorkerPool(clock, log, "tool", workers)
    done: list[int] = []

    def submit(job: int, timer: SimTimer) -> None:
        pool.serve(job, services[job], partial(done.append, job))

    for job, at in enumerate(arrivals):
        clock.at(at, SERVICES, partial(submit, job))
    clock.run()
    assert sorted(done) == list(range(len(arrivals)))
    return sorted(log.services)


def waits_by_recursion(arrivals: Sequence[Ticks], services: Sequence[Ticks], workers: int) -> list[Ticks]:
    """Kiefer and Wolfowitz (1955): each job takes the worker that is free first."""
    free, waits = [0] * workers, []
    for at, service in zip(arrivals, services, strict=True):
        start = max(at, free[0])
        heapq.heapreplace(free, start + service)
        waits.append(start - at)
    return waits


@MANY
@given(JOBS, st.integers(1, 5))
def test_every_wait_is_that_of_the_kiefer_wolfowitz_recursion(jobs: list[tuple[int, int]], workers: int) -> None:
    arrivals = np.cumsum([gap for gap, _ in jobs]).tolist()
    services = [service for _, service in jobs]
    rows = served(arrivals, services, workers)
    assert [row.start - row.requested for row in rows] == waits_by_recursion(arrivals, services, workers)
    assert [row.end - row.start for row in rows] == services


@MANY
@given(JOBS)
def test_workers_without_limit_let_nobody_wait(jobs: list[tuple[int, int]]) -> None:
    arrivals = np.cumsum([gap for gap, _ in jobs]).tolist()
    rows = served(arrivals, [service for _, service in jobs], None)
    assert [row.start for row in rows] == arrivals


# -- stationary means ---------------------------------------------------------------------------------


def exponential(rng: np.random.Generator, count: int) -> np.ndarray:
    """Of mean one."""
    return rng.exponential(size=count)


def constant(rng: np.random.Generator, count: int) -> np.ndarray:
    """Always one."""
    return np.ones(count)


def gamma(rng: np.random.Generator, count: int) -> np.ndarray:
    """Of mean one and variance two."""
    return rng.gamma(0.5, 2.0, size=count)


def mean_wait(workers: int, load: float, service: Draw, seed: int) -> tuple[float, float]:
    """Mean wait with Poisson arrivals, in mean services, and its standard error over independent runs."""
    means = []
    for run in range(RUNS):
        rng = np.random.default_rng([seed, run])
        gaps = rng.exponential(1 / (load * workers), size=JOBS_A_RUN)
        arrivals = np.rint(np.cumsum(gaps) * TICKS_PER_SECOND).astype(np.int64).tolist()
        services = np.rint(service(rng, JOBS_A_RUN) * TICKS_PER_SECOND).astype(np.int64).tolist()
        rows = served(arrivals, services, workers)[WARM_UP:]
        means.append(sum(row.start - row.requested for row in rows) / len(rows) / TICKS_PER_SECOND)
    return float(np.mean(means)), float(np.std(means, ddof=1) / RUNS**0.5)


def erlang_c_wait(workers: int, load: float) -> float:
    """Mean wait of M/M/c in mean services (Erlang 1917)."""
    offered = load * workers
    all_busy = offered**workers / factorial(workers) / (1 - load)
    some_free = sum(offered**k / factorial(k) for k in range(workers))
    return all_busy / (some_free + all_busy) / (workers * (1 - load))


def pollaczek_khinchine_wait(load: float, variance: float) -> float:
    """Mean wait of M/G/1 in mean services."""
    return load * (1 + variance) / (2 * (1 - load))


@pytest.mark.parametrize(("workers", "load"), [(1, 0.6), (3, 0.7), (8, 0.8)])
def test_exponential_tools_wait_as_erlang_c_says(workers: int, load: float) -> None:
    mean, error = mean_wait(workers, load, exponential, workers)
    assert mean == pytest.approx(erlang_c_wait(workers, load), abs=3 * error)
    assert error < 0.15 * mean


@pytest.mark.parametrize(("service", "variance"), [(constant, 0.0), (exponential, 1.0), (gamma, 2.0)])
def test_one_environment_waits_as_pollaczek_and_khinchine_say(service: Draw, variance: float) -> None:
    mean, error = mean_wait(1, 0.6, service, 7)
    assert mean == pytest.approx(pollaczek_khinchine_wait(0.6, variance), abs=3 * error)
    assert error < 0.15 * mean


# -- Little's law, in integers ------------------------------------------------------------------------

QUEUED = {
    "workload.turns": turns({"law": "uniform", "low_tokens": 1, "high_tokens": 4}, 0.8, environments=2),
    "workload.response_tokens": UNIFORM,
}


@pytest.mark.parametrize("preset", ["sync-disaggregated", "one-step-off", "sync-colocated"])
def test_tool_calls_in_play_over_time_are_the_sum_of_their_times(preset: str) -> None:
    log = ran({**QUEUED, "policy.preset": preset})
    rows = [row for row in log.services if row.what == "tool"]
    assert sum(row.end - row.requested for row in rows) == in_tools_ticks(log)
    assert any(row.start > row.requested for row in rows)


def test_never_more_tool_calls_run_than_there_are_environments() -> None:
    log = ran(QUEUED)
    changes = sorted(change for row in log.services for change in ((row.end, -1), (row.start, 1)))
    busy = np.cumsum([change for _, change in changes])
    assert busy.max() == 2


@FEW
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 3))
def test_calls_in_flight_over_time_are_those_in_the_batch_and_those_in_the_queue(
    seed: int, seats: int, replicas: int
) -> None:
    changes = {"workload.response_tokens": UNIFORM, "rollout.max_num_seqs": seats, "rollout.gpus": replicas}
    log = ran({**changes, "seed": seed})
    inside = sum((row.decodes + row.chunks) * (row.end - row.start) for row in log.windows)
    asked = {command.sample: now for now, command in submissions(log)}
    queued = sum(event.first_token_at - STEP - asked[event.sample] for _, event in finishes(log))
    assert inside + queued == in_flight_ticks(log)
    assert (queued > 0) == (seats * replicas < 8)
