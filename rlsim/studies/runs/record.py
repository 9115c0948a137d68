"""Replications of scenarios, run in processes, with common random numbers.

The run is the unit: replication r of every arm meets the same prompts and the same luck, so arms are compared pair by
pair. Results come back in the order asked for, whatever finished first.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rlsim.results.allocation import Allotted
    from rlsim.results.columns import Columns
    from rlsim.results.latency import Latency
    from rlsim.results.metrics import Metrics
    from rlsim.scenario.schema import Scenario


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Task:
    """One run to be made."""

    name: str
    scenario: Scenario
    replication: int
    out: Path | None = None
    """Where to save its tables, log, trace and figures; None: nowhere."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run told."""

    name: str
    replication: int
    metrics: Metrics
    verdict: str
    latency: Latency
    progress: Columns | None = None
    """What was used up and reached after every step (``rlsim.results.progress``); None without a learning model."""
    allotted: Allotted | None = None
    """Which prompts got what (``rlsim.results.allocation``); None without a learning model."""


def perform(task: Task) -> Outcome:
    """Make one run in this process."""
    from rlsim.resolve import resolve
    from rlsim.results.allocation import allotted, allotted_columns
    from rlsim.results.bottleneck import verdict
    from rlsim.results.latency import latency
    from rlsim.results.metrics import metrics_of
    from rlsim.results.progress import progress_columns
    from rlsim.results.tables import digest
    from rlsim.sim.simulation import simulate

    made = resolve(task.scenario)
    run = simulate(made, task.replication)
    read = digest(run)
    told = metrics_of(read)
    if task.out is not None:
        from rlsim.studies.save import save_run

        save_run(task.out, run)
    headline = task.scenario.headline
    waits = latency(run, headline.slo if headline else None)
    outcome = Outcome(task.name, task.replication, told, verdict(told, made), waits)
    if made.learning is None:
        return outcome
    given = allotted([allotted_columns(read)])[0]
    return replace(outcome, progress=progress_columns(read), allotted=given)


def perform_all(
    tasks: Sequence[Task], done: Callable[[Outcome], None] = lambda outcome: None, workers: int | None = None
) -> list[Outcome]:
    """Make all runs, ``done`` being told of each in the order of ``tasks``."""
    outcomes = []
    for outcome in perform_each(perform, tasks, workers):
        done(outcome)
        outcomes.append(outcome)
    return outcomes


def perform_each(how: Callable[[Task], R], tasks: Sequence[Task], workers: int | None = None) -> Iterator[R]:
    """What ``how`` makes of every task, in their order, in processes where there are several."""
    count = min(len(tasks), workers or os.cpu_count() or 1)
    if count <= 1:
        yield from map(how, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        try:
            yield from pool.map(how, tasks)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
