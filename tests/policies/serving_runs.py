"""Runs that serve open arrivals: one sample a request, a trainer that only consumes, and what single servers owe."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlsim.core.commands import Submit
from rlsim.core.events import Finished
from rlsim.core.log import RunLog
from rlsim.core.ticks import TICKS_PER_SECOND, Ticks, to_ticks
from rlsim.executor.run import FinishedRun
from rlsim.resolve import resolve
from rlsim.scenario.schema import Scenario
from rlsim.sim.simulation import simulate
from rlsim.workload.lengths import LengthDistribution

STEP_SECONDS = 0.01
STEP = to_ticks(STEP_SECONDS)

SERVING: dict[str, Any] = {
    "name": "requests",
    "model": "Qwen2.5-0.5B",
    "cluster": {"device": "H100-SXM", "gpus": 4},
    "rollout": {
        "gpus": 1,
        "max_num_seqs": 1,
        "max_num_batched_tokens": 4096,
        "kv_blocks": 20_000,
        "enable_prefix_caching": False,
        "scheduling_policy": "priority",
        "step_time": {"source": "coefficients", "base_seconds": STEP_SECONDS},
    },
    "trainer": {"gpus": 1, "mfu": 0.4},
    "workload": {
        "prompts_per_step": 100,
        "group_size": 1,
        "prompt_tokens": 1,
        "response_tokens": {"law": "uniform", "low_tokens": 1, "high_tokens": 39},
    },
    "run": {"steps": 10, "warmup_steps": 0, "replications": 1},
}
"""Engines of one seat and equal steps: a single server whose service is 0.01 s a response token."""


def served(ordering: Mapping[str, Any], rate: float, replication: int = 0, **changes: Any) -> FinishedRun:
    """One run under an order, at so many requests a second; ``workload__classes={...}`` replaces one value."""
    made = {key: dict(value) if isinstance(value, dict) else value for key, value in SERVING.items()}
    arrivals = {"use": "open-arrivals", "requests_per_second": rate, **changes.pop("arrivals", {})}
    parts = {
        "admission": arrivals,
        "batching": {"use": "complete-groups"},
        "update": {"use": "publish", "mode": "keep", "every_steps": 1_000_000},
        "leftovers": {"use": "keep-all"},
        "dispatch": {"use": "least-in-flight"},
        "placement": {"use": "disaggregated"},
        "ordering": dict(ordering),
    }
    parts |= changes.pop("parts", {})
    for path, value in changes.items():
        section, _, key = path.partition("__")
        made[section][key] = value
    return simulate(resolve(Scenario.model_validate({**made, "policy": {"parts": parts}})), replication)


@dataclass(frozen=True, slots=True)
class Served:
    """One request: when it came, what it asked for, when it ended (-1: not in this run)."""

    sample: int
    arrival: Ticks
    draw: int
    tokens: int
    end: Ticks

    @property
    def wait(self) -> Ticks:
        """Time in the queue of a single server."""
        return self.end - self.arrival - self.tokens * STEP


def requests(log: RunLog) -> list[Served]:
    """All requests in order of arrival, from the decisions; tokens of those that did not end are -1."""
    ends = {row.event.sample: (row.now, row.event.tokens) for row in log.decisions if isinstance(row.event, Finished)}
    found = []
    for now, _, commands in log.decisions[:-1]:
        for command in commands:
            if isinstance(command, Submit):
                end, tokens = ends.get(command.sample, (-1, -1))
                found.append(Served(command.sample, now, command.draw, tokens, end))
    return found


def lengths(run: FinishedRun) -> Callable[[int], int]:
    """Tokens of the response to the request of a draw, as the workload has it."""
    workload = run.plan.workload_of(run.replication)
    return lambda draw: workload.response_tokens(*workload.prompt_at(draw), 0)


def single_server(jobs: Sequence[tuple[Ticks, int, int]], until: Ticks) -> dict[int, Ticks]:
    """End by job of a server that takes the waiting (arrival, rank, tokens) of the lowest rank, to its end."""
    ends: dict[int, Ticks] = {}
    waiting: list[tuple[int, int]] = []
    now, coming = 0, 0
    while now <= until and (waiting or coming < len(jobs)):
        if not waiting:
            now = max(now, jobs[coming][0])
        while coming < len(jobs) and jobs[coming][0] <= now:
            heapq.heappush(waiting, (jobs[coming][1], coming))
            coming += 1
        _, job = heapq.heappop(waiting)
        now += jobs[job][2] * STEP
        ends[job] = now
    return {job: end for job, end in ends.items() if end <= until}


# -- closed forms, in seconds --------------------------------------------------------------------------


def masses(law: LengthDistribution) -> tuple[np.ndarray, np.ndarray]:
    """Service seconds of every length, and its probability."""
    edges = np.arange(1, law.cap_tokens, dtype=float) + 0.5
    below = np.concatenate([[0.0], law.cdf(edges), [1.0]])
    return np.arange(1, law.cap_tokens + 1) * STEP_SECONDS, np.diff(below)


def pollaczek_khinchine(law: LengthDistribution, rate: float) -> float:
    """Mean wait of M/G/1 in order of arrival: rate E[S^2] / (2 (1 - rho))."""
    service, mass = masses(law)
    rho = rate * float(mass @ service)
    return rate * float(mass @ service**2) / (2 * (1 - rho))


def phipps(law: LengthDistribution, rate: float) -> float:
    """Mean wait of M/G/1, shortest job first, none interrupted (Phipps 1956, after Cobham 1954)."""
    service, mass = masses(law)
    loads = rate * np.cumsum(mass * service)
    before = np.concatenate([[0.0], loads[:-1]])
    residual = rate * float(mass @ service**2) / 2
    return float(mass @ (residual / ((1 - before) * (1 - loads))))


def mean_wait_seconds(run: FinishedRun) -> float:
    """Of the requests that came in the middle third of the run, all of which have ended."""
    end = run.log.end
    waits = [one.wait for one in requests(run.log) if end / 3 <= one.arrival < 2 * end / 3]
    assert min(waits) >= 0
    return sum(waits) / len(waits) / TICKS_PER_SECOND
