"""Calls ranked by the class of their prompt: tenants that pay for it go first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.ticks import Ticks, to_ticks
from rlsim.core.view import Sample, Shape, View
from rlsim.policies.bounds import at_least


@dataclass(frozen=True, slots=True)
class _Levels:
    level_ticks: Ticks
    shares_kv: ClassVar[bool] = False
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def priority(self, view: View, sample: Sample) -> int:
        level = view.shape.classes[sample.group.request_class].priority
        return level * self.level_ticks + view.now if self.level_ticks else level

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class ClassPriority:
    """By the ``priority`` of the prompt's class, the lowest first; in order of arrival within it.

    With ``ageing_seconds`` a call that has waited so long counts as one level higher, so that none starves.
    """

    ageing_seconds: float | None = None
    """Waiting that is worth one level; None for never, which lets low classes starve under load."""

    def start(self, shape: Shape) -> _Levels:
        """Refuse an ageing in no time."""
        if self.ageing_seconds is None:
            return _Levels(0)
        at_least("ageing_seconds", self.ageing_seconds, 1e-6)
        return _Levels(to_ticks(self.ageing_seconds))
