"""A budget of prompts for each weights version: verl's fully asynchronous rollouter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least, divides
from rlsim.policies.protocols import Unit


class Budget:
    """The counter of one run.

    verl resets its counter to what is in flight and queued whenever weights change and never lowers it in between,
    so that groups admitted stay below those trained on at that moment plus the budget. A prompt that has left the
    pending queue and waits for a place at that moment is in neither count and comes on top (verl
    ``fully_async_rollouter.py``). Dropped groups are taken off.
    """

    unit: ClassVar[Unit] = "group"

    def __init__(self, groups: int, places_per_replica: int) -> None:
        self.groups, self._per_replica = groups, places_per_replica
        self._version, self._limit = 0, groups

    def room(self, view: View) -> tuple[int, str]:
        """The tighter of budget and places in flight."""
        admitted = view.started_groups - view.dropped_groups
        places = min(view.loads.open_count * self._per_replica, self.groups) - view.open_groups
        if view.version != self._version:
            waiting = admitted < self._limit and places <= 0
            self._version = view.version
            self._limit = view.steps_done * view.shape.prompts_per_step + self.groups + waiting
        budget = self._limit - admitted
        return (budget, "staleness") if budget <= places else (places, "concurrency")


@dataclass(frozen=True, slots=True)
class PerVersionBudget:
    """``int(required * (1 + staleness_threshold) * trigger)`` groups a version, some of them in flight at once.

    ``required`` groups make one local batch and ``trigger`` local batches one step, so that required x trigger is
    ``prompts_per_step``. In flight: ``concurrent_samples_per_replica`` groups on each replica, at most the budget.
    """

    staleness_threshold: float = 0.1
    """Share of a step that may be generated ahead."""
    trigger_parameter_sync_step: int = 4
    """Local batches between publications."""
    concurrent_samples_per_replica: int = 16
    """Groups in flight on one replica."""

    def start(self, shape: Shape) -> Budget:
        """Refuse numbers that admit nothing or do not divide the step."""
        at_least("staleness_threshold", self.staleness_threshold, 0)
        at_least("concurrent_samples_per_replica", self.concurrent_samples_per_replica, 1)
        at_least("trigger_parameter_sync_step", self.trigger_parameter_sync_step, 1)
        trigger = self.trigger_parameter_sync_step
        divides("trigger_parameter_sync_step", trigger, shape.prompts_per_step)
        groups = int(shape.prompts_per_step // trigger * (self.staleness_threshold + 1) * trigger)
        return Budget(groups, self.concurrent_samples_per_replica)
