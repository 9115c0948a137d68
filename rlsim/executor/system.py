"""What a simulated run is made of: everything that chance and cost models decide, and nothing of the policy.

The phases of a training step, or of the part of it that has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rlsim.core.commands import Submit, Train
from rlsim.core.streams import generator
from rlsim.core.ticks import Ticks
from rlsim.engine.replica import Replica
from rlsim.engine.steptime import StepTime
from rlsim.learning.dynamics import LearningDynamics
from rlsim.workload.workload import Workload


class TrainingSystem(Protocol):
    """The trainer's cost model."""

    def phases(
        self, samples: Sequence[tuple[int, int]], mini_batches: int | None = None, last: bool = True
    ) -> list[tuple[str, float]]:
        """(phase, seconds) of training on (context tokens, response tokens) of some samples, in so many updates.

        What a step costs once comes with its ``last`` part.
        """
        ...

    def micro_batch_seconds(self, samples: Sequence[tuple[int, int]]) -> float:
        """Forward and backward on some samples, without an optimizer step."""
        ...

    def optimizer_seconds(self) -> float:
        """One optimizer step."""
        ...


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Tests of new weights on the replicas, passed with a probability: the same draws for every policy."""

    seed: int
    probability: float
    test_seconds: float

    def passes(self, test: int) -> bool:
        """Whether the ``test``-th candidate of the run is accepted."""
        return bool(generator(self.seed, "acceptance", test).random() < self.probability)


@dataclass(frozen=True, slots=True)
class Contention:
    """What engines and trainer cost each other where they share a host, links or GPUs."""

    laws: Sequence[StepTime]
    """Of every replica, for steps that begin while the trainer computes."""
    training_factor: float
    """On the ticks of a training phase that begins while an engine runs."""


@dataclass(frozen=True, slots=True)
class Links:
    """What it takes to bring KV and weights to replicas of several pools, in ticks."""

    pool_of: tuple[int, ...]
    """Pool by replica."""
    gpus_of: tuple[int, ...]
    """By replica, a number for the GPUs that it runs on: equal where engines share them."""
    restore: tuple[int, ...]
    """One token's KV from the host, by pool."""
    fetch: tuple[int, ...]
    """One token's KV over the links of a pool's GPUs, in or out, by pool; the slower end decides."""
    pull: tuple[Ticks, ...]
    """A replica's loading of new weights from its relay, by pool."""


@dataclass(frozen=True, slots=True)
class LearningSetup:
    """What trained samples teach, and how often a step goes over them."""

    dynamics: LearningDynamics
    updates_per_step: int
    epochs: int


@dataclass(frozen=True, slots=True)
class System:
    """The machines and the workload of one run."""

    replicas: Sequence[Replica]
    training: TrainingSystem
    workload: Workload
    sync_ticks: Ticks
    sync_scope: Literal["global", "per_replica"]
    to_training_ticks: Ticks
    to_rollout_ticks: Ticks
    max_model_len: int
    environments: int | None = None
    """Tool calls that run at once; None for no limit."""
    reward_workers: int | None = None
    kv_while_waiting: Literal["keep", "drop", "offload"] = "keep"
    restore_ticks_per_token: int = 0
    """Bringing one token's KV back from the host."""
    pull_ticks: Ticks = 0
    """A replica's loading of new weights from its relay."""
    pool_ticks_per_token: int = 0
    """Fetching one token's KV from another replica or a shared pool."""
    links: Links | None = None
    """Stands for the three above where replicas differ."""
    lent_replicas: range = range(0)
    """Replicas on the trainer's GPUs, which generate only while it lends them."""
    contention: Contention | None = None
    """None: they do not slow each other down."""
    acceptance: Acceptance | None = None
    """How replicas judge new weights, for policies that ask for it."""
    learning: LearningSetup | None = None
    """The hidden model of success and progress; None: samples earn nothing and teach nothing."""

    def restore_ticks(self, replica: int) -> int:
        """Bringing one token's KV back from the host."""
        links = self.links
        return self.restore_ticks_per_token if links is None else links.restore[links.pool_of[replica]]

    def fetch_ticks(self, source: int, replica: int) -> int:
        """Fetching one token's KV from where it was made (-1: not known); nothing where GPUs are shared."""
        links = self.links
        if links is None:
            return self.pool_ticks_per_token
        here = links.fetch[links.pool_of[replica]]
        if source < 0 or source == replica:
            return here
        same = links.gpus_of[source] == links.gpus_of[replica]
        return 0 if same else max(here, links.fetch[links.pool_of[source]])

    def bring_kv_ticks(self, tokens: int, source: int, command: Submit) -> Ticks:
        """How long the KV of so many tokens of a call's context is on its way; ``source`` made it (-1: not known)."""
        if not tokens:
            return 0
        fetched = command.kv_from_pool
        return tokens * (self.fetch_ticks(source, command.replica) if fetched else self.restore_ticks(command.replica))

    def pull_time(self, replica: int) -> Ticks:
        """A replica's loading of new weights from its relay."""
        return self.pull_ticks if self.links is None else self.links.pull[self.links.pool_of[replica]]


Timed = list[tuple[str, float]]


class Phases:
    """What each training command takes, step after step, by the cost model."""

    def __init__(self, training: TrainingSystem) -> None:
        self._cost = training
        self._streaming = False

    def of(self, command: Train, samples: Sequence[tuple[int, int]]) -> Timed:
        """(phase, seconds) in order, for (context tokens, response tokens) of the samples."""
        phases = self._cost.phases(samples, command.updates, command.last)
        if command.updates is not None or (command.last and not self._streaming):
            return phases
        self._streaming = not command.last
        return self._part(phases, command.last, samples)

    def _part(self, phases: Timed, last: bool, samples: Sequence[tuple[int, int]]) -> Timed:
        """The phases of some samples of a step; the optimizer step comes with the last."""
        update = self._cost.micro_batch_seconds(samples) + (self._cost.optimizer_seconds() if last else 0.0)
        return [(name, update if name.startswith("update_") else seconds) for name, seconds in phases]
