"""Changes to a scenario that could help: each is small, and a thing that somebody could do tomorrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import lcm
from typing import Any

from pydantic import ValidationError

from rlsim.build import Plan, PlanError, plan
from rlsim.core.errors import RlsimError
from rlsim.planning.explain.bounds import bound_changes
from rlsim.planning.explain.change import Change
from rlsim.scenario.schema import Scenario

OLDER = "data are older"
SHORT = "batches lean to short responses"
MOST_MEMORY = 0.95


def candidates(found: Plan) -> Iterator[tuple[Change, Scenario]]:
    """Every change that applies, with the scenario that it makes; what would be refused is left out."""
    for change in _all(found):
        changed = changed_scenario(found.scenario, change.settings)
        if changed is not None:
            yield change, changed


def changed_scenario(scenario: Scenario, settings: Mapping[str, object]) -> Scenario | None:
    """The scenario with values by key path; None where that is refused, or changes nothing."""
    tree: dict[str, Any] = scenario.model_dump(mode="json")
    for key, value in settings.items():
        *path, last = key.split(".")
        node = tree
        for place in path:
            node[place] = node.get(place) or {}
            node = node[place]
        node[last] = value
    try:
        changed = Scenario.model_validate(tree)
        plan(changed)
    except (ValidationError, PlanError, RlsimError):
        return None
    return changed if changed != scenario else None


def _all(found: Plan) -> Iterator[Change]:
    for source in _SOURCES:
        yield from source(found)
    yield from bound_changes(found.scenario)


def _moves(found: Plan) -> Iterator[Change]:
    """GPUs between rollout and trainer, as few as both sides can be cut into."""
    rollout, trainer = found.scenario.rollout, found.scenario.trainer
    if found.colocated or rollout.pools:
        return
    ranks = trainer.tensor_parallel * trainer.pipeline_parallel * trainer.context_parallel
    unit = lcm(rollout.gpus_per_replica, ranks)
    for moved, where in ((unit, "to rollout"), (-unit, "to the trainer")):
        split = {"rollout.gpus": rollout.gpus + moved, "trainer.gpus": trainer.gpus - moved}
        yield Change(f"{unit} GPU{'s' * (unit > 1)} more {where}", split)


def _overlap(found: Plan) -> Iterator[Change]:
    """Asynchrony where there is none: on GPUs of its own, or on half of the shared ones."""
    scenario = found.scenario
    half = scenario.rollout.gpus // 2
    areal = {"preset": "areal", "max_head_offpolicyness": 1}
    if found.colocated:
        halves: dict[str, object] = {"rollout.gpus": half, "trainer.gpus": scenario.rollout.gpus - half}
        yield Change(
            "generation beside training, one version ahead, half of the GPUs each", {**halves, "policy": areal}, OLDER
        )
        size = -(-scenario.workload.prompts_per_step * 3 // 2)
        april = {"preset": "slime-april", "over_sampling_batch_size": size}
        yield Change("over-sampling by half, the rest resumed in the next round", {"policy": april}, SHORT)
    elif scenario.policy.preset in ("sync-disaggregated", "trl-server"):
        yield Change(
            "the next batch generated during training (one step off)", {"policy.preset": "one-step-off"}, OLDER
        )
        yield Change("one version ahead, interrupted and resumed", {"policy": areal}, OLDER)


def _in_flight(found: Plan) -> Iterator[Change]:
    if found.colocated:
        return
    keep = {"use": "publish", "mode": "keep"}
    yield Change(
        "weights change under running samples, which keep their KV",
        {"policy.parts.update": keep},
        "samples mix versions",
    )


def _parallel(found: Plan) -> Iterator[Change]:
    tensor = found.scenario.rollout.tensor_parallel
    yield Change(f"tensor parallel doubled to {2 * tensor}", {"rollout.tensor_parallel": 2 * tensor})
    if tensor > 1:
        yield Change(f"tensor parallel halved to {tensor // 2}", {"rollout.tensor_parallel": tensor // 2})


def _seats(found: Plan) -> Iterator[Change]:
    seats = found.scenario.rollout.max_num_seqs
    budget = max(found.scenario.rollout.max_num_batched_tokens, 2 * seats)
    more = {"rollout.max_num_seqs": 2 * seats, "rollout.max_num_batched_tokens": budget}
    yield Change(f"max_num_seqs doubled to {2 * seats}", more)
    yield Change(f"max_num_seqs halved to {seats // 2}", {"rollout.max_num_seqs": seats // 2})


def _memory(found: Plan) -> Iterator[Change]:
    rollout = found.scenario.rollout
    if rollout.kv_blocks is not None:
        yield Change("a quarter more KV memory", {"rollout.kv_blocks": rollout.kv_blocks * 5 // 4})
    elif rollout.gpu_memory_utilization < MOST_MEMORY:
        share = min(MOST_MEMORY, round(rollout.gpu_memory_utilization + 0.1, 2))
        yield Change(f"gpu_memory_utilization {share:g}", {"rollout.gpu_memory_utilization": share})
    if not rollout.enable_prefix_caching:
        yield Change("prefix caching", {"rollout.enable_prefix_caching": True})


def _chunks(found: Plan) -> Iterator[Change]:
    budget = found.scenario.rollout.max_num_batched_tokens
    for tokens, what in ((2 * budget, "doubled"), (budget // 2, "halved")):
        yield Change(f"max_num_batched_tokens {what} to {tokens}", {"rollout.max_num_batched_tokens": tokens})


def _trainer(found: Plan) -> Iterator[Change]:
    trainer = found.scenario.trainer
    yield Change("samples spread over the trainer's ranks by length (lpt)", {"trainer.balance": "lpt"})
    if trainer.old_log_prob and found.scenario.trainer.updates_per_step == 1:
        yield Change(
            "no second pass for the log-probs of the behaviour model",
            {"trainer.old_log_prob": False},
            "the engine's log-probs stand for the trainer's",
        )
    if trainer.packing == "padded":
        yield Change("packed micro-batches", {"trainer.packing": "packed"})


def _sync(found: Plan) -> Iterator[Change]:
    sync = found.scenario.sync
    yield Change("each replica takes new weights alone", {"sync.scope": "per_replica"})
    if sync.tensors and sync.tensors > 1:
        yield Change("weights sent in a tenth of the pieces", {"sync.tensors": max(1, sync.tensors // 10)})
    if sync.link_bytes_per_second:
        yield Change("a link of twice the rate", {"sync.link_bytes_per_second": 2 * sync.link_bytes_per_second})


def _services(found: Plan) -> Iterator[Change]:
    turns, reward = found.scenario.workload.turns, found.scenario.workload.reward
    if turns is not None and turns.environments is not None:
        count = 2 * turns.environments
        yield Change(f"environments doubled to {count}", {"workload.turns.environments": count})
    if reward is not None and reward.workers is not None:
        yield Change(f"reward workers doubled to {2 * reward.workers}", {"workload.reward.workers": 2 * reward.workers})


def _dispatch(found: Plan) -> Iterator[Change]:
    for part in ("least-in-flight", "least-tokens"):
        yield Change(f"calls to the replica with {part.replace('-', ' ')}", {"policy.parts.dispatch": {"use": part}})


def _cap(found: Plan) -> Iterator[Change]:
    cap = found.scenario.workload.response_tokens.fields.get("cap_tokens")
    if isinstance(cap, int):
        yield Change(
            f"responses cut at {cap * 3 // 4} tokens instead of {cap}",
            {"workload.response_tokens.cap_tokens": cap * 3 // 4},
            "long responses end unfinished",
        )


_SOURCES: tuple[Callable[[Plan], Iterator[Change]], ...] = (
    _moves,
    _overlap,
    _in_flight,
    _parallel,
    _seats,
    _memory,
    _chunks,
    _trainer,
    _sync,
    _services,
    _dispatch,
    _cap,
)
