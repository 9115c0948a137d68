"""Runs in which little but the tail of the lengths matters: engine steps of one length, seats that may be few."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from rlsim.core.commands import Train
from rlsim.core.log import RunLog
from rlsim.core.ticks import to_seconds
from rlsim.core.view import RunSizes, Sample, View
from rlsim.executor.run import make_controller, make_world
from rlsim.policies.ordering.predictors import outlived
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.results.statistics import Estimate, paired_ratio
from rlsim.scenario.schema import Scenario
from rlsim.sim.simulation import Simulation

STEP_SECONDS = 0.01
REPLICATIONS = 8
MEDIAN_TOKENS = 60
CAP_TOKENS = 1500


def lognormal(sigma: float) -> Any:
    """Lengths of one median: all alike at sigma 0."""
    if not sigma:
        return MEDIAN_TOKENS
    return {"law": "lognormal", "median_tokens": MEDIAN_TOKENS, "sigma": sigma, "cap_tokens": CAP_TOKENS}


def planned(policy: Mapping[str, Any], sigma: float = 0.9, **changes: Any) -> ResolvedScenario:
    """Sixteen groups of eight on two replicas of eight seats; ``workload__group_size=4`` replaces one value."""
    made: dict[str, Any] = {
        "name": "tail",
        "model": "Qwen2.5-0.5B",
        "cluster": {"device": "H100-SXM", "gpus": 32},
        "rollout": {
            "gpus": 2,
            "max_num_seqs": 8,
            "kv_blocks": 100_000,
            "enable_prefix_caching": False,
            "scheduling_policy": "priority",
            "step_time": {"source": "coefficients", "base_seconds": STEP_SECONDS},
        },
        "trainer": {"gpus": 2, "mfu": 0.9},
        "sync": {"link_bytes_per_second": 1e13},
        "switching": {"sleep_seconds": 0.0, "wake_seconds": 0.0},
        "workload": {
            "prompts_per_step": 16,
            "group_size": 8,
            "prompt_tokens": 8,
            "response_tokens": lognormal(sigma),
        },
        "run": {"steps": 1, "warmup_steps": 0, "replications": 1},
    }
    for path, value in changes.items():
        section, _, key = path.partition("__")
        made[section][key] = value
    return resolve(Scenario.model_validate({**made, "policy": dict(policy)}))


def ran(made: ResolvedScenario, replication: int, free_pool: bool = True) -> RunLog:
    """One replication; KV in the pool costs nothing to fetch unless told otherwise."""
    workload = made.workload_of(replication)
    world = make_world(made, workload)
    if free_pool:
        world = replace(world, pool_ticks_per_token=0)
    return Simulation(make_controller(made, workload), world).run(made.scenario.run.steps)


def rollout_seconds(log: RunLog) -> float:
    """From the start to the first training command."""
    return next(to_seconds(row.now) for row in log.decisions if any(isinstance(made, Train) for made in row.commands))


def step_seconds(log: RunLog, warmup: int = 2) -> float:
    """Mean interval between the ends of iterations."""
    ends = [to_seconds(row.end) for row in log.iterations]
    return (ends[-1] - ends[warmup - 1]) / (len(ends) - warmup)


def measured(
    policy: Mapping[str, Any], measure: Callable[[RunLog], float], replications: int = REPLICATIONS, **changes: Any
) -> list[float]:
    """One number from each of some replications of a policy."""
    made = planned(policy, **changes)
    return [measure(ran(made, replication)) for replication in range(replications)]


def gain(slow: list[float], fast: list[float]) -> Estimate:
    """The mean of slow / fast over paired replications, with its t interval."""
    return paired_ratio(slow, fast)


def low(found: Estimate) -> float:
    """Lower end of an interval."""
    assert found.low is not None
    return found.low


def high(found: Estimate) -> float:
    """Upper end of an interval."""
    assert found.high is not None
    return found.high


def prefill_costs(seconds_a_token: float) -> dict[str, Any]:
    """A step of the usual length, and more for each prompt token computed."""
    source: dict[str, Any] = {"source": "coefficients", "base_seconds": STEP_SECONDS}
    return {**source, "per_prefill_token_seconds": seconds_a_token}


def ordered(use: str, **given: Any) -> dict[str, Any]:
    """A synchronous policy with an order of calls."""
    return {"preset": "sync-disaggregated", "parts": {"ordering": {"use": use, **given}}}


@dataclass(frozen=True, slots=True)
class Blind:
    """Longest first in chunks like ``longest-first``, by the same estimate for everyone."""

    expected_tokens: int
    tokens_a_chunk: int
    shares_kv: ClassVar[bool] = True
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> Blind:
        """Nothing to check."""
        return self

    def priority(self, view: View, sample: Sample) -> int:
        """What remains of the estimate."""
        return -round(outlived(self.expected_tokens, sample.response_tokens))

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        """Always the same."""
        return self.tokens_a_chunk
