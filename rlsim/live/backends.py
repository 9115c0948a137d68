"""The kinds of live execution by name; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError, unknown
from rlsim.executor.system import System
from rlsim.live.clock import LiveClock
from rlsim.live.components import LiveComponents
from rlsim.live.fake import fake_components
from rlsim.live.run import Backend
from rlsim.live.site import Here, Site
from rlsim.live.vllm.refusals import contention_faults
from rlsim.resolve import ResolvedScenario
from rlsim.workload.workload import Workload

NAMES = {
    "vllm": "rlsim.live.vllm.backend:Vllm",
    "vllm-paced": "rlsim.live.vllm.backend:PacedVllm",
    "openai": "rlsim.live.openai.backend:OpenAi",
    "fake": "rlsim.live.backends:Fake",
}


PLACED = ("vllm", "vllm-paced")
"""Those whose engines are processes that can be anywhere."""
HERE = Here()


def backend(name: str, site: Site = HERE) -> Backend:
    """A backend by name, with its engines and trainer at a place.

    ``ParameterError`` for an unknown one, or one that cannot be placed; ``RlsimError`` where an extra is missing.
    """
    if name not in NAMES:
        raise unknown("--live", name, NAMES)
    module, _, kind = NAMES[name].partition(":")
    make = getattr(import_module(module), kind)
    if name in PLACED:
        placed: Backend = make(site)
        return placed
    if site is not HERE:
        raise ParameterError("--cluster", f"--live {name}", " or ".join(f"--live {placed}" for placed in PLACED))
    local: Backend = make()
    return local


class Fake:
    """Simulated engines behind the live protocol, in virtual time."""

    virtual = emulated = True
    label = "EMULATED, fake engines in virtual time; nothing is real but the executor"

    def refusals(self, plan: ResolvedScenario) -> list[ParameterError]:
        """Tools that read: the simulated engine can do all that is modelled, but it makes no tokens."""
        tool = plan.scenario.live.tool
        faults = [] if tool == "paced" else [ParameterError("live.tool", tool, "paced: fake engines make no tokens")]
        return [*faults, *contention_faults(plan)]

    def workload(self, plan: ResolvedScenario, replication: int) -> Workload:
        return plan.workload_of(replication)

    def crew(self, plan: ResolvedScenario, world: System, clock: LiveClock, work: Path) -> LiveComponents:
        return fake_components(world, clock)

    def facts(self) -> dict[str, Any]:
        return {}
