"""Bounded staleness: generation runs ahead of the trainer, and a count by weights version bounds how far.

What is counted differs by system: groups accepted and running (AReaL, SkyRL), batches ahead (verl V1, one-step-off,
ROLL), a budget for each version (verl's fully asynchronous rollouter), targets to generate for (NeMo-RL),
environments (ROLL's agentic rollout), or batches shipped beyond the version served (prime-rl).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.checks import at_least, divides
from rlsim.core.view import Group, RunSizes, View
from rlsim.policies.protocols import Unit
from rlsim.policies.registry import part


@part("admission", "cumulative-capacity")
@dataclass(frozen=True, slots=True)
class CumulativeCapacity:
    """``min(C - running, (eta + version + 1) * B - (accepted + running))`` groups (arXiv 2505.24298, eq. 3).

    Dropped groups give their slot back; nothing is dropped by the rule itself.
    """

    max_staleness: int
    """eta, in weights versions."""
    max_open_groups: int | None = None
    """C; None for one training batch."""
    unit: ClassVar[Unit] = "group"
    batches_per_version: ClassVar[int] = 1
    whole_batches: ClassVar[bool] = True
    counts_unfinished: ClassVar[bool] = True

    @property
    def runs_ahead(self) -> bool:
        """With a bound above 0."""
        return self.max_staleness > 0

    def start(self, shape: RunSizes) -> CumulativeCapacity:
        """Refuse a concurrency or bound that admits nothing."""
        at_least("max_staleness", self.max_staleness, 0)
        if self.max_open_groups is not None:
            at_least("max_open_groups", self.max_open_groups, 1)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """The tighter of concurrency and staleness."""
        batch = view.shape.prompts_per_step
        concurrency = (self.max_open_groups or batch) - view.open_groups
        staleness = (self.max_staleness + view.version + 1) * batch - (view.started_groups - view.dropped_groups)
        return (staleness, "staleness") if staleness <= concurrency else (concurrency, "concurrency")


@part("admission", "batches-ahead")
@dataclass(frozen=True, slots=True)
class BatchesAhead:
    """``(version + 1 + num_warmup_batches) x B`` groups in all: that many batches in flight or buffered.

    Dropped groups are replaced (verl ``trainer/ppo/v1``).
    """

    num_warmup_batches: int = 1
    """Batches submitted before the first step."""
    unit: ClassVar[Unit] = "group"
    batches_per_version: ClassVar[int] = 1

    @property
    def runs_ahead(self) -> bool:
        """With batches for a warm-up."""
        return self.num_warmup_batches > 0

    def start(self, shape: RunSizes) -> BatchesAhead:
        """Refuse a negative number."""
        at_least("num_warmup_batches", self.num_warmup_batches, 0)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """What is missing from the batches of this step and the warm-up."""
        batches = view.version + 1 + self.num_warmup_batches
        capacity = batches * view.shape.prompts_per_step - (view.started_groups - view.dropped_groups)
        return capacity, "staleness" if self.num_warmup_batches else "barrier"


class Running:
    """The environments of one run."""

    unit: ClassVar[Unit] = "sample"
    batches_per_version: ClassVar[int] = 1

    def __init__(self, environments: int, ahead: int) -> None:
        self.ahead, self._environments = ahead, environments
        self.runs_ahead = ahead > 0

    def capacity(self, view: View) -> tuple[int, str]:
        """Free environments, for the group that is being begun or the next one that may be."""
        free = self._environments - view.running_samples
        newest: Group | None = next(reversed(view.open.values()), None)
        waiting = sum(sample.state == "new" for sample in newest.members) if newest else 0
        if waiting:
            return min(free, waiting), "concurrency"
        groups = (self.ahead + view.version + 1) * view.shape.prompts_per_step
        if view.started_groups - view.dropped_groups >= groups:
            return 0, "staleness"
        return min(free, view.shape.group_size), "concurrency"


@part("admission", "environments")
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

    def start(self, shape: RunSizes) -> Running:
        """Refuse negative numbers and no environments."""
        at_least("async_generation_ratio", self.async_generation_ratio, 0)
        at_least("group_size_redundancy", self.group_size_redundancy, 0)
        groups = shape.prompts_per_step if self.num_env_groups is None else self.num_env_groups
        at_least("num_env_groups", groups, 1)
        return Running(groups * (shape.group_size + self.group_size_redundancy), self.async_generation_ratio)


@part("admission", "lead-gate")
@dataclass(frozen=True, slots=True)
class LeadGate:
    """Keep ``max_inflight`` samples in flight while batches shipped less the version served are ``target_lag`` at most.

    A batch is shipped once it is full and the version served is at most ``target_lag`` steps behind the one before it
    (prime-rl ``orchestrator.py``: the gate is closed when ``(step - 1) - version > TARGET_LAG``). Nothing else bounds
    the age of samples.
    """

    target_lag: int = 1
    """Batches that may be shipped beyond the version served."""
    max_inflight: int = 1024
    """Samples generating, in tools or being scored."""
    unit: ClassVar[Unit] = "sample"
    replaces_finished: ClassVar[bool] = True
    runs_ahead: ClassVar[bool] = True
    batches_per_version: ClassVar[int] = 1
    """Steps are compared with versions: publishing less often, the trainer would draw away from them."""
    stops_at_full_buffer: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> LeadGate:
        """Refuse numbers that admit nothing."""
        at_least("target_lag", self.target_lag, 0)
        at_least("max_inflight", self.max_inflight, 1)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """Free places, while the gate is open."""
        full = view.steps_begun + len(view.ready) // view.shape.prompts_per_step
        shipped = min(full, view.version + 1 + self.target_lag)
        if shipped - view.version > self.target_lag:
            return 0, "staleness"
        return self.max_inflight - view.running_samples, "concurrency"


@part("admission", "one-step-off")
@dataclass(frozen=True, slots=True)
class OneStepOff:
    """Admit batch k+1 when training on batch k begins (verl ``one_step_off_policy``, reference P1).

    Dropped groups are replaced.
    """

    unit: ClassVar[Unit] = "group"

    def start(self, shape: RunSizes) -> OneStepOff:
        """Nothing to check."""
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """(steps begun + 1) batches in all."""
        admitted = view.started_groups - view.dropped_groups
        return (view.steps_begun + 1) * view.shape.prompts_per_step - admitted, "barrier"


class Budget:
    """The counter of one run.

    verl resets its counter to what is in flight and queued whenever weights change and never lowers it in between,
    so that groups admitted stay below those trained on at that moment plus the budget. A prompt that has left the
    pending queue and waits for a place at that moment is in neither count and comes on top (verl
    ``fully_async_rollouter.py``). Dropped groups are taken off.
    """

    unit: ClassVar[Unit] = "group"
    counts_unfinished: ClassVar[bool] = True

    def __init__(self, groups: int, places_per_replica: int, prompts_per_step: int) -> None:
        self.groups, self._per_replica = groups, places_per_replica
        self.batches_per_version, self.runs_ahead = groups // prompts_per_step, groups > prompts_per_step
        self._version, self._limit = 0, groups

    def capacity(self, view: View) -> tuple[int, str]:
        """The tighter of budget and places in flight."""
        admitted = view.started_groups - view.dropped_groups
        places = min(view.loads.open_count * self._per_replica, self.groups) - view.open_groups
        if view.version != self._version:
            waiting = admitted < self._limit and places <= 0
            self._version = view.version
            self._limit = view.steps_done * view.shape.prompts_per_step + self.groups + waiting
        budget = self._limit - admitted
        return (budget, "staleness") if budget <= places else (places, "concurrency")


@part("admission", "per-version-budget")
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

    def start(self, shape: RunSizes) -> Budget:
        """Refuse numbers that admit nothing or do not divide the step."""
        at_least("staleness_threshold", self.staleness_threshold, 0)
        at_least("concurrent_samples_per_replica", self.concurrent_samples_per_replica, 1)
        at_least("trigger_parameter_sync_step", self.trigger_parameter_sync_step, 1)
        trigger = self.trigger_parameter_sync_step
        divides("trigger_parameter_sync_step", trigger, shape.prompts_per_step)
        groups = int(shape.prompts_per_step // trigger * (self.staleness_threshold + 1) * trigger)
        return Budget(groups, self.concurrent_samples_per_replica, shape.prompts_per_step)


@part("admission", "ratio")
@dataclass(frozen=True, slots=True)
class Ratio:
    """``ceil(ratio * B) + (version + 1) * B`` groups in all (ROLL ``generate_scheduler.py``); 0 is synchronous.

    Dropped groups give their place back. Additional prompts enter whenever fewer than so many groups are running,
    whatever the count says.
    """

    async_generation_ratio: float = 0.0
    """Batches that may be generated ahead."""
    max_additional_running_prompts: int = 0
    """Groups kept running by additional prompts; 0 for none."""
    unit: ClassVar[Unit] = "group"
    batches_per_version: ClassVar[int] = 1
    batch_of_every_version: ClassVar[bool] = True

    @property
    def adds_prompts(self) -> bool:
        """With additional prompts."""
        return self.max_additional_running_prompts > 0

    @property
    def runs_ahead(self) -> bool:
        """With a ratio above 0, or additional prompts."""
        return self.async_generation_ratio > 0 or self.adds_prompts

    def start(self, shape: RunSizes) -> Ratio:
        """Refuse negative numbers."""
        at_least("async_generation_ratio", self.async_generation_ratio, 0)
        at_least("max_additional_running_prompts", self.max_additional_running_prompts, 0)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """Places in the count, else those of additional prompts."""
        batch = view.shape.prompts_per_step
        ahead = math.ceil(self.async_generation_ratio * batch)
        capacity = ahead + (view.version + 1) * batch - (view.started_groups - view.dropped_groups)
        if capacity <= 0 and self.max_additional_running_prompts:
            return self.max_additional_running_prompts - view.open_groups, "concurrency"
        return capacity, "staleness" if ahead else "barrier"


@part("admission", "target-reservation")
@dataclass(frozen=True, slots=True)
class TargetReservation:
    """At version v the targets v+1 .. v+A (0 .. A at the start) may be generated for, a full batch each.

    The lowest unreserved target comes first, so group number k has target ``k // B`` (NeMo-RL ``async_utils``).
    """

    max_trajectory_age_steps: int = 1
    """A, in training steps."""
    unit: ClassVar[Unit] = "group"
    runs_ahead: ClassVar[bool] = True
    batches_per_version: ClassVar[int] = 1
    whole_batches: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> TargetReservation:
        """Refuse an age that reserves nothing ahead."""
        at_least("max_trajectory_age_steps", self.max_trajectory_age_steps, 1)
        return self

    def capacity(self, view: View) -> tuple[int, str]:
        """Batches up to target version + A."""
        reserved = (view.version + self.max_trajectory_age_steps + 1) * view.shape.prompts_per_step
        return reserved - (view.started_groups - view.dropped_groups), "staleness"
