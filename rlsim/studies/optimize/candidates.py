"""Points of a space as runs: which can be made at all, and what they cost an hour before they are simulated."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlsim.core.errors import ScenarioError
from rlsim.costs.memory import GIB
from rlsim.resolve import ResolvedScenario
from rlsim.resolve.hardware import TRAINER_STATE_BYTES_PER_PARAMETER
from rlsim.resolve.scenario import gpus_used, price
from rlsim.scenario.search import Limits
from rlsim.scenario.variation import Choice
from rlsim.studies.optimize.space import SPLIT, GridPoint, Space
from rlsim.studies.sweep import Variant, variant

OFFLOADED_STATE_BYTES_PER_PARAMETER = 4.0
"""bf16 weights and gradients, the rest of the optimizer's state in host memory."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point that can be simulated, in one case."""

    point: GridPoint
    variant: Variant
    gpus: int
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class Infeasible:
    """A point that cannot be chosen."""

    point: GridPoint
    kind: str
    """What it fails for: memory, a limit by name, or the key that is refused."""
    text: str


@dataclass(frozen=True, slots=True)
class InputState:
    """Inputs that differ from the scenario's while a choice is judged."""

    name: str = ""
    settings: Choice = field(default_factory=dict)


NOMINAL = InputState()


class Candidates:
    """The points of a space, resolved once in each case; it counts those that are infeasible."""

    def __init__(self, space: Space, limits: Limits) -> None:
        self.space, self.limits = space, limits
        self._known: dict[tuple[str, GridPoint], Candidate | Infeasible] = {}

    def resolve(self, point: GridPoint, state: InputState = NOMINAL) -> Candidate | Infeasible:
        """What a point is in a case."""
        key = state.name, point
        if key not in self._known:
            self._known[key] = self._resolved(point, state)
        return self._known[key]

    def exclude(self, point: GridPoint, state: InputState, kind: str, text: str) -> None:
        """A simulated point turned out to break a limit, or did not end."""
        self._known[state.name, point] = Infeasible(point, kind, text)

    def infeasible(self, state: InputState = NOMINAL) -> dict[str, tuple[int, str]]:
        """How many points were excluded in a case, and the first one's words, by what they fail for."""
        excluded = [
            infeasible
            for (name, _), infeasible in self._known.items()
            if name == state.name and isinstance(infeasible, Infeasible)
        ]
        counts = Counter(infeasible.kind for infeasible in excluded)
        return {
            kind: (count, next(infeasible.text for infeasible in excluded if infeasible.kind == kind))
            for kind, count in counts.most_common()
        }

    def _resolved(self, point: GridPoint, state: InputState) -> Candidate | Infeasible:
        choice = self.space.choice(point)
        try:
            resolved = variant(self.space.document, {**choice, **state.settings})
        except ScenarioError as error:
            return Infeasible(point, _kind(error.faults[0], choice), error.faults[0])
        if resolved.resolved.colocated and "+" in self.space.texts(point).get(SPLIT, ""):
            return Infeasible(point, "split of shared GPUs", "this policy shares all GPUs: a split with shared: true")
        gpus, usd_per_hour = gpus_used(resolved.resolved), gpus_used(resolved.resolved) * price(resolved.resolved)[0]
        named = Variant(self.space.texts(point), resolved.scenario, resolved.resolved)
        for kind, text in _broken(self.limits, gpus, usd_per_hour, resolved.resolved):
            return Infeasible(point, kind, text)
        return Candidate(point, named, gpus, usd_per_hour)


def _kind(fault: str, choice: Mapping[str, object]) -> str:
    """The key that a fault names, without the place where it was written."""
    if "gpu_memory_utilization: found" in fault:
        return "engine memory"
    before, _, rest = fault.partition("; allowed: ")
    key = re.split(r": (?:found|unknown key|missing|unknown arm)\b", before)[0].rsplit(": ", 1)[-1]
    if not rest:
        return "refused"
    if key.startswith("search.axes."):
        key = next((name for name in choice if key.removeprefix("search.axes.").startswith(name)), key)
    return f"refused: {key}"


def _broken(limits: Limits, gpus: int, usd_per_hour: float, plan: ResolvedScenario) -> list[tuple[str, str]]:
    """The limits that a point breaks before it runs."""
    broken = []
    if limits.max_gpus is not None and gpus > limits.max_gpus:
        broken.append(("max_gpus", f"{gpus} GPUs in use; allowed: {limits.max_gpus}"))
    if limits.max_usd_per_hour is not None and usd_per_hour > limits.max_usd_per_hour:
        broken.append(("max_usd_per_hour", f"{usd_per_hour:.2f} USD an hour; allowed: {limits.max_usd_per_hour:g}"))
    if limits.target_success is not None and plan.learning is None:
        broken.append(("target_success", "no learning section: nothing says what batches are worth"))
    short = _trainer_shortage(plan)
    if short:
        broken.append(("trainer memory", short))
    return broken


def _trainer_shortage(plan: ResolvedScenario) -> str:
    """Why the trainer's state does not fit, at its least: sharded over all its GPUs, activations not counted."""
    trainer = plan.scenario.trainer
    each = OFFLOADED_STATE_BYTES_PER_PARAMETER if trainer.optimizer_offload else TRAINER_STATE_BYTES_PER_PARAMETER
    models = 2 if trainer.critic else 1
    needed = models * each * plan.architecture.parameters() / trainer.gpus
    if needed <= plan.device.memory_bytes:
        return ""
    return (
        f"{trainer.gpus} trainer GPUs hold at least {needed / GIB:.0f} GiB of state each; "
        f"{plan.device.name} has {plan.device.memory_bytes / GIB:.0f} GiB"
    )
