"""Groups of earlier steps before those of the current one: ROLL's replay buffer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Batch


class Steps:
    """Looks again only when a group has been completed, begun or dropped."""

    def __init__(self, age: int, old_groups: int | None) -> None:
        self._age, self.old_groups = age, old_groups
        self._seen: tuple[int, ...] = ()

    def select(self, view: View) -> Batch | None:
        """A batch, oldest step first; it waits for an older step while that has groups under way and is short."""
        seen = (view.version, view.steps_begun, view.started_groups, view.dropped_groups, len(view.ready))
        if len(view.ready) < view.shape.prompts_per_step or seen == self._seen:
            return None
        self._seen = seen
        chosen = self._chosen(view)
        return Batch(tuple(chosen)) if len(chosen) == view.shape.prompts_per_step else None

    def _chosen(self, view: View) -> list[int]:
        by_step: dict[int, list[int]] = {}
        for number, group in view.ready.items():
            by_step.setdefault(group.version, []).append(number)
        under_way = {group.version for group in view.open.values()}
        chosen: list[int] = []
        for step in sorted(by_step.keys() | under_way):
            wanted = self._wanted(view, step, len(chosen))
            complete = by_step.get(step, [])
            if len(complete) < wanted and step in under_way:
                return []
            chosen += complete[:wanted]
        return chosen

    def _wanted(self, view: View, step: int, chosen: int) -> int:
        rest = view.shape.prompts_per_step - chosen
        if self.old_groups is None or step != view.version - self._age:
            return rest
        return min(self.old_groups, rest)


@dataclass(frozen=True, slots=True)
class OldestStepFirst:
    """Complete groups by the step in which they began, first finished within a step (ROLL ``get_batch``).

    Of the oldest step, ``ceil(ratio)`` ago, a fractional ratio takes only its fraction of the batch.
    """

    async_generation_ratio: float = 0.0

    def start(self, shape: Shape) -> Steps:
        """Refuse a negative ratio."""
        ratio = self.async_generation_ratio
        at_least("async_generation_ratio", ratio, 0)
        samples = int(shape.prompts_per_step * shape.group_size * (ratio % 1))
        return Steps(math.ceil(ratio), math.ceil(samples / shape.group_size) if ratio % 1 else None)
