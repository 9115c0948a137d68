"""The kinds of live execution by name; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from rlsim.build import Plan
from rlsim.core.errors import ParameterError, unknown
from rlsim.live.clock import Clock
from rlsim.live.crew import Crew
from rlsim.live.fake_crew import fake_crew
from rlsim.live.run import Backend
from rlsim.workload.workload import Workload
from rlsim.world.world import World

NAMES = {
    "vllm": "rlsim.live.vllm_backend:Vllm",
    "vllm-paced": "rlsim.live.vllm_backend:PacedVllm",
    "openai": "rlsim.live.openai_backend:OpenAi",
    "fake": "rlsim.live.backends:Fake",
}


def backend(name: str) -> Backend:
    """A backend by name; ``ParameterError`` for an unknown one, ``RlsimError`` where an extra is missing."""
    if name not in NAMES:
        raise unknown("--live", name, NAMES)
    module, _, kind = NAMES[name].partition(":")
    made: Backend = getattr(import_module(module), kind)()
    return made


class Fake:
    """Simulated engines behind the live protocol, in virtual time."""

    virtual = emulated = True
    label = "EMULATED, fake engines in virtual time; nothing is real but the executor"

    def refusals(self, plan: Plan) -> list[ParameterError]:
        """Tools that read: the simulated engine can do all that is modelled, but it makes no tokens."""
        tool = plan.scenario.live.tool
        return [] if tool == "paced" else [ParameterError("live.tool", tool, "paced: fake engines make no tokens")]

    def workload(self, plan: Plan, replication: int) -> Workload:
        """The scenario's."""
        return plan.workload_of(replication)

    def crew(self, plan: Plan, world: World, clock: Clock, work: Path) -> Crew:
        """Fake engines, and all else paced."""
        return fake_crew(world, clock)

    def facts(self) -> dict[str, Any]:
        """None."""
        return {}
