"""Refusals of a live run on vLLM: what its engines cannot do, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from rlsim.core.errors import ParameterError
from rlsim.engine.discipline import VLLM
from rlsim.live.signals import READ
from rlsim.live.vllm.setup import Device
from rlsim.policies.hooks import Reuses, Watches
from rlsim.policies.protocols import FetchesKv
from rlsim.resolve import ResolvedPool, ResolvedScenario
from rlsim.scenario.pools import pool_key

Backend = Literal["vllm", "vllm-paced"]
BLOCK_TOKENS = 16
"""vLLM's attention kernels work in multiples of it."""


def refusals(plan: ResolvedScenario, backend: Backend, device: Device) -> list[ParameterError]:
    """Faults of the scenario that the engines cannot serve, each with its key.

    A paced engine takes the pool's device and split from its step law, so any split of one engine goes.
    """
    faults = [fault for pool in plan.pools for fault in _pool_faults(plan, pool, backend, device)]
    if plan.scenario.rollout.kv_while_waiting != "keep":
        kept = plan.scenario.rollout.kv_while_waiting
        allowed = "keep: a live engine holds the KV of earlier turns in its prefix cache as long as there is room"
        faults.append(ParameterError("rollout.kv_while_waiting", kept, allowed))
    faults += contention_faults(plan) if backend == "vllm-paced" else ()
    return faults + list(_policy_faults(plan)) + watched(plan)


def watched(plan: ResolvedScenario) -> list[ParameterError]:
    """Faults of signals that nothing gives of a task's responses; without a task the learning model gives them."""
    allocation = plan.policy(plan.shape).allocation
    if not isinstance(allocation, Watches) or plan.scenario.live.task is None:
        return []
    if plan.scenario.live.teacher is not None:
        return []
    return [
        ParameterError("live.teacher", None, f"a teacher: the policy watches {signal}")
        for signal in allocation.signals
        if signal not in READ
    ]


def contention_faults(plan: ResolvedScenario) -> Iterator[ParameterError]:
    """Faults of contention: engines whose speed is put in are not slowed down by what happens beside them."""
    for key, factor in plan.scenario.contention.model_dump().items():
        if factor != 1:
            yield ParameterError(f"contention.{key}", factor, "1: emulated engines and trainers keep their own pace")


def _policy_faults(plan: ResolvedScenario) -> Iterator[ParameterError]:
    """Faults of parts: KV does not move between live engines, and live trainers check no drafts."""
    policy = plan.policy(plan.shape)
    if isinstance(policy.ordering, FetchesKv) or policy.ordering.shares_kv:
        yield _moves_kv("ordering", policy.ordering)
    if policy.migration.transfers_kv:
        yield _moves_kv("migration", policy.migration)
    learning = plan.scenario.learning if plan.scenario.live.task is None else None
    if isinstance(policy.allocation, Reuses) and learning is not None and learning.drafts_checked_by != "engine":
        allowed = "engine: live trainers check no drafts"
        yield ParameterError("learning.drafts_checked_by", learning.drafts_checked_by, allowed)


def reads_log_probs(plan: ResolvedScenario) -> bool:
    """Whether the policy wants to know how likely the tokens were that engines made, beside the trainer."""
    return isinstance(plan.policy(plan.shape).allocation, Watches | Reuses)


def _moves_kv(choice: str, part: object) -> ParameterError:
    allowed = "a part that moves no KV from one engine to another: live engines compute it again"
    return ParameterError(f"policy.parts.{choice}", type(part).__name__, allowed)


def _pool_faults(
    plan: ResolvedScenario, pool: ResolvedPool, backend: Backend, device: Device
) -> Iterator[ParameterError]:
    rollout = pool.rollout
    if rollout.data_parallel > 1:
        yield _fault(plan, pool, "data_parallel", "1: every live replica is an engine of its own")
    if pool.limits.discipline != VLLM:
        rules = rollout.discipline.model_dump(exclude_defaults=True)
        yield _fault(plan, pool, "discipline", "nothing: live engines schedule by vLLM's own rules", rules)
    if pool.limits.block_size % BLOCK_TOKENS:
        yield _fault(plan, pool, "block_size", f"a multiple of {BLOCK_TOKENS}, as vLLM's kernels need")
    if backend == "vllm-paced":
        cv = rollout.step_time.noise_cv
        if cv:
            yield _fault(plan, pool, "step_time.noise_cv", "0: a paced engine keeps to the step law itself", cv)
        return
    for field in ("pipeline_parallel", "expert_parallel"):
        if getattr(rollout, field) > 1:
            yield _fault(plan, pool, field, "1: live engines are split by tensors alone")
    if device == "cpu" and rollout.tensor_parallel > 1:
        yield _fault(plan, pool, "tensor_parallel", "1: an engine on a CPU is one process")
    if pool.sm_share is not None:
        yield _fault(plan, pool, "sm_share", "left out: live engines do not share GPUs", pool.sm_share)


def _fault(plan: ResolvedScenario, pool: ResolvedPool, field: str, allowed: str, value: Any = None) -> ParameterError:
    """Fault at the key where the pool, or else the rollout section, sets the field."""
    whole = plan.scenario.rollout
    key = pool_key(whole, plan.pools.index(pool), field) if whole.pools else field
    return ParameterError(f"rollout.{key}", getattr(pool.rollout, field) if value is None else value, allowed)
