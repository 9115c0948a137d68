"""Live execution on servers that run already, by URL: their engines are real, all else takes its modelled time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError
from rlsim.core.ticks import to_seconds
from rlsim.executor.system import System
from rlsim.live.assemble import (
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
from rlsim.live.openai.capabilities import ServerCapabilities
from rlsim.live.openai.engine import OpenAiEngine
from rlsim.live.openai.probe import probe_all
from rlsim.live.openai.refusals import needs_of, refusals
from rlsim.live.openai.settings import ServerSettings, settings_of
from rlsim.live.torch.checkpoints import model_of, teacher_of
from rlsim.live.torch.trainer import TorchTrainer
from rlsim.live.vllm.refusals import reads_log_probs, watched
from rlsim.policies.hooks import Reuses
from rlsim.resolve import ResolvedScenario
from rlsim.workload.workload import Workload

VOCABULARY = 256
"""Token ids of prompts are below it: any model knows so many."""


class OpenAi:
    """OpenAI-compatible servers, one a replica."""

    virtual = emulated = False
    label = "real servers"

    def __init__(self) -> None:
        self._settings: tuple[ServerSettings, ...] = ()
        self._capabilities: tuple[ServerCapabilities, ...] = ()
        self._engines: list[OpenAiEngine] = []

    def refusals(self, plan: ResolvedScenario) -> list[ParameterError]:
        """What the servers lack for this plan, by their own answers to a few calls of some tokens."""
        live, paced = plan.scenario.live, paced_parts(plan)
        self.emulated, self.label = bool(paced), "real servers" + paced
        trained = live.trainer == "torch"
        if trained and (live.model is None or not any(Path(live.model).glob("*.safetensors"))):
            allowed = "the folder of the model that the servers serve, with its weights, or live.trainer: paced"
            return [ParameterError("live.model", live.model, allowed)]
        if unable := [*trainer_refusals(plan), *watched(plan), *drafts(plan)]:
            return unable
        try:
            self._settings = settings_of(live)
            self._capabilities = asyncio.run(probe_all(self._settings))
        except ParameterError as error:
            return [error]
        task = live.task is not None
        log_probs = trained or (task and reads_log_probs(plan))
        needs = needs_of(plan, plan.policy(plan.shape), task=task, trained=trained, log_probs=log_probs)
        return refusals(needs, self._capabilities)

    def workload(self, plan: ResolvedScenario, replication: int) -> Workload:
        return workload_of(plan, replication)

    def crew(self, plan: ResolvedScenario, world: System, clock: LiveClock, work: Path) -> LiveComponents:
        """The servers, and a trainer of the model that they serve, which must read its files on their own machine."""
        live = plan.scenario.live
        pairs = enumerate(zip(self._settings, self._capabilities, strict=True))
        self._engines = [
            OpenAiEngine(one, lambda: clock.now, capabilities, replica) for replica, (one, capabilities) in pairs
        ]
        task = task_of(live, plan.scenario.seed)
        if live.trainer == "paced":
            return with_trainer(live_components(plan, world, clock, self._engines, VOCABULARY), None, task)
        model = model_of(plan.scenario, work, task)
        recipe = recipe_of(plan, model, work, teacher_of(plan.scenario, work, task, model))
        crew = live_components(plan, world, clock, self._engines, model.vocabulary)
        return with_trainer(crew, TorchTrainer(recipe), task, judge_of(recipe))

    def facts(self) -> dict[str, Any]:
        """What the servers offer, and their gauges (seconds, running, waiting, share of KV in use)."""
        return {
            "engine_activity": "calls under way as the client sees them: servers tell no engine steps",
            "servers": [dict(one.rows()) for one in self._capabilities],
            "gauges": {
                engine.settings.url: [
                    [to_seconds(row.at), row.running, row.waiting, row.kv_use] for row in engine.gauges
                ]
                for engine in self._engines
                if engine.gauges
            },
        }


def drafts(plan: ResolvedScenario) -> list[ParameterError]:
    """Servers are asked for no log-probabilities of what they are given."""
    part = plan.policy(plan.shape).allocation
    allowed = "a part that checks no old responses, or --live vllm"
    return [ParameterError("policy.parts.allocation", type(part).__name__, allowed)] if isinstance(part, Reuses) else []
