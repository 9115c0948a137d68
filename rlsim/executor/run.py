"""From a plan to what one run needs: the controller of its policy, its machines and its workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlsim.controller import Controller
from rlsim.core.log import RunLog
from rlsim.core.streams import generator
from rlsim.core.ticks import to_ticks
from rlsim.core.view import Sample
from rlsim.costs.memory import weight_bytes_per_gpu
from rlsim.engine.replica import Replica
from rlsim.engine.steptime import StepNoise, StepTime
from rlsim.executor.system import Acceptance, Contention, LearningSetup, Links, System
from rlsim.executor.termination import Budget
from rlsim.learning.dynamics import LearningDynamics
from rlsim.resolve import ResolvedPool, ResolvedScenario
from rlsim.resolve.scenario import gpus_used, price
from rlsim.scenario.schema import Scenario
from rlsim.workload.workload import Workload

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """One finished run, simulated or live."""

    plan: ResolvedScenario
    replication: int
    log: RunLog


def prepare(plan: ResolvedScenario, replication: int) -> tuple[Controller, System]:
    """A fresh controller and fresh machines for one simulated replication."""
    workload = plan.workload_of(replication)
    return make_controller(plan, workload), make_world(plan, workload)


def make_controller(plan: ResolvedScenario, workload: Workload, oracle: bool = True) -> Controller:
    """A fresh controller of the plan's policy; without ``oracle`` nobody tells lengths still to come, as when live."""
    shape = plan.shape_of(workload)
    return Controller(
        plan.policy(shape),
        shape,
        workload.loaded_tokens,
        scores=workload.reward_latency is not None or plan.rewarded,
        oracle_tokens=(lambda sample: _turn_tokens(workload, sample)) if oracle else None,
        request_class=(lambda draw: workload.class_of(workload.prompt_at(draw)[0])) if workload.classes else None,
        prompt_of=lambda draw: workload.prompt_at(draw)[0],
    )


def budget_of(plan: ResolvedScenario) -> Budget | None:
    """What a run of the plan may use up; None for as much as its steps take."""
    budget = plan.scenario.run.budget
    if budget is None:
        return None
    return Budget(budget.model_dump(exclude_none=True), gpus_used(plan), price(plan)[0] / SECONDS_PER_HOUR)


def make_world(plan: ResolvedScenario, workload: Workload) -> System:
    """Fresh machines and the workload."""
    scenario, first = plan.scenario, plan.pools[0]
    given = scenario.workload
    return System(
        [replica for pool in plan.pools for replica in _replicas(pool, workload)],
        plan.training,
        workload,
        to_ticks(plan.sync.seconds()),
        plan.sync.scope,
        to_ticks(plan.switching.to_training_seconds()),
        to_ticks(plan.switching.to_rollout_seconds()),
        first.limits.max_model_len,
        given.turns.environments if given.turns else None,
        given.reward.workers if given.reward else None,
        scenario.rollout.kv_while_waiting,
        _restore_ticks(plan, first),
        _pull_ticks(plan, first),
        _fetch_ticks(plan, first),
        _links(plan) if scenario.rollout.pools else None,
        plan.shape.lent_replicas,
        _contention(plan),
        _acceptance(scenario, workload.seed),
        _learning(plan, workload),
    )


def _learning(plan: ResolvedScenario, workload: Workload) -> LearningSetup | None:
    if plan.learning is None:
        return None
    trainer = plan.scenario.trainer
    course = LearningDynamics(plan.learning, workload.seed, workload.dataset_prompts)
    if course.distils:
        course.measure(lambda prompt, member, factor: workload.response_tokens(prompt, 0, member, factor=factor))
    return LearningSetup(course, trainer.updates_per_step, trainer.epochs)


def _contention(plan: ResolvedScenario) -> Contention | None:
    contention = plan.scenario.contention
    if contention.step_factor_while_training == contention.training_factor_while_generating == 1:
        return None
    slowed = ((pool.place.count, _law(pool).slowed(contention.step_factor_while_training)) for pool in plan.pools)
    laws = [law for count, law in slowed for _ in range(count)]
    return Contention(laws, contention.training_factor_while_generating)


def _law(pool: ResolvedPool) -> StepTime:
    return pool.law.quantise(pool.limits.max_num_batched_tokens, pool.limits.max_num_seqs)


def _acceptance(scenario: Scenario, seed: int) -> Acceptance | None:
    acceptance = scenario.sync.acceptance
    return None if acceptance is None else Acceptance(seed, acceptance.probability, acceptance.test_seconds)


def _replicas(pool: ResolvedPool, workload: Workload) -> Iterator[Replica]:
    """The engines of a pool, which share one table of step times."""
    limits, ranks = pool.limits, pool.rollout.data_parallel
    law = _law(pool)
    for index in pool.place.replicas:
        yield Replica(index, limits, law, ranks, noise=_noise(pool, index, law, workload))


def _noise(pool: ResolvedPool, index: int, law: StepTime, workload: Workload) -> StepNoise | None:
    cv = pool.rollout.step_time.noise_cv
    if not cv:
        return None
    shortest = min(law.decode(decodes, 0) for decodes in range(1, pool.limits.max_num_seqs + 1))
    rng = generator(workload.seed, "step noise", index)
    return StepNoise(rng, round(min(cv, 1) * shortest), min(1.0, cv**-2))


def _links(plan: ResolvedScenario) -> Links:
    pools = plan.pools
    first_of = {pool.place.name: pool.place.first for pool in pools}
    gpus_of = (
        first_of[pool.place.shares_gpus_with or pool.place.name] + offset
        for pool in pools
        for offset in range(pool.place.count)
    )
    return Links(
        tuple(number for number, pool in enumerate(pools) for _ in pool.place.replicas),
        tuple(gpus_of),
        tuple(_restore_ticks(plan, pool) for pool in pools),
        tuple(_fetch_ticks(plan, pool) for pool in pools),
        tuple(_pull_ticks(plan, pool) for pool in pools),
    )


def _pull_ticks(plan: ResolvedScenario, pool: ResolvedPool) -> int:
    """Loading a GPU's share of the weights from host memory."""
    rollout = pool.rollout
    weights = weight_bytes_per_gpu(
        plan.architecture, rollout.tensor_parallel, rollout.pipeline_parallel, rollout.expert_parallel
    )
    return to_ticks(weights / pool.device.host_link_bytes_per_second)


def _restore_ticks(plan: ResolvedScenario, pool: ResolvedPool) -> int:
    """Bringing one token's KV back over the host link of every GPU."""
    return to_ticks(_kv_bytes_per_gpu(plan, pool) / pool.device.host_link_bytes_per_second)


def _fetch_ticks(plan: ResolvedScenario, pool: ResolvedPool) -> int:
    """Moving one token's KV over the network link of every GPU."""
    link = pool.rollout.kv_link_bytes_per_second or pool.device.inter_node_bytes_per_second
    return to_ticks(_kv_bytes_per_gpu(plan, pool) / link)


def _kv_bytes_per_gpu(plan: ResolvedScenario, pool: ResolvedPool) -> float:
    """One token's KV on one GPU of a replica."""
    rollout = pool.rollout
    return plan.architecture.kv_bytes_per_token_per_gpu(rollout.tensor_parallel) / rollout.pipeline_parallel


def _turn_tokens(workload: Workload, sample: Sample) -> int:
    """What an oracle knows: the length of the turn under way, at version 0."""
    prompt, attempt = workload.prompt_at(sample.group.draw)
    return workload.response_tokens(prompt, attempt + sample.group.recycle, sample.member, sample.turn)
