"""Live execution on servers that run already, by URL: their engines are real, all else takes its modelled time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlsim.build import Plan
from rlsim.core.errors import ParameterError
from rlsim.core.ticks import to_seconds
from rlsim.live.clock import Clock
from rlsim.live.crew import Crew, Limits
from rlsim.live.fake_crew import pace_of, paced_rewards, paced_tools
from rlsim.live.openai_engine import OpenAiEngine
from rlsim.live.paced import PacedTrainer, SpokenTools
from rlsim.live.servers.offers import ServerOffers
from rlsim.live.servers.probe import probe_all
from rlsim.live.servers.refusals import needs_of, refusals
from rlsim.live.servers.settings import ServerSettings, settings_of
from rlsim.live.spelling import Spelling
from rlsim.live.texts import Texts, random_prompts
from rlsim.workload.workload import Workload
from rlsim.world.calls import Calls
from rlsim.world.world import World

VOCABULARY = 256
"""Token ids of prompts are below it: any model knows so many."""


class OpenAi:
    """OpenAI-compatible servers, one a replica."""

    virtual, emulated = False, True
    label = "real servers; EMULATED are trainer, tools and rewards, which only take the time that the costs give them"

    def __init__(self) -> None:
        self._settings: tuple[ServerSettings, ...] = ()
        self._offers: tuple[ServerOffers, ...] = ()
        self._engines: list[OpenAiEngine] = []

    def refusals(self, plan: Plan) -> list[ParameterError]:
        """What the servers lack for this plan, by their own answers to a few calls of some tokens."""
        live = plan.scenario.live
        if live.trainer != "paced":
            return [
                ParameterError(
                    "live.trainer", live.trainer, "paced with --live openai: servers are given no trained weights"
                )
            ]
        if live.task is not None:
            return [ParameterError("live.task", live.task.name, "none with --live openai: lengths are the workload's")]
        try:
            self._settings = settings_of(live)
            self._offers = asyncio.run(probe_all(self._settings))
        except ParameterError as error:
            return [error]
        return refusals(needs_of(plan, plan.policy(plan.shape)), self._offers)

    def workload(self, plan: Plan, replication: int) -> Workload:
        """The scenario's."""
        return plan.workload_of(replication)

    def crew(self, plan: Plan, world: World, clock: Clock, work: Path) -> Crew:
        """The servers, random prompts, and all else paced."""
        books: list[Calls] = []

        def calls(version_of: Callable[[int], int]) -> Calls:
            books.append(Calls(world, version_of))
            return books[0]

        pairs = enumerate(zip(self._settings, self._offers, strict=True))
        self._engines = [OpenAiEngine(one, lambda: clock.now, offers, replica) for replica, (one, offers) in pairs]
        live, seed = plan.scenario.live, world.workload.seed
        spelling = Spelling(VOCABULARY)
        spoken = SpokenTools(paced_tools(world, clock, lambda sample: books[0]), seed, VOCABULARY)
        return Crew(
            self._engines,
            PacedTrainer(clock, world, lambda sample: books[0].lengths(sample)),
            calls,
            spelling.calculator() if live.tool == "calculator" else spoken,
            paced_rewards(world, clock, lambda sample: books[0]),
            texts=Texts(random_prompts(world.workload, VOCABULARY)),
            pace=pace_of(world),
            tool_fault=spelling.fault,
            limits=Limits(live.tool_timeout_seconds, live.tool_retries, live.reward_timeout_seconds),
        )

    def facts(self) -> dict[str, Any]:
        """What the servers offer, and their gauges (seconds, running, waiting, share of KV in use)."""
        return {
            "engine_activity": "calls under way as the client sees them: servers tell no engine steps",
            "servers": [dict(one.rows()) for one in self._offers],
            "gauges": {
                engine.settings.url: [
                    [to_seconds(row.at), row.running, row.waiting, row.kv_use] for row in engine.gauges
                ]
                for engine in self._engines
                if engine.gauges
            },
        }
