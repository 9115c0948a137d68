"""What a simulated run is made of: everything that chance and cost models decide, and nothing of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rlsim.core.replica import Replica
from rlsim.core.streams import generator
from rlsim.core.ticks import Ticks
from rlsim.workload.workload import Workload


class Training(Protocol):
    """The trainer's cost model."""

    def phases(self, samples: Sequence[tuple[int, int]], mini_batches: int | None = None) -> list[tuple[str, float]]:
        """(phase, seconds) of training on (context tokens, response tokens) of some samples, in so many updates."""
        ...

    def micro_batch_seconds(self, samples: Sequence[tuple[int, int]]) -> float:
        """Forward and backward on some samples, without an optimizer step."""
        ...

    def optimizer_seconds(self) -> float:
        """One optimizer step."""
        ...


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Tests of new weights on the replicas, passed with a probability: luck that is the same for every policy."""

    seed: int
    probability: float
    test_seconds: float

    def passes(self, test: int) -> bool:
        """Whether the ``test``-th candidate of the run is accepted."""
        return bool(generator(self.seed, "acceptance", test).random() < self.probability)


@dataclass(frozen=True, slots=True)
class World:
    """The machines and the workload of one run."""

    replicas: Sequence[Replica]
    training: Training
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
    acceptance: Acceptance | None = None
    """How replicas judge new weights, for policies that ask for it."""
