"""Recipe of a trainer: model, loss, optimizer, how a batch is cut, and the processes that do the work."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rlsim.core.errors import ParameterError
from rlsim.live.protocols import Experience
from rlsim.live.torch.grpo import Objective


@dataclass(frozen=True, slots=True)
class Recipe:
    """Configuration of every rank. Raises ``ParameterError`` at ``live.trainer.<field>``."""

    model: Path
    """Folder with ``config.json`` and weights under Hugging Face names."""
    weights_folder: Path
    """Folder of published weights; best in shared memory."""
    objective: Objective = field(default_factory=Objective)
    learning_rate: float = 1e-6
    weight_decay: float = 0.0
    most_gradient_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    updates_per_step: int = 1
    """Optimizer updates (mini-batches) of a step that is not streamed."""
    epochs: int = 1
    """Passes over a batch."""
    micro_batch_tokens: int = 16384
    """Tokens of a micro-batch, on one rank."""
    old_log_prob: bool = True
    """Whether a pass before the updates computes log-probabilities under the weights of the step's beginning; else
    those of the engines take their place in the ratio."""
    processes: int = 1
    """Data-parallel ranks; more than one are sharded by FSDP."""
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1
    """Threads of torch, in each process."""
    cores: tuple[int, ...] = ()
    """CPU cores to which processes are pinned in turn; none: wherever there is room."""
    teacher: Path | None = None
    """Folder of a model whose judgement of each token takes the place of rewards; None: rewards teach."""

    def __post_init__(self) -> None:
        for name in ("updates_per_step", "epochs", "micro_batch_tokens", "processes", "threads"):
            if getattr(self, name) < 1:
                raise ParameterError(f"live.trainer.{name}", getattr(self, name), "at least 1")
        for name in ("learning_rate", "most_gradient_norm"):
            if not getattr(self, name) > 0:
                raise ParameterError(f"live.trainer.{name}", getattr(self, name), "above 0")
        if self.weight_decay < 0:
            raise ParameterError("live.trainer.weight_decay", self.weight_decay, "at least 0")
        if self.objective.most_weight is None and not self.old_log_prob:
            allowed = "true without correction: the ratio to the engines' log-probabilities is one"
            raise ParameterError("trainer.old_log_prob", False, allowed)


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """Batch for every rank, and how often to update on it."""

    batch: tuple[Experience, ...]
    """Samples of all ranks: each takes its shard."""
    updates: int = 1
    """Mini-batches."""
    epochs: int = 1
    step: bool = True
    """Whether the optimizer steps after each mini-batch, or gradients are kept for the rest of the step."""


@dataclass(frozen=True, slots=True)
class RankResult:
    """Measurements of a rank's share of a batch."""

    phases: tuple[tuple[str, float], ...]
    """(phase, seconds)."""
    sums: dict[str, float]
    """Sums over tokens: ``tokens``, ``loss``, ``clips``, ``capped``, ``divergence``, and ``teacher``."""
    log_weights: dict[int, float]
    """Logarithm of the importance weight of each of its samples, by place in the batch."""
    gradient_norms: tuple[float, ...]
    """Norm before clipping of every update; the same on all ranks."""
