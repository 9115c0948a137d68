"""Placement: which GPUs generate and which train.

Both in turn on the same GPUs, or each on its own, for the whole run. Elastic placements share some replicas: the
trainer's GPUs generate while the trainer waits (ROLL's agentic rollout, verl's hybrid switching and dynamic
schedule), and the part decides when they change sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.checks import at_least
from rlsim.core.errors import ParameterError
from rlsim.core.ticks import Ticks, to_seconds
from rlsim.core.view import RunSizes, View
from rlsim.policies.registry import part


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


def _needs_lent(shape: RunSizes, use: str) -> None:
    if not shape.lent_replicas:
        allowed = (
            "disaggregated, or rollout.gpus + trainer.gpus above cluster.gpus: no replica is on the trainer's GPUs"
        )
        raise ParameterError("use", use, allowed)


@part("placement", "lend-while-idle")
@dataclass(frozen=True, slots=True)
class LendWhileIdle:
    """The trainer's GPUs generate whenever the trainer has no full batch (ROLL agentic ``partial_gpu_mode``)."""

    shared: ClassVar[bool] = False
    looks_first: ClassVar[bool] = False
    spreads: ClassVar[bool] = False

    def start(self, shape: RunSizes) -> LendWhileIdle:
        """Refuse a cluster without such replicas."""
        _needs_lent(shape, "lend-while-idle")
        return self

    def lends(self, view: View) -> bool:
        """Unless a batch is there."""
        return len(view.ready) < view.shape.prompts_per_step

    def recalls(self, view: View) -> bool:
        """Once a batch is there."""
        return len(view.ready) >= view.shape.prompts_per_step


class Waits:
    """What the trainer has waited for mini-batches: in the step under way, and in all before it."""

    def __init__(self, mini_batch: int) -> None:
        self._mini_batch = mini_batch
        self._taken, self._missing = -1, 0
        self._since: Ticks = 0
        self._until: Ticks = 0
        self._step_ticks: Ticks = 0
        self._step_groups = 0
        self._ticks: Ticks = 0
        self._groups = 0

    def look(self, view: View, anew: bool) -> None:
        """The trainer has nothing to train on; a wait begins with each mini-batch that it needs, and ``anew``."""
        taken = view.left_groups - view.dropped_groups - len(view.ready)
        if anew or taken != self._taken:
            self._close()
            self._taken, self._since = taken, view.now
            self._missing = max(0, self._mini_batch - len(view.ready))
        self._until = view.now

    def _close(self) -> None:
        self._step_ticks += self._until - self._since
        self._step_groups += self._missing
        self._since, self._missing = self._until, 0

    def end_step(self) -> float:
        """Seconds of the step that has ended."""
        self._close()
        ticks, groups = self._step_ticks, self._step_groups
        self._step_ticks = self._step_groups = 0
        if ticks and groups:
            self._ticks += ticks
            self._groups += groups
        return to_seconds(ticks)

    @property
    def seconds_per_group(self) -> float | None:
        """Of all steps so far, by what was missing when a wait began; None before the first."""
        return to_seconds(self._ticks) / self._groups if self._groups else None


class Switching:
    """verl V1: the share of a batch up to which the GPUs help, and how steps went."""

    shared: ClassVar[bool] = False
    looks_first: ClassVar[bool] = True
    spreads: ClassVar[bool] = True

    def __init__(self, spec: HybridSwitching, shape: RunSizes) -> None:
        self._spec, self._ratio = spec, spec.switch_threshold_ratio
        self._mini_batch = max(1, shape.prompts_per_step // spec.mini_batches)
        self._saved_share = len(shape.lent_replicas) / shape.replicas
        self._waits = Waits(self._mini_batch)
        self._away, self._step = False, -1
        self._idle = self._calm = 0

    def lends(self, view: View) -> bool:
        """Once a step, at its end: when what the help saves exceeds what switching has cost."""
        if view.steps_done == self._step:
            self._waits.look(view, self._away)
            self._away = False
            return False
        waited = self._waits.end_step()
        if self._step >= 0:
            # Each idle step from the second in a row on raises the share, each calm one lowers it.
            spec, idle = self._spec, waited > self._spec.idle_seconds
            self._idle, self._calm = (self._idle + 1, 0) if idle else (0, self._calm + 1)
            if self._idle >= spec.release_steps:
                self._ratio = min(1.0, self._ratio + spec.raise_by)
            elif self._calm >= spec.release_steps:
                self._ratio = max(1 / spec.mini_batches, self._ratio - spec.lower_by)
        self._step, self._away = view.steps_done, self._pays(view)
        if not self._away:
            self._waits.look(view, True)
        return self._away

    def recalls(self, view: View) -> bool:
        """Once the share is there."""
        return len(view.ready) >= self._threshold(view)

    def _pays(self, view: View) -> bool:
        """Whether to help; to begin with it does, as long as nobody knows better."""
        remaining = self._threshold(view) - len(view.ready)
        seconds = self._waits.seconds_per_group
        if remaining <= 0 or seconds is None or not view.switch_ticks:
            return remaining > 0
        return remaining * seconds * self._saved_share > switch_seconds(view, self._spec.window, 0.0)

    def _threshold(self, view: View) -> int:
        size = view.shape.prompts_per_step
        return min(size, max(self._mini_batch, round(self._ratio * size)))


@part("placement", "hybrid-switching")
@dataclass(frozen=True, slots=True)
class HybridSwitching:
    """The trainer's GPUs generate until a share of the batch is complete, if that saves more than switching costs.

    verl V1 ``separate_async`` with ``hybrid_rollout.enable_switch`` (``trainer_separate_async.py``): decided once a
    step, at its end and before anything is trained on. Threshold = clamp(round(ratio x B), mini-batch, B); switch iff
    remaining x seconds a missing group x (1 - standalone / all replicas) > mean cost of the last ``window`` switches.
    What is under way is dealt anew over all replicas, as verl clears the ties of its samples to servers. The ratio
    rises with every idle step from the ``release_steps``-th in a row on and falls so with calm ones; a step is idle in
    which the trainer waited longer than ``idle_seconds`` for mini-batches, GPUs lent not counted.
    """

    switch_threshold_ratio: float = 0.4
    mini_batches: int = 4
    """Of a step (``parameter_sync_step``): the least to help for is one."""
    raise_by: float = 0.05
    lower_by: float = 0.03
    release_steps: int = 2
    """Idle or calm steps in a row before the ratio changes."""
    window: int = 3
    """Switches whose cost is averaged."""
    idle_seconds: float = 2.0
    """The interval at which verl looks at its buffer."""

    def start(self, shape: RunSizes) -> Switching:
        """Refuse a cluster without such replicas and ratios outside [0, 1]."""
        _needs_lent(shape, "hybrid-switching")
        _ratio("switch_threshold_ratio", self.switch_threshold_ratio)
        at_least("mini_batches", self.mini_batches, 1)
        at_least("raise_by", self.raise_by, 0)
        at_least("lower_by", self.lower_by, 0)
        at_least("release_steps", self.release_steps, 1)
        at_least("window", self.window, 1)
        at_least("idle_seconds", self.idle_seconds, 0)
        return Switching(self, shape)


class Schedule:
    """verl's dynamic schedule: how much of a step is to be buffered, and what the trainer still waited for."""

    shared: ClassVar[bool] = False
    looks_first: ClassVar[bool] = False
    spreads: ClassVar[bool] = False

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
        if self._waits_from is not None:  # Groups that came while the trainer waited on its own GPUs.
            self._waited_groups += view.left_groups - self._waits_from
        self._waits_from = None if self._away else view.left_groups
        return self._away

    def recalls(self, view: View) -> bool:
        """Once enough is buffered."""
        return len(view.ready) >= self._threshold(view)

    def _threshold(self, view: View) -> int:
        size = view.shape.prompts_per_step
        return max(1, min(size, round(self._ratio * size)))

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


@part("placement", "dynamic-schedule")
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

    def start(self, shape: RunSizes) -> Schedule:
        """Refuse a cluster without such replicas and ratios outside [0, 1]."""
        _needs_lent(shape, "dynamic-schedule")
        _ratio("deactivate_ratio", self.deactivate_ratio)
        at_least("before_data_switch_seconds", self.before_data_switch_seconds, 0)
        at_least("before_data_seconds", self.before_data_seconds, 0)
        return Schedule(self)


def _ratio(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ParameterError(name, value, "a number from 0 to 1")


@part("placement", "colocated")
@dataclass(frozen=True, slots=True)
class Colocated:
    """Rollout and training take turns on the same GPUs; the engines sleep while the trainer works."""

    shared: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> Colocated:
        """Nothing to check."""
        return self


@part("placement", "disaggregated")
@dataclass(frozen=True, slots=True)
class Disaggregated:
    """Rollout and training each have GPUs of their own."""

    shared: ClassVar[bool] = False

    def start(self, shape: RunSizes) -> Disaggregated:
        """Nothing to check."""
        return self
