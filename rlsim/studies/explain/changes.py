"""Families of changes to a scenario: each change is small, and a thing that somebody could do tomorrow.

A family is a function of the resolved scenario: its changes, or in words why it has none here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import lcm
from typing import Any

from rlsim.presets import load_preset
from rlsim.resolve import ResolvedScenario
from rlsim.scenario.schema import Scenario


@dataclass(frozen=True, slots=True)
class Change:
    """Values by key path, in words, and what they do to what is learnt."""

    label: str
    settings: Mapping[str, object]
    learnt: str = ""
    """What changes of the data that are trained on; empty: nothing."""
    family: str = ""


Family = Callable[[ResolvedScenario], "list[Change] | str"]

STALENESS: dict[str, float] = {
    "async_generation_ratio": 1,
    "async_queue_size": 1,
    "max_head_offpolicyness": 1,
    "max_off_policy_threshold": 1,
    "max_staleness": 1,
    "max_staleness_steps": 1,
    "max_steps_off_policy": 1,
    "max_trajectory_age_steps": 1,
    "max_weight_staleness": 1,
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
INTERVALS = ("update_weights_interval", "weight_sync_steps", "weight_update_interval")
"""A preset's interval between publications."""
OVERHEADS = (
    "trainer.fixed_seconds_per_step",
    "trainer.seconds_per_sample",
    "trainer.seconds_per_update",
    "trainer.seconds_per_micro_batch",
    "rollout.step_time.offset_seconds",
    "sync.base_seconds",
    "sync.per_tensor_seconds",
    "switching.sleep_seconds",
    "switching.wake_seconds",
)
"""Keys of times that no size explains."""
ROUTERS = ("least-in-flight", "least-tokens", "prefix-aware")
SYNCHRONOUS = ("sync-disaggregated", "trl-server")
"""Presets in which GPUs of their own take turns."""
AREAL = {"preset": "areal", "max_head_offpolicyness": 1}
OLDER = "data are older"
SHORT = "batches lean to short responses"
MOST_MEMORY = 0.95


def split(resolved: ResolvedScenario) -> list[Change] | str:
    """GPUs between rollout, each pool of it and the trainer, as few as both sides can be cut into."""
    if resolved.colocated:
        return "rollout and trainer share all GPUs"
    scenario, changes = resolved.scenario, []
    for pool, unit, moved in _movable(scenario):
        to_rollout, to_trainer = (
            {"rollout.gpus": scenario.rollout.gpus + gpus, "trainer.gpus": scenario.trainer.gpus - gpus}
            | ({"rollout.pools": moved(gpus)} if pool else {})
            for gpus in (unit, -unit)
        )
        gpus, whose = f"{unit} GPU{'s' * (unit > 1)}", f" pool {pool}" if pool else ""
        changes.append(Change(f"{gpus} more to rollout{whose}", to_rollout))
        changes.append(Change(f"{gpus} more to the trainer{' from' * bool(pool)}{whose}", to_trainer))
    return changes or "every pool shares its GPUs with another"


def _movable(scenario: Scenario) -> Iterator[tuple[str, int, Callable[[int], list[dict[str, Any]]]]]:
    """Pools with GPUs of their own (one without a name where replicas are alike), their unit, and pools with more."""
    rollout, trainer = scenario.rollout, scenario.trainer
    of_trainer = lcm(trainer.gpus_per_rank, trainer.pipeline_parallel * trainer.expert_parallel)
    owners = {pool.shares_gpus_with for pool in rollout.pools}
    if not rollout.pools:
        yield "", lcm(rollout.gpus_per_replica, of_trainer), lambda gpus: []
    for number, (pool, section) in enumerate(zip(rollout.pools, rollout.sections(), strict=False)):
        if pool.shares_gpus_with is not None or pool.name in owners:
            continue

        def with_more(gpus: int, number: int = number) -> list[dict[str, Any]]:
            pools = [other.model_dump(mode="json") for other in rollout.pools]
            pools[number]["gpus"] += gpus
            return pools

        yield pool.name, lcm(section.gpus_per_replica, of_trainer), with_more


def placement(resolved: ResolvedScenario) -> list[Change] | str:
    """All GPUs for both in turn, or half of them each."""
    rollout, trainer = resolved.scenario.rollout, resolved.scenario.trainer
    if rollout.pools:
        return "replicas are in pools: which of them the trainer would share is open"
    if resolved.colocated:
        half = rollout.gpus // 2
        halves = {"rollout.gpus": half, "trainer.gpus": rollout.gpus - half}
        in_turn, beside = halves | {"policy": {"preset": SYNCHRONOUS[0]}}, halves | {"policy": AREAL}
        return [
            Change("GPUs of their own, half each, in turn", in_turn),
            Change("generation beside training, one version ahead, half of the GPUs each", beside, OLDER),
        ]
    together = min(rollout.gpus + trainer.gpus, resolved.scenario.cluster.gpus)
    newer = "" if resolved.scenario.policy.preset in SYNCHRONOUS else "data are of the newest weights"
    settings = {"rollout.gpus": together, "trainer.gpus": together, "policy": {"preset": "sync-colocated"}}
    return [Change(f"all {together} GPUs generate, then train (colocated)", settings, newer)]


def overlap(resolved: ResolvedScenario) -> list[Change] | str:
    """Generation that goes on while the trainer works."""
    scenario = resolved.scenario
    if resolved.colocated:
        size = -(-scenario.workload.prompts_per_step * 3 // 2)
        april = {"preset": "slime-april", "over_sampling_batch_size": size}
        return [Change("over-sampling by half, the rest resumed in the next round", {"policy": april}, SHORT)]
    if scenario.policy.preset in SYNCHRONOUS:
        one_step_off = {"policy.preset": "one-step-off"}
        return [
            Change("the next batch generated during training (one step off)", one_step_off, OLDER),
            Change("one version ahead, interrupted and resumed", {"policy": AREAL}, OLDER),
        ]
    return "generation and training overlap already"


def _parameters(resolved: ResolvedScenario, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The preset's parameters among the names, and their values."""
    policy = resolved.scenario.policy
    if policy.preset is not None:
        defaults = load_preset(policy.preset).parameters
        for name in names:
            if name in defaults:
                yield name, policy.fields.get(name, defaults[name].default)


def _of_no_preset(resolved: ResolvedScenario, names: str) -> str:
    preset = resolved.scenario.policy.preset
    return f"preset {preset} has no {names}" if preset else f"the policy is made of parts, without a preset's {names}"


def staleness(resolved: ResolvedScenario) -> list[Change] | str:
    """The preset's bound one up."""
    changes = []
    for name, value in _parameters(resolved, tuple(STALENESS)):
        if isinstance(value, int | float) and not isinstance(value, bool):
            more = type(value)(value + STALENESS[name])
            changes.append(Change(f"{name} {value:g} to {more:g}", {f"policy.{name}": more}, OLDER))
    return changes or _of_no_preset(resolved, "bound on staleness")


def in_flight(resolved: ResolvedScenario) -> list[Change] | str:
    """The preset's limit on work in flight doubled."""
    prompts, changes = resolved.scenario.workload.prompts_per_step, []
    for name, value in _parameters(resolved, IN_FLIGHT):
        now = value if isinstance(value, int) else prompts
        changes.append(Change(f"{name} {now} to {2 * now}", {f"policy.{name}": 2 * now}, "data may be older"))
    return changes or _of_no_preset(resolved, "limit on work in flight")


def updates_in_flight(resolved: ResolvedScenario) -> list[Change] | str:
    """New weights under samples that go on."""
    flags = [
        Change(f"{name}: true", {f"policy.{name}": True}, "samples mix versions")
        for name, value in _parameters(resolved, FLAGS)
        if value is False
    ]
    if resolved.colocated:
        return flags or "weights change between rounds, when no sample runs"
    keep = {"policy.parts.update": {"use": "publish", "mode": "keep"}}
    return [*flags, Change("weights change under running samples, which keep their KV", keep, "samples mix versions")]


def publication(resolved: ResolvedScenario) -> list[Change] | str:
    """Weights published half as often."""
    if resolved.colocated:
        return "weights reach the engines with each change of role"
    scenario, policy = resolved.scenario, resolved.scenario.policy
    samples = scenario.workload.prompts_per_step * scenario.workload.group_size
    for name, value in _parameters(resolved, INTERVALS):
        twice = 2 * (max(samples, value) if name == "weight_update_interval" else value)
        return [Change(f"weights published half as often: {name} {twice}", {f"policy.{name}": twice}, OLDER)]
    parts = load_preset(policy.preset).filled(policy.fields, "policy") if policy.preset else {}
    spec = (parts | (policy.parts or {})).get("update", {})
    if spec.get("use") != "publish":
        return f"the part {spec.get('use')} decides when weights are published"
    twice = {**spec, "every_steps": 2 * spec.get("every_steps", 1)}
    label = f"weights published every {twice['every_steps']} steps"
    return [Change(label, {"policy.parts.update": twice}, OLDER)]


def router(resolved: ResolvedScenario) -> list[Change] | str:
    """Other routers of calls to replicas."""
    if resolved.shape.replicas == 1:
        return "one replica"
    return [Change(f"calls routed by {use}", {"policy.parts.dispatch": {"use": use}}) for use in ROUTERS]


def parallelism(resolved: ResolvedScenario) -> list[Change] | str:
    """Twice and half the tensor parallelism of the engines."""
    tensor = resolved.scenario.rollout.tensor_parallel
    changes = [Change(f"tensor parallel doubled to {2 * tensor}", {"rollout.tensor_parallel": 2 * tensor})]
    if tensor > 1:
        changes.append(Change(f"tensor parallel halved to {tensor // 2}", {"rollout.tensor_parallel": tensor // 2}))
    return changes


def slots(resolved: ResolvedScenario) -> list[Change] | str:
    """Twice and half the sequences of an engine step."""
    count, budget = resolved.scenario.rollout.max_num_seqs, resolved.scenario.rollout.max_num_batched_tokens
    more = {"rollout.max_num_seqs": 2 * count, "rollout.max_num_batched_tokens": max(budget, 2 * count)}
    return [
        Change(f"max_num_seqs doubled to {2 * count}", more),
        Change(f"max_num_seqs halved to {count // 2}", {"rollout.max_num_seqs": count // 2}),
    ]


def step_size(resolved: ResolvedScenario) -> list[Change] | str:
    """Twice and half the tokens of an engine step."""
    budget = resolved.scenario.rollout.max_num_batched_tokens
    return [
        Change(f"max_num_batched_tokens {change} to {tokens}", {"rollout.max_num_batched_tokens": tokens})
        for tokens, change in ((2 * budget, "doubled"), (budget // 2, "halved"))
    ]


def memory(resolved: ResolvedScenario) -> list[Change] | str:
    """More KV blocks, and prefixes that share them."""
    rollout = resolved.scenario.rollout
    changes = []
    if rollout.kv_blocks is not None:
        changes.append(Change("a quarter more KV memory", {"rollout.kv_blocks": rollout.kv_blocks * 5 // 4}))
    elif rollout.gpu_memory_utilization < MOST_MEMORY:
        share = min(MOST_MEMORY, round(rollout.gpu_memory_utilization + 0.1, 2))
        changes.append(Change(f"gpu_memory_utilization {share:g}", {"rollout.gpu_memory_utilization": share}))
    if not rollout.enable_prefix_caching:
        changes.append(Change("prefix caching", {"rollout.enable_prefix_caching": True}))
    return changes or f"gpu_memory_utilization is {rollout.gpu_memory_utilization:g} and prefixes are cached"


def waiting_kv(resolved: ResolvedScenario) -> list[Change] | str:
    """What becomes of KV during tool calls."""
    if resolved.scenario.workload.turns is None:
        return "no tool calls (workload.turns)"
    now = resolved.scenario.rollout.kv_while_waiting
    others = [other for other in ("keep", "drop", "offload") if other != now]
    return [Change(f"KV during tool calls: {other}", {"rollout.kv_while_waiting": other}) for other in others]


def trainer(resolved: ResolvedScenario) -> list[Change] | str:
    """Balance, passes and packing of the trainer."""
    section = resolved.scenario.trainer
    changes = [Change("samples spread over the trainer's ranks by length (lpt)", {"trainer.balance": "lpt"})]
    if section.old_log_prob and section.updates_per_step == 1:
        kept = "the engine's log-probs stand for the trainer's"
        settings = {"trainer.old_log_prob": False}
        changes.append(Change("no second pass for the log-probs of the behaviour model", settings, kept))
    if section.packing == "padded":
        changes.append(Change("packed micro-batches", {"trainer.packing": "packed"}))
    return changes


def weight_sync(resolved: ResolvedScenario) -> list[Change] | str:
    """Scope, pieces and link of a publication."""
    sync = resolved.scenario.sync
    changes = [Change("each replica takes new weights alone", {"sync.scope": "per_replica"})]
    if sync.tensors and sync.tensors > 1:
        changes.append(Change("weights sent in a tenth of the pieces", {"sync.tensors": max(1, sync.tensors // 10)}))
    rate = sync.link_bytes_per_second or sync.stage_bytes_per_second
    key = "sync.link_bytes_per_second" if sync.link_bytes_per_second else "sync.stage_bytes_per_second"
    if rate:
        changes.append(Change("a link of twice the rate", {key: 2 * rate}))
    return changes


def overhead(resolved: ResolvedScenario) -> list[Change] | str:
    """Each time that no size explains halved."""
    tree, changes = resolved.scenario.model_dump(mode="json"), []
    for key in OVERHEADS:
        value: Any = tree
        for name in key.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value:
            changes.append(Change(f"{key} halved to {value / 2:.4g}", {key: value / 2}))
    return changes or f"no such time is set ({', '.join(OVERHEADS[:3])}, ...)"


def environments(resolved: ResolvedScenario) -> list[Change] | str:
    """Twice the environments."""
    turns = resolved.scenario.workload.turns
    if turns is None or turns.environments is None:
        return "workload.turns.environments is not set: no call waits for one"
    count = 2 * turns.environments
    return [Change(f"environments doubled to {count}", {"workload.turns.environments": count})]


def reward_workers(resolved: ResolvedScenario) -> list[Change] | str:
    """Twice the reward workers."""
    reward = resolved.scenario.workload.reward
    if reward is None or reward.workers is None:
        return "workload.reward.workers is not set: no score waits for one"
    return [Change(f"reward workers doubled to {2 * reward.workers}", {"workload.reward.workers": 2 * reward.workers})]


def length_cap(resolved: ResolvedScenario) -> list[Change] | str:
    """Responses cut at three quarters of the cap."""
    cap = resolved.scenario.workload.response_tokens.fields.get("cap_tokens")
    if not isinstance(cap, int):
        return "workload.response_tokens has no cap_tokens"
    shorter = cap * 3 // 4
    settings = {"workload.response_tokens.cap_tokens": shorter}
    return [Change(f"responses cut at {shorter} tokens instead of {cap}", settings, "long responses end unfinished")]


FAMILIES: dict[str, Family] = {
    "split": split,
    "placement": placement,
    "overlap": overlap,
    "staleness": staleness,
    "work in flight": in_flight,
    "updates in flight": updates_in_flight,
    "publication": publication,
    "router": router,
    "parallelism": parallelism,
    "slots": slots,
    "step size": step_size,
    "memory": memory,
    "KV of waiting calls": waiting_kv,
    "trainer": trainer,
    "weight sync": weight_sync,
    "overhead": overhead,
    "environments": environments,
    "reward workers": reward_workers,
    "length cap": length_cap,
}
"""Families by name, in the order in which they are tried."""
