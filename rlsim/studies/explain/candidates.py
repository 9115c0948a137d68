"""Changes to a scenario that could help: each is small, and a thing that somebody could do tomorrow.

One change.

What a preset lets its user choose: bounds on staleness, work in flight, and flags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import lcm

from rlsim.core.errors import RlsimError
from rlsim.presets import load_preset
from rlsim.resolve import ResolvedScenario, ResolveError, resolve
from rlsim.scenario.override import override
from rlsim.scenario.schema import Rollout, Scenario


@dataclass(frozen=True, slots=True)
class Change:
    """Values by key path, in words, and what they do to what is learnt."""

    label: str
    settings: Mapping[str, object]
    learnt: str = ""
    """What changes of the data that are trained on; empty: nothing."""


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
        key, value = f"policy.{name}", scenario.policy.fields.get(name, parameter.default)
        if name in FLAGS and value is False:
            yield Change(f"{name}: true", {key: True}, "samples mix versions")
        elif name in STALENESS and isinstance(value, int | float):
            more = type(value)(value + STALENESS[name])
            yield Change(f"{name} {value:g} to {more:g}", {key: more}, "data are older")
        elif name in IN_FLIGHT:
            now = value if isinstance(value, int) else scenario.workload.prompts_per_step
            yield Change(f"{name} {now} to {2 * now}", {key: 2 * now}, "data may be older")


OLDER = "data are older"
SHORT = "batches lean to short responses"
MOST_MEMORY = 0.95


def candidates(resolved: ResolvedScenario) -> Iterator[tuple[Change, Scenario]]:
    """Every change that applies, with the scenario that it makes; what would be refused is left out."""
    for change in _all(resolved):
        changed = changed_scenario(resolved.scenario, change.settings)
        if changed is not None:
            yield change, changed


def changed_scenario(scenario: Scenario, settings: Mapping[str, object]) -> Scenario | None:
    """The scenario with values by key path; None where that is refused, or changes nothing."""
    try:
        changed = override(scenario, settings)
        resolve(changed)
    except (ResolveError, RlsimError):
        return None
    return changed if changed != scenario else None


def _all(resolved: ResolvedScenario) -> Iterator[Change]:
    scenario = resolved.scenario
    if not resolved.colocated and not scenario.rollout.pools:
        # GPUs between rollout and trainer, as few as both sides can be cut into.
        rollout, trainer = scenario.rollout, scenario.trainer
        ranks = trainer.tensor_parallel * trainer.pipeline_parallel * trainer.context_parallel
        unit = lcm(rollout.gpus_per_replica, ranks)
        for moved, direction in ((unit, "to rollout"), (-unit, "to the trainer")):
            split = {"rollout.gpus": rollout.gpus + moved, "trainer.gpus": trainer.gpus - moved}
            yield Change(f"{unit} GPU{'s' * (unit > 1)} more {direction}", split)
    yield from _overlap_changes(resolved)
    yield from _engine_changes(scenario.rollout)
    yield from _training_changes(scenario)
    # Environments, reward workers, where calls go, and how long responses may be.
    turns, reward = scenario.workload.turns, scenario.workload.reward
    if turns is not None and turns.environments is not None:
        count = 2 * turns.environments
        yield Change(f"environments doubled to {count}", {"workload.turns.environments": count})
    if reward is not None and reward.workers is not None:
        yield Change(f"reward workers doubled to {2 * reward.workers}", {"workload.reward.workers": 2 * reward.workers})
    for part in ("least-in-flight", "least-tokens"):
        yield Change(f"calls to the replica with {part.replace('-', ' ')}", {"policy.parts.dispatch": {"use": part}})
    cap = scenario.workload.response_tokens.fields.get("cap_tokens")
    if isinstance(cap, int):
        shorter = {"workload.response_tokens.cap_tokens": cap * 3 // 4}
        yield Change(
            f"responses cut at {cap * 3 // 4} tokens instead of {cap}", shorter, "long responses end unfinished"
        )
    yield from bound_changes(scenario)


def _overlap_changes(resolved: ResolvedScenario) -> Iterator[Change]:
    """Asynchrony where there is none, on GPUs of its own or on half of the shared ones, and more of it."""
    scenario = resolved.scenario
    areal = {"preset": "areal", "max_head_offpolicyness": 1}
    if resolved.colocated:
        half = scenario.rollout.gpus // 2
        halves = {"rollout.gpus": half, "trainer.gpus": scenario.rollout.gpus - half, "policy": areal}
        yield Change("generation beside training, one version ahead, half of the GPUs each", halves, OLDER)
        size = -(-scenario.workload.prompts_per_step * 3 // 2)
        april = {"preset": "slime-april", "over_sampling_batch_size": size}
        yield Change("over-sampling by half, the rest resumed in the next round", {"policy": april}, SHORT)
        return
    if scenario.policy.preset in ("sync-disaggregated", "trl-server"):
        one_step_off = {"policy.preset": "one-step-off"}
        yield Change("the next batch generated during training (one step off)", one_step_off, OLDER)
        yield Change("one version ahead, interrupted and resumed", {"policy": areal}, OLDER)
    keep = {"policy.parts.update": {"use": "publish", "mode": "keep"}}
    yield Change("weights change under running samples, which keep their KV", keep, "samples mix versions")


def _engine_changes(rollout: Rollout) -> Iterator[Change]:
    """Tensor parallelism, slots, memory and step sizes of the engines."""
    tensor, slots, budget = rollout.tensor_parallel, rollout.max_num_seqs, rollout.max_num_batched_tokens
    yield Change(f"tensor parallel doubled to {2 * tensor}", {"rollout.tensor_parallel": 2 * tensor})
    if tensor > 1:
        yield Change(f"tensor parallel halved to {tensor // 2}", {"rollout.tensor_parallel": tensor // 2})
    more = {"rollout.max_num_seqs": 2 * slots, "rollout.max_num_batched_tokens": max(budget, 2 * slots)}
    yield Change(f"max_num_seqs doubled to {2 * slots}", more)
    yield Change(f"max_num_seqs halved to {slots // 2}", {"rollout.max_num_seqs": slots // 2})
    if rollout.kv_blocks is not None:
        yield Change("a quarter more KV memory", {"rollout.kv_blocks": rollout.kv_blocks * 5 // 4})
    elif rollout.gpu_memory_utilization < MOST_MEMORY:
        share = min(MOST_MEMORY, round(rollout.gpu_memory_utilization + 0.1, 2))
        yield Change(f"gpu_memory_utilization {share:g}", {"rollout.gpu_memory_utilization": share})
    if not rollout.enable_prefix_caching:
        yield Change("prefix caching", {"rollout.enable_prefix_caching": True})
    for tokens, change in ((2 * budget, "doubled"), (budget // 2, "halved")):
        yield Change(f"max_num_batched_tokens {change} to {tokens}", {"rollout.max_num_batched_tokens": tokens})


def _training_changes(scenario: Scenario) -> Iterator[Change]:
    """Balance, passes and packing of the trainer, and how its weights are sent."""
    trainer, sync = scenario.trainer, scenario.sync
    yield Change("samples spread over the trainer's ranks by length (lpt)", {"trainer.balance": "lpt"})
    if trainer.old_log_prob and trainer.updates_per_step == 1:
        yield Change(
            "no second pass for the log-probs of the behaviour model",
            {"trainer.old_log_prob": False},
            "the engine's log-probs stand for the trainer's",
        )
    if trainer.packing == "padded":
        yield Change("packed micro-batches", {"trainer.packing": "packed"})
    yield Change("each replica takes new weights alone", {"sync.scope": "per_replica"})
    if sync.tensors and sync.tensors > 1:
        yield Change("weights sent in a tenth of the pieces", {"sync.tensors": max(1, sync.tensors // 10)})
    if sync.link_bytes_per_second:
        yield Change("a link of twice the rate", {"sync.link_bytes_per_second": 2 * sync.link_bytes_per_second})
