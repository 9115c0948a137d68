"""Fixed concurrency: so much is in flight at any time, whatever the version, and the age of samples is not bounded.

A pool of trajectories (CoPRIS), samples on every replica (PipelineRL), slots of completions (TRL), prompts replaced
when their results are collected (open-instruct), producers in front of a bounded buffer (slime, miles, Tinker), a
batch in generation and slots for those that wait (OpenRLHF), or a batch for each replica that has run empty
(Laminar).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.checks import at_least
from rlsim.core.errors import ParameterError
from rlsim.core.view import RunSizes, View
from rlsim.policies.protocols import Unit
from rlsim.policies.registry import part


@part("admission", "fixed-pool")
@dataclass(frozen=True, slots=True)
class FixedPool:
    """Keep ``partial_rollout_pool_size`` samples in flight, unfinished ones first."""

    partial_rollout_pool_size: int
    unit: ClassVar[Unit] = "sample"
    replaces_finished: ClassVar[bool] = True
    runs_ahead: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> FixedPool:
        """Refuse an empty pool."""
        at_least("partial_rollout_pool_size", self.partial_rollout_pool_size, 1)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """Free places in the pool."""
        return self.partial_rollout_pool_size - view.running_samples, "concurrency"


class ConcurrencyLimit:
    """Places in flight, without a bound on lag."""

    unit: ClassVar[Unit] = "sample"
    replaces_finished: ClassVar[bool] = True
    runs_ahead: ClassVar[bool] = True

    def __init__(self, slots: int) -> None:
        self._slots = slots

    def capacity(self, view: View) -> tuple[int, str]:
        """Free slots."""
        return self._slots - view.running_samples, "concurrency"


class LaggedConcurrencyLimit:
    """Places in flight, as long as the samples begun stay ``ahead_groups`` ahead at most.

    It counts samples, not groups: a group that waits half begun for a seat keeps its claim to one.
    """

    unit: ClassVar[Unit] = "sample"
    counts_begun_samples: ClassVar[bool] = True

    def __init__(self, slots: int, ahead_groups: int, groups_per_version: int, prompts_per_step: int) -> None:
        self._slots, self._begun = slots, 0
        self.ahead_groups, self.groups_per_version = ahead_groups, groups_per_version
        self.batches_per_version = groups_per_version // prompts_per_step
        self.runs_ahead = ahead_groups > 0 or groups_per_version > prompts_per_step

    def capacity(self, view: View) -> tuple[int, str]:
        """The tighter of slots and lag."""
        groups = self.ahead_groups + (view.version + 1) * self.groups_per_version + view.dropped_groups
        lag = groups * view.shape.group_size - self._begun
        slots = self._slots - view.running_samples
        self._begun += max(0, min(lag, slots))
        return (lag, "staleness") if lag <= slots else (slots, "concurrency")


@part("admission", "free-running")
@dataclass(frozen=True, slots=True)
class FreeRunning:
    """Keep ``llm_max_rollouts`` samples in flight per replica (PipelineRL, arXiv 2509.19128).

    ``max_lag_samples`` bounds the samples begun by those of the versions served, rounded up to whole groups as
    PipelineRL's ``actor.py`` does; None leaves staleness to chance.
    """

    llm_max_rollouts: int = 64
    max_lag_samples: int | None = None
    steps_per_version: int = 1
    """Training steps between publications: a version makes room for as many batches."""
    samples_per_version: int | None = None
    """Samples trained on between publications, rounded up to whole steps; None to count steps."""

    def start(self, shape: RunSizes) -> ConcurrencyLimit | LaggedConcurrencyLimit:
        """Refuse numbers that admit nothing."""
        at_least("llm_max_rollouts", self.llm_max_rollouts, 1)
        at_least("steps_per_version", self.steps_per_version, 1)
        slots = self.llm_max_rollouts * shape.replicas
        if self.max_lag_samples is None:
            return ConcurrencyLimit(slots)
        at_least("max_lag_samples", self.max_lag_samples, 0)
        ahead = -(-self.max_lag_samples // shape.group_size)
        return LaggedConcurrencyLimit(slots, ahead, self._steps(shape) * shape.prompts_per_step, shape.prompts_per_step)

    def _steps(self, shape: RunSizes) -> int:
        if self.samples_per_version is None:
            return self.steps_per_version
        at_least("samples_per_version", self.samples_per_version, 1)
        return -(-self.samples_per_version // (shape.prompts_per_step * shape.group_size))


@part("admission", "one-for-one")
@dataclass(frozen=True, slots=True)
class OneForOne:
    """``async_steps`` batches of prompts at the start, then one more for each result collected.

    Results are collected for at most ``async_steps`` batches that the trainer has not begun (open-instruct
    ``data_loader.py``: the preparation waits while ``training_step - last_consumed > async_steps``, counted from 0
    and -1). A result that is dropped is replaced.
    """

    async_steps: int = 8
    """Batches that generation and preparation may each be ahead."""
    unit: ClassVar[Unit] = "group"
    replaces_finished: ClassVar[bool] = True
    runs_ahead: ClassVar[bool] = True
    counts_unfinished: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> OneForOne:
        """Refuse a pool without prompts."""
        at_least("async_steps", self.async_steps, 1)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """Results collected and not yet replaced."""
        batch, kept = view.shape.prompts_per_step, view.started_groups - view.dropped_groups
        ahead = self.async_steps * batch
        collected = view.steps_begun * batch + min(len(view.ready), ahead)
        return ahead + collected - kept, "staleness" if len(view.ready) > ahead else "concurrency"


@part("admission", "engine-queue")
@dataclass(frozen=True, slots=True)
class EngineQueue:
    """Groups in flight and complete groups queued both stay below ``concurrency_per_engine`` times the engines.

    The batch that is being collected is not in the queue any more (slime ``fully_async_rollout.py``: a thread submits
    while both are below the product). No bound on staleness.
    """

    concurrency_per_engine: int = 512
    """slime's ``sglang_server_concurrency``."""
    unit: ClassVar[Unit] = "group"
    replaces_finished: ClassVar[bool] = True
    runs_ahead: ClassVar[bool] = True
    counts_unfinished: ClassVar[bool] = True
    stops_at_full_buffer: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> EngineQueue:
        """Refuse a queue without places."""
        at_least("concurrency_per_engine", self.concurrency_per_engine, 1)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """Free places in flight, unless the queue is full."""
        limit = self.concurrency_per_engine * view.shape.replicas
        if len(view.ready) - view.shape.prompts_per_step >= limit:
            return 0, "buffer"
        return limit - view.open_groups, "concurrency"


class Producers:
    """Places for groups or samples, and a bounded buffer."""

    replaces_finished: ClassVar[bool] = True
    runs_ahead: ClassVar[bool] = True

    def __init__(self, unit: Unit, places: int, buffer_groups: int | None) -> None:
        self.unit, self._places, self._buffer_groups = unit, places, buffer_groups
        self.counts_unfinished, self.stops_at_full_buffer = unit == "group", buffer_groups is not None

    def capacity(self, view: View) -> tuple[int, str]:
        """Free places, unless the buffer is full."""
        if self._buffer_groups is not None and len(view.ready) >= self._buffer_groups:
            return 0, "buffer"
        taken = view.open_groups if self.unit == "group" else view.running_samples
        return self._places - taken, "concurrency"


@part("admission", "bounded-buffer")
@dataclass(frozen=True, slots=True)
class BoundedBuffer:
    """Keep ``max_concurrent_samples`` in flight until the buffer holds ``capacity_factor`` batches of complete groups.

    By the group, a place is free when the last sibling has ended; by the sample, each sample that ends makes room for
    the next (miles ``--rollout-submission-granularity``). No bound on staleness.
    """

    max_concurrent_samples: int | None = None
    """None for one training batch."""
    granularity: Unit = "sample"
    """What is submitted: whole groups, or samples one by one."""
    capacity_factor: float | None = 2.0
    """Batches in the buffer at which producers wait; None for no limit."""

    def start(self, shape: RunSizes) -> Producers:
        """Refuse fewer places than one group needs, and a buffer smaller than a batch."""
        samples = self.max_concurrent_samples
        if samples is None:
            samples = shape.prompts_per_step * shape.group_size
        by_group = self.granularity == "group"
        at_least("max_concurrent_samples", samples, shape.group_size if by_group else 1)
        places = samples // shape.group_size if by_group else samples
        if self.capacity_factor is None:
            return Producers(self.granularity, places, None)
        at_least("capacity_factor", self.capacity_factor, 1)
        return Producers(self.granularity, places, int(self.capacity_factor * shape.prompts_per_step))


@part("admission", "queue-slots")
@dataclass(frozen=True, slots=True)
class QueueSlots:
    """Begin a batch when the one before is complete and a slot is free.

    A batch takes a slot before it is generated; the slot is returned when the trainer takes the batch (OpenRLHF
    ``ppo_trainer_async.py``).
    """

    async_queue_size: int = 1
    """Slots."""
    unit: ClassVar[Unit] = "group"
    counts_unfinished: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> QueueSlots:
        """Refuse a queue without slots."""
        at_least("async_queue_size", self.async_queue_size, 1)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """One batch, or nothing."""
        if view.open_groups:
            return 0, "barrier"
        batch = view.shape.prompts_per_step
        free = (view.steps_begun + self.async_queue_size) * batch - (view.started_groups - view.dropped_groups)
        return min(batch, free), "staleness"


class EmptyReplicas:
    """Whole batches for empty replicas."""

    unit: ClassVar[Unit] = "sample"
    part_name: ClassVar[str] = "refill-empty"
    runs_ahead: ClassVar[bool] = True
    fills_empty_replicas: ClassVar[bool] = True

    def __init__(self, batch: int, buffer_groups: int | None) -> None:
        self._batch, self._buffer_groups = batch, buffer_groups
        self.stops_at_full_buffer = buffer_groups is not None

    def capacity(self, view: View) -> tuple[int, str]:
        """One batch, if a replica is empty."""
        if self._buffer_groups is not None and len(view.ready) >= self._buffer_groups:
            return 0, "buffer"
        return self._batch if view.loads.has_empty else 0, "barrier"


@part("admission", "refill-empty")
@dataclass(frozen=True, slots=True)
class RefillEmpty:
    """Submit ``replica_batch`` samples for every empty replica; goes with dispatch ``fill-empty``.

    So every replica drains by itself and can take new weights (update mode ``pull``) without cutting a trajectory
    (Laminar, arXiv 2510.12633). A replica is empty when it has no unfinished sample, neither in a call nor in a tool.
    """

    replica_batch: int | None = None
    """Samples; None for the seats of a replica (``max_num_seqs``)."""
    buffer_groups: int | None = None
    """Complete groups at which nothing more is submitted; None for no limit."""

    def start(self, shape: RunSizes) -> EmptyReplicas:
        """Refuse an empty batch, and a buffer that never holds a training batch."""
        batch = shape.max_num_seqs if self.replica_batch is None else self.replica_batch
        at_least("replica_batch", batch, 1)
        if self.buffer_groups is not None:
            at_least("buffer_groups", self.buffer_groups, shape.prompts_per_step)
        return EmptyReplicas(batch, self.buffer_groups)


class Slots:
    """The slots of one run; none is filled while the buffer is full and the trainer takes nothing from it."""

    unit: ClassVar[Unit] = "sample"
    replaces_finished: ClassVar[bool] = True
    runs_ahead: ClassVar[bool] = True

    def __init__(self, slots: int, queue_maxsize: int) -> None:
        self.slots, self._queue_maxsize = slots, queue_maxsize

    def capacity(self, view: View) -> tuple[int, str]:
        """Free slots."""
        full = len(view.ready) * view.shape.group_size >= self._queue_maxsize
        if full and not view.trainer_waits:
            return 0, "buffer"
        return self.slots - view.running_samples, "concurrency"


@part("admission", "sample-slots")
@dataclass(frozen=True, slots=True)
class SampleSlots:
    """Every free slot begins one completion (TRL ``experimental/async_grpo``).

    A sample that is being scored keeps its slot, and a batch being collected does not fill the buffer.
    """

    max_inflight_tasks: int = -1
    """Slots; -1 for ``max_staleness`` times the samples of a step."""
    max_staleness: int = 4
    """In weights versions."""
    queue_maxsize: int = 1024
    """Samples that wait for the trainer."""

    def start(self, shape: RunSizes) -> Slots:
        """Refuse what comes to no slots: nothing would ever be generated (TRL pull request 5650)."""
        at_least("max_staleness", self.max_staleness, 0)
        at_least("queue_maxsize", self.queue_maxsize, 1)
        if self.max_inflight_tasks != -1:
            at_least("max_inflight_tasks", self.max_inflight_tasks, 1)
            return Slots(self.max_inflight_tasks, self.queue_maxsize)
        slots = self.max_staleness * shape.prompts_per_step * shape.group_size
        if not slots:
            allowed = "at least 1: with max_inflight_tasks -1 it is multiplied by the batch, which gives 0 slots"
            raise ParameterError("max_staleness", self.max_staleness, allowed)
        return Slots(slots, self.queue_maxsize)
