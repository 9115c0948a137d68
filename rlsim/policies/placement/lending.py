"""Replicas on the trainer's GPUs that generate while the trainer waits, and when they change sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.errors import ParameterError
from rlsim.core.ticks import Ticks, to_seconds
from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least


class Pace:
    """Seconds a group takes to come while the trainer's GPUs do not help, since they came back last."""

    def __init__(self, before_data_seconds: float) -> None:
        self._seconds = before_data_seconds
        self._since: Ticks = 0
        self._had = 0

    def begin(self, view: View) -> None:
        """The GPUs are the trainer's again."""
        self._since, self._had = view.now, view.left_groups

    def seconds_per_group(self, view: View) -> float:
        """Measured since then; what was measured before where nothing has come yet."""
        came = view.left_groups - self._had
        if came > 0:
            self._seconds = to_seconds(view.now - self._since) / came
        return self._seconds


def switch_seconds(view: View, cycles: int, before_data_seconds: float) -> float:
    """Mean of the last ``cycles`` cycles of lending and taking back."""
    known = view.switch_ticks[-2 * cycles :]
    return to_seconds(sum(known)) / (len(known) / 2) if known else before_data_seconds


def _needs_lent(shape: Shape, use: str) -> None:
    if not shape.lent_replicas:
        allowed = (
            "disaggregated, or rollout.gpus + trainer.gpus above cluster.gpus: no replica is on the trainer's GPUs"
        )
        raise ParameterError("use", use, allowed)


@dataclass(frozen=True, slots=True)
class LendWhileIdle:
    """The trainer's GPUs generate whenever the trainer has no full batch (ROLL agentic ``partial_gpu_mode``)."""

    shared: ClassVar[bool] = False

    def start(self, shape: Shape) -> LendWhileIdle:
        """Refuse a cluster without such replicas."""
        _needs_lent(shape, "lend-while-idle")
        return self

    def lends(self, view: View) -> bool:
        """Unless a batch is there."""
        return len(view.ready) < view.shape.prompts_per_step

    def recalls(self, view: View) -> bool:
        """Once a batch is there."""
        return len(view.ready) >= view.shape.prompts_per_step


class Switching:
    """verl V1: the share of a batch up to which the GPUs help, and how steps went."""

    shared: ClassVar[bool] = False

    def __init__(self, spec: HybridSwitching, shape: Shape) -> None:
        self._spec, self._ratio = spec, spec.switch_threshold_ratio
        self._least = spec.mini_batch_groups or 1
        standalone = shape.replicas - len(shape.lent_replicas)
        self._saved_share = len(shape.lent_replicas) / (len(shape.lent_replicas) + standalone)
        self._pace = Pace(spec.before_data_seconds)
        self._away, self._waited, self._step = False, False, 0
        self._idle = self._calm = 0

    def lends(self, view: View) -> bool:
        """When what the help saves exceeds what switching has cost."""
        self._begin_step(view)
        if self._away:
            self._away = False
            self._pace.begin(view)
        remaining = self._threshold(view) - len(view.ready)
        saved = remaining * self._pace.seconds_per_group(view) * self._saved_share
        self._away = remaining > 0 and saved > switch_seconds(view, self._spec.window, 0.0)
        self._waited = self._waited or not self._away
        return self._away

    def recalls(self, view: View) -> bool:
        """Once the share is there."""
        return len(view.ready) >= self._threshold(view)

    def _threshold(self, view: View) -> int:
        size = view.shape.prompts_per_step
        return min(size, max(self._least, round(self._ratio * size)))

    def _begin_step(self, view: View) -> None:
        """Two steps in a row in which the trainer waited raise the share, two in which it did not lower it."""
        if view.steps_begun == self._step:
            return
        self._idle, self._calm = (self._idle + 1, 0) if self._waited else (0, self._calm + 1)
        self._step, self._waited = view.steps_begun, False
        if self._idle == 2:
            self._ratio, self._idle = min(1.0, self._ratio + self._spec.raise_by), 0
        if self._calm == 2:
            self._ratio, self._calm = max(0.0, self._ratio - self._spec.lower_by), 0


@dataclass(frozen=True, slots=True)
class HybridSwitching:
    """The trainer's GPUs generate until a share of the batch is complete, if that saves more than switching costs.

    verl V1 ``separate_async`` with ``hybrid_rollout``: threshold = clamp(round(ratio x B), mini-batch, B); switch iff
    remaining x seconds a group x (1 - standalone / all replicas) > mean cost of the last ``window`` switches. The
    ratio rises after two idle steps and falls after two calm ones; a step is idle here in which the trainer waited
    without lending its GPUs.
    """

    switch_threshold_ratio: float = 0.4
    mini_batch_groups: int | None = None
    """Least number of groups to help for; None for 1."""
    raise_by: float = 0.05
    lower_by: float = 0.03
    window: int = 3
    """Switches whose cost is averaged; before the first it counts as 0."""
    before_data_seconds: float = 1000.0
    """Seconds a group is thought to take before one has come."""

    def start(self, shape: Shape) -> Switching:
        """Refuse a cluster without such replicas and ratios outside [0, 1]."""
        _needs_lent(shape, "hybrid-switching")
        _ratio("switch_threshold_ratio", self.switch_threshold_ratio)
        at_least("raise_by", self.raise_by, 0)
        at_least("lower_by", self.lower_by, 0)
        at_least("window", self.window, 1)
        at_least("mini_batch_groups", self.mini_batch_groups or 1, 1)
        at_least("before_data_seconds", self.before_data_seconds, 0)
        return Switching(self, shape)


class Schedule:
    """verl's dynamic schedule: how much of a step is to be buffered, and what the trainer still waited for."""

    shared: ClassVar[bool] = False

    def __init__(self, spec: DynamicSchedule) -> None:
        self._spec, self._ratio = spec, spec.deactivate_ratio
        self._pace = Pace(spec.before_data_seconds)
        self._away, self._step = False, 0
        self._waits_from: int | None = None
        self._waited_groups = 0

    def lends(self, view: View) -> bool:
        """When the trainer would wait longer for what is missing than switching takes."""
        self._begin_step(view)
        if self._away:
            self._away = False
            self._pace.begin(view)
        gap = self._threshold(view) - len(view.ready)
        wait_seconds = gap * self._pace.seconds_per_group(view)
        self._away = gap > 0 and wait_seconds > switch_seconds(view, 3, self._spec.before_data_switch_seconds)
        self._count_wait(view)
        return self._away

    def recalls(self, view: View) -> bool:
        """Once enough is buffered."""
        return len(view.ready) >= self._threshold(view)

    def _threshold(self, view: View) -> int:
        size = view.shape.prompts_per_step
        return max(1, min(size, round(self._ratio * size)))

    def _count_wait(self, view: View) -> None:
        """Groups that came while the trainer waited on its own GPUs."""
        if self._waits_from is not None:
            self._waited_groups += view.left_groups - self._waits_from
        self._waits_from = None if self._away else view.left_groups

    def _begin_step(self, view: View) -> None:
        if view.steps_begun == self._step:
            return
        size = view.shape.prompts_per_step
        if self._spec.adapts and self._waited_groups:
            self._ratio += min(0.1, max(0.02, self._waited_groups / size))
        elif self._spec.adapts:
            self._ratio -= 0.02
        self._ratio = min(1.0, max(0.0, self._ratio))
        self._step, self._waited_groups, self._waits_from = view.steps_begun, 0, None


@dataclass(frozen=True, slots=True)
class DynamicSchedule:
    """The trainer's GPUs generate until ``deactivate_ratio`` of a step is buffered, if the trainer would wait longer.

    verl fully asynchronous, ``dynamic_schedule_policy``: activate iff gap > 0 and gap x seconds a group > mean cost of
    the last three cycles of switching. After a step the ratio rises by what the trainer waited for, 0.02 to 0.1 of a
    step, or falls by 0.02 (docs/advance/dynamic_schedule.md; ``fixed_ratio`` leaves it alone).
    """

    deactivate_ratio: float = 0.3
    adapts: bool = True
    before_data_switch_seconds: float = 10.0
    """Cost of a cycle of switching before one was measured."""
    before_data_seconds: float = 1000.0
    """Seconds a group is thought to take before one has come."""

    def start(self, shape: Shape) -> Schedule:
        """Refuse a cluster without such replicas and ratios outside [0, 1]."""
        _needs_lent(shape, "dynamic-schedule")
        _ratio("deactivate_ratio", self.deactivate_ratio)
        at_least("before_data_switch_seconds", self.before_data_switch_seconds, 0)
        at_least("before_data_seconds", self.before_data_seconds, 0)
        return Schedule(self)


def _ratio(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ParameterError(name, value, "a number from 0 to 1")
