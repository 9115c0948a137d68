"""The verdict names the bottleneck that the shares of GPU time show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runs import small_plan, small_run

from rlsim.results.bottleneck import verdict
from rlsim.results.metrics import Metrics, metrics
from rlsim.results.utilisation import USES, Utilisation


def shares(**given: float) -> dict[str, float]:
    names = {name.replace("idle_", "idle:"): share for name, share in given.items()}
    assert set(names) <= set(USES)
    assert sum(names.values()) == pytest.approx(1)
    return {name: names.get(name, 0.0) for name in USES}


def example(rollout: dict[str, float], trainer: dict[str, float], **changes: float) -> Metrics:
    plain = replace(metrics(small_run("areal")), tail_share=0.1, kv_wait_share=0.0)
    return replace(plain, utilisation=Utilisation(rollout, trainer, rollout), **changes)  # type: ignore[arg-type]


TOOLS = "Tool-bound: tool calls hold the rollout {}% of the time"
WAITING = shares(update_actor=0.5, idle_data=0.5)


@pytest.mark.parametrize(
    ("rollout", "trainer", "changes", "expected"),
    [
        (
            shares(decode=0.59, idle_staleness=0.41),
            shares(update_actor=0.97, sync=0.03),
            {},
            "Trainer-bound: the trainer works 97% of the time while replicas idle 41%.",
        ),
        (shares(decode=0.95, sync=0.05), WAITING, {}, "Generation-bound: replicas work 95% of the time"),
        (
            shares(decode=0.95, sync=0.05),
            WAITING,
            {"kv_wait_share": 0.4},
            "KV-bound: requests wait for KV blocks",
        ),
        (
            shares(decode=0.3, idle_staleness=0.7),
            shares(overhead=0.8, update_actor=0.2),
            {},
            "Overhead-bound: the fixed time of a step takes 80% of the trainer's time while replicas idle 70%",
        ),
        (shares(decode=0.95, sync=0.05), WAITING, {"tail_share": 0.5}, "Tail-bound: 50% of a step's"),
        (
            shares(decode=0.4, idle_tail=0.6),
            WAITING,
            {},
            "Tail-bound: 60% of the rollout GPU time is spent waiting for the last samples",
        ),
        (shares(decode=0.4, idle_tools=0.6), WAITING, {}, TOOLS.format(60)),
        (
            shares(decode=0.02, idle_tools=0.98),
            shares(update_actor=0.01, idle_tail=0.99),
            {},
            TOOLS.format(98),
        ),
        (shares(decode=0.4, idle_reward=0.6), WAITING, {}, "Reward-bound: 60%"),
        (shares(decode=0.4, sync=0.6), WAITING, {}, "Sync-bound: publishing weights takes 60%"),
        (shares(decode=0.4, idle_trainer=0.6), WAITING, {}, "Trainer-bound: training takes 60% of the time, in which"),
        (shares(decode=0.4, idle_staleness=0.6), WAITING, {}, "Staleness-bound: the bound on staleness"),
        (shares(decode=0.4, idle_concurrency=0.6), WAITING, {}, "Concurrency-bound: the limit on samples"),
        (
            shares(decode=0.5, idle_trainer=0.5),
            shares(overhead=0.6, update_actor=0.4),
            {},
            "Overhead-bound: the fixed time of a step takes 60% of the trainer's time",
        ),
    ],
)
def test_gpus_of_their_own(
    rollout: dict[str, float], trainer: dict[str, float], changes: dict[str, float], expected: str
) -> None:
    found = verdict(example(rollout, trainer, **changes), small_plan("areal"))
    assert found.startswith(expected)
    assert found.endswith(".")


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        (shares(decode=0.3, update_actor=0.6, switch=0.1), "Trainer-bound: training takes 60% of the time"),
        (shares(decode=0.6, update_actor=0.4), "Generation-bound: the GPUs generate 60% and train 40%"),
        (shares(decode=0.2, update_actor=0.3, switch=0.5), "Switch-bound: the GPUs spend 50%"),
        (shares(decode=0.2, update_actor=0.3, idle_tail=0.5), "Tail-bound: 50% of the rollout GPU time"),
    ],
)
def test_shared_gpus(uses: dict[str, float], expected: str) -> None:
    assert verdict(example(uses, uses), small_plan("sync-colocated")).startswith(expected)


def test_verdicts_of_simulated_runs() -> None:
    tools = (
        "workload.turns.count=4",
        "workload.turns.tool_latency_seconds=60.0",
        "workload.turns.tool_output_tokens=9",
    )
    run = small_run("sync-colocated", 0, tools)
    assert verdict(metrics(run), run.plan).startswith("Tool-bound")
    slow = small_run("nemo-rl-async", 0, ("trainer.mfu=0.01",))
    assert verdict(metrics(slow), slow.plan).startswith("Trainer-bound")
