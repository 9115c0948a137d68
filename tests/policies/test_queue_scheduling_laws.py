"""ROLL Flash's bounds (arXiv 2510.11345, propositions 1 and 2) on every run, with what the run itself drew.

An engine whose steps last the same whatever the batch is a queue: each seat is a worker that decodes one sample, and
a seat that falls free takes the next sample between two steps. Both propositions bound a makespan by mean lengths and
the longest one. With the lengths that were drawn in place of the mean they hold in every run, to the picosecond; with
the mean of the law they hold for means over many steps, not for each of them (see the last test).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import FEW, MANY, STEP, commands, finishes, ran

from rlsim.core.commands import Train
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks, to_seconds

LONGEST = 90
LAWS: list[dict[str, Any]] = [
    {"law": "uniform", "low_tokens": 1, "high_tokens": LONGEST},
    {"law": "lognormal", "median_tokens": 12, "sigma": 1.2, "cap_tokens": LONGEST},
    {
        "law": "mixture",
        "weights": [0.9, 0.1],
        "laws": [{"law": "constant", "tokens": 15}, {"law": "constant", "tokens": LONGEST}],
    },
]


def queue(workers: int, samples: int, law: dict[str, Any], seed: int) -> dict[str, Any]:
    """One engine of so many seats, which never wait for each other, and batches of so many prompts of one sample."""
    return {
        "seed": seed,
        "rollout.max_num_seqs": workers,
        "sync": {"link_bytes_per_second": 1e18, "base_seconds": 0.0},
        "trainer.mfu": 1.0,
        "workload.prompts_per_step": samples,
        "workload.group_size": 1,
        "workload.prompt_tokens": 1,
        "workload.response_tokens": law,
    }


def taken(log: RunLog) -> list[tuple[Ticks, list[int]]]:
    """When each step began to train, and the lengths of its samples."""
    made = {event.sample: event.tokens for _, event in finishes(log)}
    return [(now, [made[n] for n in step.samples]) for now, step in commands(log) if isinstance(step, Train)]


def makespan(workers: int, lengths: Sequence[int], longest: int) -> float:
    """Graham's bound for any list: the work of a worker, and the rest of the longest one, in steps."""
    return (sum(lengths) + (workers - 1) * longest) / workers


# -- proposition 1 ---------------------------------------------------------------------------------------


@MANY
@given(
    workers=st.integers(1, 12),
    samples=st.integers(1, 30),
    law=st.sampled_from(LAWS),
    seed=st.integers(0, 9999),
)
def test_a_queue_takes_no_longer_than_the_mean_work_of_a_worker_and_the_longest_sample(
    workers: int, samples: int, law: dict[str, Any], seed: int
) -> None:
    """Proposition 1: seconds a sample <= mu / K + L / Q, with the mean and the longest of the Q samples themselves.

    And Graham's bounds from both sides, of which the upper one is the tighter.
    """
    log = ran({**queue(workers, samples, law, seed), "run.steps": 1})
    (end, lengths), longest = taken(log)[0], max(taken(log)[0][1])
    steps = end // STEP
    assert end == steps * STEP
    assert max(sum(lengths) / workers, longest) <= steps <= makespan(workers, lengths, longest)
    assert steps / samples <= sum(lengths) / samples / workers + longest / samples


@FEW
@given(seed=st.integers(0, 9999), law=st.sampled_from(LAWS))
def test_the_bound_is_met_where_one_sample_is_all_that_is_left(seed: int, law: dict[str, Any]) -> None:
    """A batch of one: no worker shares its work."""
    log = ran({**queue(4, 1, law, seed), "run.steps": 1})
    end, (length,) = taken(log)[0]
    assert end == length * STEP == makespan(4, [length], length) * STEP


# -- proposition 2 ---------------------------------------------------------------------------------------


GATES: dict[str, Any] = {"taken": {"use": "small_runs:Buffer"}, "published": {"use": "ratio"}}
"""What lets the next batch in: that the trainer takes one, as in the proposition; or publishes, as in the code."""


def asynchronous(gate: str, alpha: int) -> dict[str, Any]:
    """Training beside generation, each batch of those that ended first."""
    field = "alpha" if gate == "taken" else "async_generation_ratio"
    return {
        "preset": "sync-disaggregated",
        "parts": {"admission": {**GATES[gate], field: alpha}, "update": {"use": "publish", "mode": "keep"}},
    }


def windows(log: RunLog, gate: str, workers: int, alpha: int) -> list[tuple[Ticks, float]]:
    """(ticks that ``alpha + 1`` steps took from one opening of the gate, the bound on them by the lengths drawn).

    At an opening, all of the next ``alpha + 1`` batches may run. The first k of them are complete after their work
    shared by the workers, and the rest of the longest sample that still runs then; a call that comes during an engine
    step waits for its end. From there on the trainer has no wait until its next batch.
    """
    begun = taken(log)
    trained = [row.end - start for row, (start, _) in zip(log.iterations, begun, strict=False)]
    found = []
    for first in range(len(trained) - alpha - 1):
        last = first + alpha + (gate == "published")
        opened, closed = (
            (begun[first][0], begun[first + alpha + 1][0])
            if gate == "taken"
            else (log.iterations[first].end, log.iterations[first + alpha + 1].end)
        )
        work = list(accumulate(sum(lengths) for _, lengths in begun[first + 1 : first + alpha + 2]))
        complete = [STEP * (1 + (drawn + (workers - 1) * LONGEST) / workers) for drawn in work]
        paths = [ready + sum(trained[first + k + 1 : last + 1]) for k, ready in enumerate(complete)]
        busy = sum(trained[first + (gate == "published") : last + 1])
        found.append((closed - opened, max(busy, *paths)))
    return found


@MANY
@given(
    workers=st.integers(1, 8),
    samples=st.integers(1, 12),
    alpha=st.integers(0, 3),
    law=st.sampled_from(LAWS),
    train=st.sampled_from([0.1, 0.4, 1.5]),
    gate=st.sampled_from(list(GATES)),
    seed=st.integers(0, 9999),
)
def test_steps_of_an_asynchronous_run_take_no_longer_than_their_own_work_and_their_share_of_the_longest_sample(
    workers: int, samples: int, alpha: int, law: dict[str, Any], train: float, gate: str, seed: int
) -> None:
    """Proposition 2 over ``alpha + 1`` steps, with the lengths of their batches in place of ``N mu_g`` each.

    If every batch has the mean work and training takes as long (the best split), all paths are
    ``(alpha + 1) (N / K) mu + L``, the proposition's bound. A gate that opens at publication, not when the batch is
    taken, adds one training time: the generation that it lets in cannot begin before.
    """
    run = {
        **queue(workers, samples, law, seed),
        "trainer.fixed_seconds_per_step": train,
        "policy": asynchronous(gate, alpha),
        "run.steps": 9,
    }
    found = windows(ran(run), gate, workers, alpha)
    assert found
    for ticks, bound in found:
        assert ticks <= bound


TAIL, TAIL_MEAN = LAWS[2], 22.5


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("alpha", [1, 4])
def test_with_the_mean_of_the_law_the_bound_holds_on_average_and_fails_in_steps_that_drew_more(
    gate: str, alpha: int
) -> None:
    """Proposition 2 as stated, where training takes what generation takes: a step <= 2 (N / K) mu + L / (alpha + 1).

    Measured over four runs of 60 steps of 256 samples: means 1.7 to 5.2 % below the bound (alpha 4 to 1), single
    windows of ``alpha + 1`` steps up to 3.7 % above it (7.9 % with alpha 1 where the gate opens at publication, whose
    training time the proposition leaves out), because their batches drew more than the mean.
    """
    workers, samples = 8, 256
    mean_work = samples * TAIL_MEAN / workers
    run = {
        **queue(workers, samples, TAIL, 0),
        "trainer.fixed_seconds_per_step": mean_work * to_seconds(STEP),
        "policy": asynchronous(gate, alpha),
        "run.steps": 60,
    }
    bound = (mean_work + LONGEST / (alpha + 1)) * STEP
    logs = [ran({**run, "seed": seed}) for seed in range(4)]
    assert sum(log.iterations[-1].end - log.iterations[9].end for log in logs) <= len(logs) * 50 * bound
    found = [window for log in logs for window in windows(log, gate, workers, alpha)]
    assert any(ticks > (alpha + 1) * bound for ticks, _ in found)
    assert all(ticks <= drawn for ticks, drawn in found)
