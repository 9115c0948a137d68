"""Batching: when the trainer starts, and on which complete groups.

The whole batch at once, of whatever is complete (most systems) or of exactly the groups generated for this step
(NeMo-RL); several local batches a step, each with optimizer updates of its own (verl's fully asynchronous and V1
trainers); micro-batches as groups complete, with one update at the end (StreamRL, verl's stream mode); or the groups
of earlier steps before those of the current one (ROLL's replay buffer).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal

from rlsim.core.checks import at_least, divides
from rlsim.core.errors import ParameterError
from rlsim.core.view import RunSizes, View
from rlsim.policies.protocols import Batch
from rlsim.policies.registry import part


@part("batching", "complete-groups")
@dataclass(frozen=True, slots=True)
class CompleteGroups:
    """Start when ``prompts_per_step`` groups are complete, on the first finished or the oldest admitted ones."""

    order: Literal["first_finished", "oldest"] = "first_finished"
    updates: int | None = None
    """Optimizer updates made on a batch; None for the trainer's ``updates_per_step``."""
    poll_seconds: float = 0.0
    """Interval at which the trainer looks for complete groups; 0: it is told."""

    def start(self, shape: RunSizes) -> CompleteGroups:
        """Refuse an unknown order."""
        if self.order not in ("first_finished", "oldest"):
            raise ParameterError("order", self.order, "first_finished, oldest")
        at_least("poll_seconds", self.poll_seconds, 0)
        samples = shape.prompts_per_step * shape.group_size
        if self.updates is not None and not 1 <= self.updates <= samples:
            raise ParameterError("updates", self.updates, f"1 to {samples}, the samples of a step")
        return self

    def select(self, view: View) -> Batch | None:
        """The batch in order of admission, once there are enough groups."""
        size = view.shape.prompts_per_step
        if len(view.ready) < size:
            return None
        if self.order == "oldest":
            return Batch(tuple(sorted(view.ready)[:size]), updates=self.updates)
        return Batch(tuple(sorted(islice(view.ready, size))), updates=self.updates)


@part("batching", "exact-target")
@dataclass(frozen=True, slots=True)
class ExactTarget:
    """Step t trains on the groups with target t and waits for the last of them (NeMo-RL)."""

    waits_for_target: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> ExactTarget:
        """Nothing to check."""
        return self

    def select(self, view: View) -> Batch | None:
        """The groups of the step that begins next, once all are complete."""
        size, step = view.shape.prompts_per_step, view.steps_begun
        if len(view.ready) < size:
            return None
        wanted = tuple(sorted(number for number, group in view.ready.items() if group.target == step))
        return Batch(wanted) if len(wanted) == size else None


class Local:
    """How many local batches of the step under way have been taken."""

    def __init__(self, spec: LocalBatches, groups: int) -> None:
        self.spec, self._groups, self._taken = spec, groups, 0
        self.poll_seconds = spec.poll_seconds
        self.batches_per_step, self.updates_per_batch = spec.batches_per_step, spec.mini_batches
        waits = spec.max_off_policy_strategy == "wait"
        self.waits_from_age = spec.max_off_policy_threshold if waits else None

    def select(self, view: View) -> Batch | None:
        """The next local batch, once there are enough groups and none that it has to wait for."""
        if len(view.ready) < self._groups or self._waits(view):
            return None
        self._taken = (self._taken + 1) % self.spec.batches_per_step
        return Batch(self._chosen(view), not self._taken, self.spec.mini_batches)

    def _waits(self, view: View) -> bool:
        """Whether a group under way is as old as the threshold; groups are open in order of version."""
        if self.spec.max_off_policy_strategy == "drop" or not view.open:
            return False
        oldest = next(iter(view.open.values())).version
        return view.version - oldest + 1 >= self.spec.max_off_policy_threshold

    def _chosen(self, view: View) -> tuple[int, ...]:
        if self.spec.order == "first_finished":
            return tuple(islice(view.ready, self._groups))
        return tuple(sorted(view.ready, key=lambda group: view.ready[group].version)[: self._groups])


@part("batching", "local-batches")
@dataclass(frozen=True, slots=True)
class LocalBatches:
    """A step is ``batches_per_step`` batches of ``mini_batches x mini_batch_groups`` groups.

    verl's fully asynchronous trainer takes ``required_samples`` prompts from a FIFO queue and makes as many updates
    as they hold mini-batches; its V1 trainer takes a mini-batch, the oldest version first.
    """

    batches_per_step: int = 1
    mini_batches: int | None = 1
    """Optimizer updates on a local batch; None for those of a step, which is then one batch."""
    mini_batch_groups: int | None = None
    """None for an equal share of the step."""
    order: Literal["first_finished", "oldest_version"] = "first_finished"
    max_off_policy_threshold: int = 1
    """With ``wait``: age in versions, 1 for those served, at which a group under way is waited for."""
    max_off_policy_strategy: Literal["drop", "wait"] = "drop"
    """Whether ``wait`` holds a batch back until groups under way that reached the threshold are complete."""
    poll_seconds: float = 0.0
    """Interval at which the trainer looks for complete groups; 0: it is told."""

    def start(self, shape: RunSizes) -> Local:
        """Refuse batches that do not add up to the step."""
        at_least("batches_per_step", self.batches_per_step, 1)
        at_least("mini_batches", 1 if self.mini_batches is None else self.mini_batches, 1)
        at_least("poll_seconds", self.poll_seconds, 0)
        at_least("max_off_policy_threshold", self.max_off_policy_threshold, 1)
        if self.mini_batches is None and self.batches_per_step > 1:
            raise ParameterError("mini_batches", None, "a number where a step has several batches")
        groups, step_groups = self.mini_batch_groups, shape.prompts_per_step
        divides("batches_per_step", self.batches_per_step, step_groups)
        divides("mini_batches", self.mini_batches or 1, step_groups // self.batches_per_step)
        updates = self.batches_per_step * (self.mini_batches or 1)
        if groups is not None and groups * updates != step_groups:
            allowed = f"{step_groups // updates}: {updates} mini-batches make prompts_per_step = {step_groups}"
            raise ParameterError("mini_batch_groups", groups, allowed)
        return Local(self, step_groups // self.batches_per_step)


class Stream:
    """How far the batch under way has come."""

    part_name: ClassVar[str] = "micro-batch-stream"
    streams: ClassVar[bool] = True

    def __init__(self, groups: int, takes_all: bool) -> None:
        self._groups, self._takes_all, self._taken = groups, takes_all, 0

    def select(self, view: View) -> Batch | None:
        """The next micro-batch, once its groups are complete; a smaller one where the batch ends."""
        left = view.shape.prompts_per_step - self._taken
        size = min(self._groups, left)
        if len(view.ready) < size:
            return None
        if self._takes_all:
            size = min(len(view.ready), left)
        self._taken = 0 if size == left else self._taken + size
        return Batch(tuple(islice(view.ready, size)), last=size == left)


@part("batching", "micro-batch-stream")
@dataclass(frozen=True, slots=True)
class MicroBatchStream:
    """Forward and backward on every ``min_groups`` complete groups; gradients accumulate over the batch."""

    min_groups: int = 1
    takes_all: bool = False
    """Take everything that is complete, at least ``min_groups`` (StreamRL, arXiv 2504.15930)."""

    def start(self, shape: RunSizes) -> Stream:
        """Refuse more groups than a batch holds."""
        at_least("min_groups", self.min_groups, 1)
        if self.min_groups > shape.prompts_per_step:
            raise ParameterError("min_groups", self.min_groups, f"at most prompts_per_step = {shape.prompts_per_step}")
        return Stream(self.min_groups, self.takes_all)


class Steps:
    """Looks again only when a group has been completed, begun or dropped."""

    oldest_step_first: ClassVar[bool] = True

    def __init__(self, age: int, old_groups: int | None) -> None:
        self._age, self.old_groups = age, old_groups
        self._counts: tuple[int, ...] = ()

    def select(self, view: View) -> Batch | None:
        """A batch, oldest step first; it waits for an older step while that has groups under way and is short."""
        counts = (view.version, view.steps_begun, view.started_groups, view.dropped_groups, len(view.ready))
        if len(view.ready) < view.shape.prompts_per_step or counts == self._counts:
            return None
        self._counts = counts
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


@part("batching", "oldest-step-first")
@dataclass(frozen=True, slots=True)
class OldestStepFirst:
    """Complete groups by the step in which they began, first finished within a step (ROLL ``get_batch``).

    Of the oldest step, ``ceil(ratio)`` ago, a fractional ratio takes only its fraction of the batch.
    """

    async_generation_ratio: float = 0.0

    def start(self, shape: RunSizes) -> Steps:
        """Refuse a negative ratio."""
        ratio = self.async_generation_ratio
        at_least("async_generation_ratio", ratio, 0)
        samples = int(shape.prompts_per_step * shape.group_size * (ratio % 1))
        return Steps(math.ceil(ratio), math.ceil(samples / shape.group_size) if ratio % 1 else None)
