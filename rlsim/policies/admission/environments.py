"""Environments that run one episode each and take the next when it ends: ROLL's agentic rollout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Group, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


class Running:
    """The environments of one run."""

    unit: ClassVar[Unit] = "sample"

    def __init__(self, environments: int, ahead: int) -> None:
        self.ahead, self._environments = ahead, environments

    def room(self, view: View) -> tuple[int, str]:
        """Free environments, for the group that is being begun or the next one that may be."""
        free = self._environments - view.running_samples
        waiting = _unbegun(view)
        if waiting:
            return min(free, waiting), "concurrency"
        groups = (self.ahead + view.version + 1) * view.shape.prompts_per_step
        if view.started_groups - view.dropped_groups >= groups:
            return 0, "staleness"
        return min(free, view.shape.group_size), "concurrency"


def _unbegun(view: View) -> int:
    """Members of the newest group that have not entered."""
    newest: Group | None = next(reversed(view.open.values()), None)
    return sum(sample.state == "new" for sample in newest.members) if newest else 0


@dataclass(frozen=True, slots=True)
class Environments:
    """``num_env_groups x (group_size + group_size_redundancy)`` environments, a sample in each.

    At most ``(async_generation_ratio + version + 1) x B`` groups are begun, less those dropped (ROLL
    ``rollout_scheduler.py``, ``GroupQueue``).
    """

    async_generation_ratio: int = 0
    """Steps that generation may run ahead."""
    num_env_groups: int | None = None
    """None for a group of environments for each prompt of a step."""
    group_size_redundancy: int = 0
    """Environments to spare in a group."""

    def start(self, shape: Shape) -> Running:
        """Refuse negative numbers and no environments."""
        at_least("async_generation_ratio", self.async_generation_ratio, 0)
        at_least("group_size_redundancy", self.group_size_redundancy, 0)
        groups = shape.prompts_per_step if self.num_env_groups is None else self.num_env_groups
        at_least("num_env_groups", groups, 1)
        return Running(groups * (shape.group_size + self.group_size_redundancy), self.async_generation_ratio)
