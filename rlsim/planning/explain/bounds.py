"""What a preset lets its user choose: bounds on staleness, work in flight, and flags."""

from __future__ import annotations

from collections.abc import Iterator

from rlsim.planning.explain.change import Change
from rlsim.presets import load_preset
from rlsim.scenario.schema import Scenario

STALENESS: dict[str, float] = {
    "async_generation_ratio": 1,
    "async_queue_size": 1,
    "max_head_offpolicyness": 1,
    "max_off_policy_threshold": 1,
    "max_staleness": 1,
    "max_staleness_steps": 1,
    "max_steps_off_policy": 1,
    "max_trajectory_age_steps": 1,
    "num_warmup_batches": 1,
    "staleness_threshold": 0.5,
    "target_lag": 1,
}
"""A preset's bounds and how much one more is, in the bound's own unit."""
IN_FLIGHT = (
    "concurrent_samples_per_replica",
    "llm_max_rollouts",
    "max_concurrent_rollouts",
    "max_inflight",
    "num_parallel_generation_workers",
    "over_sampling_batch_size",
    "partial_rollout_pool_size",
    "sglang_server_concurrency",
)
"""A preset's limits on work in flight."""
FLAGS = ("in_flight_weight_updates", "partial_rollout")
"""A preset's switches for work that goes on over a change of weights."""


def bound_changes(scenario: Scenario) -> Iterator[Change]:
    """Each of the preset's own parameters one up; nothing for a policy that is made of parts alone."""
    if scenario.policy.preset is None:
        return
    defaults = load_preset(scenario.policy.preset).parameters
    for name, parameter in defaults.items():
        yield from _one_up(name, scenario.policy.fields.get(name, parameter.default), scenario)


def _one_up(name: str, value: object, scenario: Scenario) -> Iterator[Change]:
    key = f"policy.{name}"
    if name in FLAGS and value is False:
        yield Change(f"{name}: true", {key: True}, "samples mix versions")
    elif name in STALENESS and isinstance(value, int | float):
        more = type(value)(value + STALENESS[name])
        yield Change(f"{name} {value:g} to {more:g}", {key: more}, "data are older")
    elif name in IN_FLIGHT:
        now = value if isinstance(value, int) else scenario.workload.prompts_per_step
        yield Change(f"{name} {now} to {2 * now}", {key: 2 * now}, "data may be older")
