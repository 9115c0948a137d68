"""Crews around real engines: all else paced by the scenario's costs, or a real trainer, a task, real tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlsim.core.errors import ParameterError
from rlsim.core.hashing import hashed
from rlsim.executor.system import System
from rlsim.executor.trajectories import Calls
from rlsim.live.clock import LiveClock
from rlsim.live.components import Limits, LiveComponents, Pace
from rlsim.live.fake import pace_of, paced_rewards, paced_tools
from rlsim.live.paced import PacedTrainer, SpokenTools
from rlsim.live.protocols import Engine, Judge, LiveTrainer
from rlsim.live.tasks.registry import make_task
from rlsim.live.tasks.verifiable import Verifiable
from rlsim.live.texts import Acceptance, Spelling, Texts, random_prompts
from rlsim.live.torch.checkpoints import Model, device_of
from rlsim.live.torch.grpo import Objective
from rlsim.live.torch.recipe import Recipe
from rlsim.live.torch.trainer import TorchTrainer
from rlsim.resolve import ResolvedScenario
from rlsim.scenario.live import Live
from rlsim.workload.lengths import Constant
from rlsim.workload.workload import Workload

MICRO_BATCH_TOKENS = 16384
"""Where the scenario sets no bound."""


def live_components(
    plan: ResolvedScenario, system: System, clock: LiveClock, engines: Sequence[Engine], vocabulary: int
) -> LiveComponents:
    """Engines that know ``vocabulary`` token ids, and everything else paced but a calculator."""
    live, seed, spelling = plan.scenario.live, system.workload.seed, Spelling(vocabulary)
    versions = [0] * len(engines)
    calls = Calls(system, versions.__getitem__)
    return LiveComponents(
        engines,
        PacedTrainer(clock, system, calls.lengths),
        calls,
        versions,
        spelling.calculator()
        if live.tool == "calculator"
        else SpokenTools(paced_tools(calls, clock), seed, vocabulary),
        paced_rewards(calls, clock),
        texts=Texts(random_prompts(system.workload, vocabulary)),
        pace=pace_of(system),
        tool_fault=spelling.fault,
        acceptance=Acceptance(seed, live.draft_lenience),
        limits=Limits(live.tool_timeout_seconds, live.tool_retries, live.reward_timeout_seconds),
    )


def judge_of(recipe: Recipe) -> TorchTrainer | None:
    """Somebody to ask what the teacher thinks of tokens that are not trained on yet, in a process of its own."""
    if recipe.teacher is None:
        return None
    return TorchTrainer(replace(recipe, model=recipe.teacher, teacher=None, processes=1, cores=()))


def with_trainer(
    crew: LiveComponents, trainer: LiveTrainer | None, task: Verifiable | None, judge: Judge | None = None
) -> LiveComponents:
    """The same crew with a real trainer, its teacher, and the prompts and rewards of a task; or as it is."""
    if trainer is not None:
        # Without a task rewards are coins: they teach nothing, but weights change.
        crew = replace(
            crew,
            trainer=trainer,
            pace=Pace(),
            score_now=lambda number, response: float(hashed("coin", number, *response[:8]) & 1),
        )
    if task is not None:
        crew = replace(crew, texts=Texts(task.prompt), ignore_eos=False, score_now=task.reward)
    return replace(crew, judge=judge)


def paced_parts(plan: ResolvedScenario) -> str:
    """What of a run on real engines only takes its modelled time, for its label; empty where all is real."""
    live, workload = plan.scenario.live, plan.scenario.workload
    parts = [
        *(["trainer, publications"] if live.trainer == "paced" else []),
        *(["tools"] if workload.turns is not None and live.tool == "paced" else []),
        *(["rewards"] if workload.reward is not None else []),
    ]
    return f"; EMULATED, taking the time that the costs give them: {', '.join(parts)}" if parts else ""


def recipe_of(plan: ResolvedScenario, model: Model, work: Path, teacher: Path | None = None) -> Recipe:
    """A trainer of the scenario's batches and losses on a model; the last of the named cores are its ranks'."""
    live, trainer = plan.scenario.live, plan.scenario.trainer
    loss = live.loss
    return Recipe(
        model.folder,
        work / "weights",
        Objective(loss.clip_low, loss.clip_high, loss.max_importance if loss.correction == "truncated" else None),
        loss.learning_rate,
        most_gradient_norm=loss.max_gradient_norm,
        updates_per_step=trainer.updates_per_step,
        epochs=trainer.epochs,
        micro_batch_tokens=trainer.micro_batch_tokens or MICRO_BATCH_TOKENS,
        old_log_prob=trainer.old_log_prob,
        processes=live.trainer_processes,
        device=device_of(),
        threads=live.threads,
        cores=live.cores[-live.trainer_processes :],
        teacher=teacher,
    )


def task_of(live: Live, seed: int) -> Verifiable | None:
    """The task of a live section; its prompts are the same in all replications of a seed."""
    if live.task is None:
        return None
    try:
        return make_task(live.task.name, live.task.fields, seed)
    except ParameterError as error:
        raise ParameterError(f"live.{error.path}", error.found, error.allowed) from error


def workload_of(plan: ResolvedScenario, replication: int) -> Workload:
    """The scenario's; with a task, its prompts, and lengths that the model decides up to the scenario's cap."""
    workload, task = plan.workload_of(replication), task_of(plan.scenario.live, plan.scenario.seed)
    if task is None:
        return workload
    prompt, cap = Constant(task.prompt_tokens(0)), Constant(workload.response_length.cap_tokens)
    return replace(workload, prompt_length=prompt, response_length=cap)


def trainer_refusals(plan: ResolvedScenario) -> list[ParameterError]:
    """What the real trainer does not do, and what a task does not go with."""
    live, trainer = plan.scenario.live, plan.scenario.trainer
    faults = []
    if live.task is not None and live.trainer == "paced":
        faults.append(ParameterError("live.trainer", "paced", "torch: a task is there to be learnt"))
    task, cap = task_of(live, plan.scenario.seed), plan.workload.response_length.cap_tokens
    if task is not None and cap < task.most_response_tokens:
        allowed = f"at least {task.most_response_tokens}: a right answer to this task can be so long"
        faults.append(ParameterError("workload.response_tokens.cap_tokens", cap, allowed))
    if live.trainer == "torch":
        if trainer.packing != "packed":
            allowed = "packed, or live.trainer: paced: the real trainer pads nothing"
            faults.append(ParameterError("trainer.packing", trainer.packing, allowed))
        for name in ("critic",) if live.teacher is not None else ("reference", "critic"):
            if getattr(trainer, name):
                allowed = "false, or live.trainer: paced: the real trainer has no such model"
                faults.append(ParameterError(f"trainer.{name}", True, allowed))
    return faults


def core_of(live: Live, replica: int) -> int | None:
    """The CPU core of a replica, in turn; the last ones named are the trainer's, as many as it has processes."""
    engines = live.cores[: -live.trainer_processes] or live.cores
    return engines[replica % len(engines)] if engines else None
