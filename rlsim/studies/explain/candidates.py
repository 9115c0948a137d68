"""Changes to a scenario that could help, those that cannot be tried and why, and what a bottleneck calls for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rlsim.core.errors import ParameterError, RlsimError
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.override import override
from rlsim.scenario.schema import Scenario
from rlsim.studies.explain.changes import FAMILIES, Change

CALLED_FOR: dict[str, tuple[str, ...]] = {
    "Concurrency": ("work in flight", "slots"),
    "Generation": ("split", "parallelism", "slots", "router", "step size", "work in flight"),
    "KV": ("memory", "slots", "work in flight", "parallelism", "router", "KV of waiting calls"),
    "Overhead": ("overhead", "overlap", "placement"),
    "Reward": ("reward workers", "overlap", "placement", "staleness"),
    "Staleness": ("staleness", "split", "publication"),
    "Switch": ("placement", "overlap", "overhead"),
    "Sync": ("publication", "weight sync", "updates in flight"),
    "Tail": ("overlap", "placement", "staleness", "work in flight", "router", "length cap"),
    "Tool": ("environments", "work in flight", "overlap", "KV of waiting calls"),
    "Trainer": ("split", "trainer", "placement"),
}
"""Families of changes by the cause that a verdict begins with."""


@dataclass(frozen=True, slots=True)
class NotTried:
    """A change, or a family of them, that was not simulated."""

    label: str
    reason: str


@dataclass(slots=True)
class Candidates:
    """Changes with the scenarios that they make, and those that were not tried."""

    tried: list[tuple[Change, Scenario]] = field(default_factory=list)
    not_tried: list[NotTried] = field(default_factory=list)


def candidates(resolved: ResolvedScenario) -> Candidates:
    """Every change of every family that this scenario takes, and with why those that it refuses or has already."""
    listed = Candidates()
    for family, changes_of in FAMILIES.items():
        changes = changes_of(resolved)
        if isinstance(changes, str):
            listed.not_tried.append(NotTried(family, changes))
            continue
        for change in changes:
            try:
                changed = changed_scenario(resolved.scenario, change.settings)
            except RlsimError as error:
                listed.not_tried.append(NotTried(change.label, _refusal(error)))
            else:
                if changed == resolved.scenario:
                    listed.not_tried.append(NotTried(change.label, "it is so already"))
                else:
                    listed.tried.append((replace(change, family=family), changed))
    return listed


def changed_scenario(scenario: Scenario, settings: Mapping[str, object]) -> Scenario:
    """The scenario with values by key path; ``RlsimError`` where that is refused."""
    changed = override(scenario, settings)
    resolve(changed)
    return changed


def families_called_for(verdict: str) -> tuple[str, ...]:
    """Families of changes that a verdict calls for, the likeliest first."""
    return CALLED_FOR.get(verdict.partition(":")[0].removesuffix("-bound"), ())


def _refusal(error: RlsimError) -> str:
    """The first fault in one line."""
    if isinstance(error, ParameterError):
        return f"refused: {ParameterError(error.path, error.found, error.allowed)}"
    return f"refused: {str(error).splitlines()[0]}"
