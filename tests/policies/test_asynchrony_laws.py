"""What asynchrony can gain, and how stale it makes the data: laws with their intervals over replications."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import planned

from rlsim.results.metrics import Metrics, metrics
from rlsim.results.statistics import Estimate, interval, paired_difference, paired_ratio
from rlsim.sim.simulation import simulate

GPUS, SAMPLES, LENGTH, TOKEN_SECONDS = 8, 64, 200, 1e-3
GENERATION_SECONDS = SAMPLES * LENGTH * TOKEN_SECONDS / GPUS
"""Of a step on all GPUs: engines whose time is that of their samples, so that half the GPUs take twice as long."""
REPLICATIONS = 5

LINEAR: dict[str, Any] = {
    "cluster.gpus": GPUS,
    "rollout.step_time": {"source": "coefficients", "base_seconds": 1e-9, "per_sequence_seconds": TOKEN_SECONDS},
    "trainer.mfu": 1.0,
    "sync": {"link_bytes_per_second": 1e18, "base_seconds": 0.0},
    "switching": {"sleep_seconds": 0.0, "wake_seconds": 0.0},
    "workload.prompts_per_step": SAMPLES // 4,
    "workload.group_size": 4,
    "workload.prompt_tokens": 1,
}


def lengths(sigma: float) -> object:
    """Constant, or a tail of that spread with the same mean."""
    if not sigma:
        return LENGTH
    return {"law": "lognormal", "mean_tokens": float(LENGTH), "sigma": sigma, "cap_tokens": 20 * LENGTH}


def told(changes: dict[str, Any]) -> list[Metrics]:
    """The metrics of every replication."""
    made = planned(changes)
    return [metrics(simulate(made, replication)) for replication in range(REPLICATIONS)]


def step_seconds(changes: dict[str, Any]) -> list[float]:
    return [found.step_seconds for found in told(changes)]


def gain(sigma: float, policy: dict[str, Any]) -> list[tuple[float, float]]:
    """(synchronous on all GPUs, asynchronous on half and half) step times, paired."""
    workload = {**LINEAR, "workload.response_tokens": lengths(sigma), "run.steps": 10, "run.warmup_steps": 4}
    train = GENERATION_SECONDS
    together = step_seconds(
        {
            **workload,
            "rollout.gpus": GPUS,
            "trainer.gpus": GPUS,
            "trainer.fixed_seconds_per_step": train,
            "policy": {"preset": "sync-colocated"},
        }
    )
    apart = step_seconds(
        {
            **workload,
            "rollout.gpus": GPUS // 2,
            "trainer.gpus": GPUS // 2,
            "trainer.fixed_seconds_per_step": 2 * train,
            "policy": policy,
        }
    )
    return list(zip(together, apart, strict=True))


def ratio(pairs: list[tuple[float, float]]) -> Estimate:
    return paired_ratio([a for a, _ in pairs], [b for _, b in pairs])


BOUNDED = {"preset": "areal", "max_head_offpolicyness": 2, "max_concurrent_rollouts": 1000, "pause_poll_seconds": 0.0}


@pytest.mark.parametrize("policy", [{"preset": "one-step-off"}, BOUNDED], ids=["one-step-off", "areal"])
def test_without_a_tail_and_with_linear_scaling_asynchrony_gains_nothing(policy: dict[str, Any]) -> None:
    found = ratio(gain(0.0, policy))
    assert found.mean == pytest.approx(1.0, abs=0.01)


def test_the_gain_grows_with_the_tail() -> None:
    gains = [[a / b for a, b in gain(sigma, BOUNDED)] for sigma in (0.0, 0.5, 1.0)]
    for less, more in pairwise(gains):
        change = paired_difference(more, less)
        assert change.low is not None
        assert change.low > 0.05, "the whole interval"


def test_the_asynchronous_step_is_the_slower_side_and_never_more_than_half_the_sum_faster() -> None:
    """Two sides of equal work that overlap save at most half of what they take one after the other on the same GPUs."""
    for share in (0.25, 1.0, 4.0):
        sides = {
            **LINEAR,
            "workload.response_tokens": LENGTH,
            "rollout.gpus": GPUS // 2,
            "trainer.gpus": GPUS // 2,
            "trainer.fixed_seconds_per_step": share * 2 * GENERATION_SECONDS,
            "run.steps": 8,
            "run.warmup_steps": 3,
        }
        serial = interval(step_seconds({**sides, "policy": {"preset": "sync-disaggregated"}})).mean
        overlapped = interval(step_seconds({**sides, "policy": {"preset": "one-step-off"}})).mean
        assert overlapped == pytest.approx(max(1.0, share) * 2 * GENERATION_SECONDS, rel=0.01)
        assert serial / overlapped <= 2.0 + 1e-9
        assert (serial / overlapped > 1.95) == (share == 1.0)


def in_line(policy: dict[str, Any], prompts: int, **changes: Any) -> dict[str, Any]:
    """An engine that makes one sample after the other, and a trainer of one GPU."""
    return {
        **LINEAR,
        "rollout.gpus": 1,
        "rollout.max_num_seqs": 1,
        "trainer.gpus": 1,
        "workload.prompts_per_step": prompts,
        "workload.group_size": 1,
        "workload.response_tokens": LENGTH,
        "run.steps": 4,
        "run.warmup_steps": 1,
        "policy": policy,
        **changes,
    }


SERIAL, PERIODIC = {"preset": "sync-disaggregated"}, {"preset": "periodic-asynchrony"}


def one_step(policy: dict[str, Any], prompts: int, mfu: float) -> float:
    return metrics(simulate(planned(in_line(policy, prompts, **{"trainer.mfu": mfu})))).step_seconds


@pytest.mark.parametrize("share", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("prompts", [1, 8, 64])
def test_periodic_asynchrony_is_a_line_of_two_stages_and_nears_twice_the_speed_only_where_they_are_equal(
    share: float, prompts: int
) -> None:
    """Both stages of the first sample, then the slower one of each other sample (arXiv 2511.18871: about 2 times).

    ``share`` is the training time of a sample over its generation time.
    """
    generate = LENGTH * TOKEN_SECONDS
    quick, slow = (one_step(SERIAL, prompts, mfu) for mfu in (1.0, 0.5))
    update = 2 * quick - slow - prompts * generate
    train, mfu = share * generate, (slow - quick) / prompts / (share * generate)
    serial, overlapped = one_step(SERIAL, prompts, mfu), one_step(PERIODIC, prompts, mfu)
    assert serial == pytest.approx(prompts * (generate + train) + update, rel=1e-6)
    line = generate + train + (prompts - 1) * max(generate, train)
    assert overlapped == pytest.approx(line + update, rel=1e-6)
    assert serial / overlapped <= 2.0
    assert (serial / overlapped > 1.95) == (share == 1.0 and prompts == 64)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 9999),
    sigma=st.sampled_from([0.0, 0.5, 1.0]),
    seats=st.sampled_from([1, 4, 64]),
    mfu=st.sampled_from([0.001, 0.004, 0.02]),
    micro=st.integers(1, 4),
)
def test_no_run_of_periodic_asynchrony_is_more_than_twice_as_fast(
    seed: int, sigma: float, seats: int, mfu: float, micro: int
) -> None:
    """On policy, so the same generation and the same training: overlapped they last no less than the longer one."""
    changes = {
        "seed": seed,
        "rollout.max_num_seqs": seats,
        "trainer.mfu": mfu,
        "workload.response_tokens": lengths(sigma),
        "run.warmup_steps": 0,
    }
    serial = simulate(planned(in_line(SERIAL, 12, **changes))).log
    overlapped = simulate(planned(in_line({**PERIODIC, "min_groups": micro}, 12, **changes))).log
    ends = [[row.end for row in log.iterations] for log in (serial, overlapped)]
    for whole, streamed in zip(*(pairwise([0, *told]) for told in ends), strict=True):
        assert whole[1] - whole[0] <= 2 * (streamed[1] - streamed[0])


def bounded_step(alpha: int, trainers: int) -> Estimate:
    """Sixteen workers of one seat each, a tenth of the samples four times as long as the mean."""
    workers, samples = 16, 64
    return interval(
        step_seconds(
            {
                **LINEAR,
                "cluster.gpus": workers,
                "rollout.gpus": workers - trainers,
                "rollout.max_num_seqs": 1,
                "trainer.gpus": trainers,
                "trainer.fixed_seconds_per_step": samples * 100 * TOKEN_SECONDS / trainers,
                "workload.prompts_per_step": samples,
                "workload.group_size": 1,
                "workload.response_tokens": {
                    "law": "mixture",
                    "weights": [0.9, 0.1],
                    "laws": [{"law": "constant", "tokens": 67}, {"law": "constant", "tokens": 400}],
                },
                "policy": {**BOUNDED, "max_head_offpolicyness": alpha},
                "run.steps": 14,
                "run.warmup_steps": 6,
            }
        )
    )


def test_more_staleness_buys_less_and_less_down_to_the_work_itself() -> None:
    """ROLL Flash, proposition 2 (arXiv 2510.11345): the step tends to (N/K)(mu_g + E mu_t) as alpha grows.

    Half the workers train, which is the best split in the limit; generation takes as long as training a sample.
    """
    work = 64 / 16 * 2 * 100 * TOKEN_SECONDS
    steps = [bounded_step(alpha, trainers=8).mean for alpha in (0, 1, 2, 8)]
    assert steps[0] > steps[1] > steps[2]
    assert steps[0] > 1.5 * work
    assert steps[-1] == pytest.approx(work, rel=0.03)
    assert all(step >= 0.99 * work for step in steps)


def tail_ratio(law: dict[str, Any], group: int) -> float:
    """E[max of a group] / E[length], by the workload's own draws."""
    made = planned({"workload.response_tokens": law, "workload.group_size": group}).workload
    return made.expected_group_max_ratio(group)


MEASURED = [
    # in flight, batch, batches queued, rollout rate over training rate, tail ratio, measured staleness
    (120, 240, 2, 0.63, 1.42, 1.26),
    (128, 128, 2, 1.07, 1.44, 3.09),
    (128, 128, 1, 1.14, 1.45, 2.01),
]
"""Applied Compute, Staleness in fully asynchronous RL: rows 1, 3 and 6 of its table."""


@pytest.mark.parametrize(("in_flight", "batch", "queued", "rho", "tail", "measured"), MEASURED)
def test_staleness_is_what_applied_compute_measured(
    in_flight: int, batch: int, queued: int, rho: float, tail: float, measured: float
) -> None:
    """Their groups are of eight (our reading); a queue of ``queued`` batches, the oldest dropped when it is full."""
    group, mean = 8, 200.0
    sigma = _sigma_of(tail, group, mean)
    law = {"law": "lognormal", "mean_tokens": mean, "sigma": sigma, "cap_tokens": 4000}
    rate = in_flight / (mean * TOKEN_SECONDS)  # samples a second: every sample decodes alone
    runs = told(
        {
            "cluster.gpus": 513,
            "trainer.gpus": 512,
            "rollout.max_num_seqs": in_flight,
            "rollout.step_time": {"source": "coefficients", "base_seconds": TOKEN_SECONDS},
            "sync": {"link_bytes_per_second": 1e18, "base_seconds": 0.0},
            "trainer.mfu": 1.0,
            "trainer.fixed_seconds_per_step": batch * rho / rate,
            "workload.prompts_per_step": batch // group,
            "workload.group_size": group,
            "workload.prompt_tokens": 1,
            "workload.response_tokens": law,
            "policy": {
                "preset": "pipelinerl",
                "llm_max_rollouts": in_flight,
                "ring_buffer_groups": queued * batch // group,
            },
            "run.steps": 40,
            "run.warmup_steps": 10,
        }
    )
    found = interval([run.start_lag_mean for run in runs])
    assert found.mean == pytest.approx(measured, abs=0.4)


def _sigma_of(tail: float, group: int, mean: float) -> float:
    """Spread of a lognormal whose groups have that ratio of the longest to the mean."""
    from scipy.optimize import brentq

    def miss(sigma: float) -> float:
        law = {"law": "lognormal", "mean_tokens": mean, "sigma": sigma, "cap_tokens": 4000}
        return tail_ratio(law, group) - tail

    return float(brentq(miss, 0.05, 1.5, xtol=1e-3))
