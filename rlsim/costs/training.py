"""Seconds of one training batch on the trainer's GPUs, phase by phase.

Work is FLOPs of the model (attention pairs included) over peak times utilisation; a backward pass costs two
forward passes. A phase lasts as long as its slowest data-parallel rank. Host, data and refit overheads are
terms of their own: without them physics predicts a third too little (see the NeMo-RL performance summary).

The speeds of a measured trainer, as a scenario's keys say them.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlsim.core.errors import ParameterError
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.profile import Profile
from rlsim.costs.sections import TrainingFit
from rlsim.costs.trainer import TrainerConfig, TrainerSpeeds

if TYPE_CHECKING:
    from numpy.typing import NDArray


Samples = Sequence[tuple[int, int]]
"""(prompt tokens, response tokens) of each sample; an (n, 2) integer array works too."""

OPTIMIZER_BYTES = 28.0
"""Memory traffic of a mixed-precision Adam step, a parameter: fp32 weight and two moments read and
written (24), bf16 gradient read and bf16 weight written (4)."""
OPTIMIZER_STATE_BYTES = 12.0
"""fp32 weight and two moments of a parameter (ZeRO, arXiv 1910.02054)."""
MEMORY_EFFICIENCY = 0.77
"""Of the memory rate; arXiv 2606.18967 fits 0.77-0.79 on A100."""


@dataclass(frozen=True, slots=True)
class _Loads:
    """Work by mini-batch and data-parallel rank; every array has shape (mini-batches, ranks)."""

    tokens: NDArray[np.float64]
    pairs: NDArray[np.float64]
    micro_batches: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Pass:
    """How fast a kind of pass over the batch is."""

    flop_factor: float
    """FLOPs over those of a forward pass."""
    mfu: float
    attention_mfu: float
    seconds_per_micro_batch: float


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """Cost model of a trainer: a section of the scenario, applied to a model on one type of GPU.

    ``config`` has its own speeds; those of a measured trainer are put in before. A critic is of the model's size.
    """

    config: TrainerConfig
    architecture: Architecture
    device: Device

    def replace(self, **changes: Any) -> TrainingCost:
        """The same with other keys of the section, checked as those of a scenario."""
        return TrainingCost(self.config.replace(**changes), self.architecture, self.device)

    @property
    def mfu(self) -> float:
        """Utilisation of the dense bf16 peak in forward and backward."""
        if self.config.mfu is None:
            raise ParameterError("trainer.mfu", None, "the speeds of the profile in its place")
        return self.config.mfu

    @property
    def data_parallel(self) -> int:
        """Data-parallel ranks."""
        return self.config.gpus // self.config.gpus_per_rank

    def phases(self, samples: Samples, mini_batches: int | None = None, last: bool = True) -> list[tuple[str, float]]:
        """(phase, seconds) of one training batch, in the order in which they run.

        ``mini_batches`` are the optimizer updates made on these samples, by default those of a step. Without ``last``
        they are a part of a step that others follow, with which its fixed overhead comes.

        Phases, where switched on: ``old_log_prob``, ``reference``, ``values``, ``update_critic``,
        ``update_actor`` and ``overhead``. Raises ``ParameterError`` for an empty batch or negative lengths.
        """
        config = self.config
        loads = self._loads(_lengths(samples), mini_batches or config.updates_per_step)
        # In a forward pass ranks meet only at its end; every mini-batch of an update waits for its slowest rank.
        whole = _Loads(*(part.sum(axis=0, keepdims=True) for part in (loads.tokens, loads.pairs, loads.micro_batches)))
        forward = self._slowest(whole, self._forward_pass)
        passes = self._slowest(loads, self._training_pass)
        update = config.epochs * (passes + len(loads.tokens) * self.optimizer_seconds())
        overhead = config.seconds_per_sample * len(samples) + (config.fixed_seconds_per_step if last else 0.0)
        timed = (
            (config.old_log_prob, "old_log_prob", forward),
            (config.reference, "reference", forward),
            (config.critic, "values", forward),
            (config.critic, "update_critic", update),
            (True, "update_actor", update),
            (overhead > 0, "overhead", overhead),
        )
        return [(name, seconds) for wanted, name, seconds in timed if wanted]

    def step_seconds(self, samples: Samples) -> float:
        """All phases together."""
        return sum(seconds for _, seconds in self.phases(samples))

    def micro_batch_seconds(self, samples: Samples) -> float:
        """Forward and backward of ``samples`` alone, on all ranks, without an optimizer step."""
        return self._slowest(self._loads(_lengths(samples), 1), self._training_pass)

    def optimizer_seconds(self) -> float:
        """One optimizer step, state sharded over all GPUs, with ``seconds_per_update``.

        Gradient reduction is taken to overlap the backward pass and to be part of ``mfu``.
        """
        parameters = self.architecture.parameters() / self.config.gpus
        seconds = parameters * OPTIMIZER_BYTES / (self.device.memory_bytes_per_second * MEMORY_EFFICIENCY)
        if self.config.optimizer_offload:
            seconds += 2 * parameters * OPTIMIZER_STATE_BYTES / self.device.host_link_bytes_per_second
        return seconds + self.config.seconds_per_update

    @property
    def _training_pass(self) -> _Pass:
        factor = 4.0 if self.config.activation_recompute else 3.0
        return _Pass(factor, self.mfu, self.config.attention_mfu or self.mfu, self.config.seconds_per_micro_batch)

    @property
    def _forward_pass(self) -> _Pass:
        mfu, overhead = self.config.logprob_mfu or self.mfu, self.config.logprob_seconds_per_micro_batch
        overhead = self.config.seconds_per_micro_batch if overhead is None else overhead
        return _Pass(1.0, mfu, self.config.attention_mfu or mfu, overhead)

    def _slowest(self, loads: _Loads, kind: _Pass) -> float:
        """Sum over mini-batches of the seconds of the slowest rank."""
        # FLOPs of routed experts count as many more as they are slower.
        experts = 2.0 * self.architecture.active_expert_parameters()
        token_flops = self.architecture.token_flops() + experts * (1.0 / self.config.expert_utilisation - 1.0)
        tokens = token_flops * loads.tokens / kind.mfu
        pairs = self.architecture.pair_flops() * loads.pairs / kind.attention_mfu
        peak = self.config.gpus_per_rank * self.device.bf16_flops
        seconds = kind.flop_factor * (tokens + pairs) / peak + kind.seconds_per_micro_batch * loads.micro_batches
        if self.config.pipeline_bubbles:
            seconds *= 1.0 + (self.config.pipeline_parallel - 1) / np.maximum(loads.micro_batches, 1.0)
        return float(seconds.max(axis=1).sum())

    def _loads(self, lengths: NDArray[np.int64], mini_batches: int) -> _Loads:
        batches = min(mini_batches, len(lengths))
        if batches == 1:
            return _Loads(*(row[np.newaxis] for row in self._rank_loads(lengths)))
        parts = [self._rank_loads(part) for part in np.array_split(lengths, batches)]
        return _Loads(*(np.stack(rows) for rows in zip(*parts, strict=True)))

    def _rank_loads(self, lengths: NDArray[np.int64]) -> tuple[NDArray[np.float64], ...]:
        """Tokens, pairs and micro-batches by rank of one mini-batch."""
        ranks = self.data_parallel
        rank = _lpt(lengths, ranks) if self.config.balance == "lpt" else _blocks(len(lengths), ranks)
        longest = int(lengths.max())
        computed = (np.full_like(lengths, longest) if self.config.packing == "padded" else lengths).astype(np.float64)
        tokens = _by_rank(rank, computed, ranks)
        pairs = _by_rank(rank, computed * (computed + 1.0) / 2.0, ranks)
        if self.config.packing == "packed":
            return tokens, pairs, np.ceil(tokens / self.config.micro_batch_tokens)
        in_one = max(1, self.config.micro_batch_tokens // max(longest, 1))
        return tokens, pairs, np.ceil(_by_rank(rank, np.ones(len(rank)), ranks) / in_one)


def _lengths(samples: Samples) -> NDArray[np.int64]:
    """Tokens of each sample."""
    table = np.asarray(samples)
    if table.ndim != 2 or table.shape[1] != 2 or len(table) == 0:
        raise ParameterError("samples", f"shape {table.shape}", "at least one (prompt tokens, response tokens)")
    if not np.isfinite(table).all() or (table < 0).any():
        raise ParameterError("samples", float(table.min()), "finite token counts >= 0")
    total: NDArray[np.int64] = table.astype(np.int64).sum(axis=1)
    return total


def _by_rank(rank: NDArray[np.int64], values: NDArray[np.float64], ranks: int) -> NDArray[np.float64]:
    return np.bincount(rank, weights=values, minlength=ranks).astype(np.float64)


def _blocks(samples: int, ranks: int) -> NDArray[np.int64]:
    """Contiguous blocks, the first ones one longer when they do not divide."""
    sizes = [len(part) for part in np.array_split(np.arange(samples), ranks)]
    return np.repeat(np.arange(ranks), sizes)


def _lpt(lengths: NDArray[np.int64], ranks: int) -> NDArray[np.int64]:
    """Greedy: each sample, longest first, to the rank with the fewest tokens (Graham 1969)."""
    loads = [(0, rank) for rank in range(ranks)]
    rank_of = np.empty(len(lengths), dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    for sample, tokens in zip(order.tolist(), lengths[order].tolist(), strict=True):
        load, rank = loads[0]
        rank_of[sample] = rank
        heapq.heapreplace(loads, (load + tokens, rank))
    return rank_of


RATES = {
    "mfu": "train_flops_per_second",
    "logprob_mfu": "logprob_flops_per_second",
    "attention_mfu": "attention_flops_per_second",
}
"""Utilisations by the measured rate of one GPU that they stand for."""
TRAINER_COEFFICIENTS = (
    *RATES.values(),
    "seconds_per_micro_batch",
    "logprob_seconds_per_micro_batch",
    "update_seconds",
)
"""What the training section of a profile holds at least; ``update_seconds`` is a whole optimizer update."""


def trainer_speeds(fit: TrainingFit, architecture: Architecture, device: Device) -> TrainerSpeeds:
    """Keys with which a trainer on ``device`` takes the seconds that were measured.

    Raises ``ParameterError`` at ``trainer.profile`` for a coefficient that is missing or a rate above the peak.
    """
    for name in TRAINER_COEFFICIENTS:
        if name not in fit.coefficients:
            raise ParameterError("trainer.profile", f"no {name}", f"coefficients {', '.join(TRAINER_COEFFICIENTS)}")
    values = {name: coefficient.value for name, coefficient in fit.coefficients.items()}
    rates = {key: values[name] / device.bf16_flops for key, name in RATES.items()}
    for key, share in rates.items():
        if not 0 < share <= 1:
            raise ParameterError("trainer.profile", f"{key} {share:.3g} of {device.name}", "rates up to its bf16 peak")
    measured = TrainingCost(TrainerConfig(gpus=fit.parallel.get("data_parallel", 1), mfu=1.0), architecture, device)
    return TrainerSpeeds(
        seconds_per_update=max(0.0, values["update_seconds"] - measured.optimizer_seconds()),
        seconds_per_micro_batch=values["seconds_per_micro_batch"],
        logprob_seconds_per_micro_batch=values["logprob_seconds_per_micro_batch"],
        **rates,
    )


def profile_speeds(profile: Profile, architecture: Architecture, device: Device, any_hardware: bool) -> TrainerSpeeds:
    """The speeds of a profile's trainer.

    Raises ``ParameterError`` at ``trainer.profile`` for a profile without a training section, and, unless
    ``any_hardware``, for one of another model or device.
    """
    if profile.training is None:
        allowed = "a profile with a training section (rlsim calibrate torch)"
        raise ParameterError("trainer.profile", profile.name, allowed)
    differs = profile.mismatches(architecture.name, device.name, profile.tensor_parallel, profile.expert_parallel)
    if differs and not any_hardware:
        allowed = f"a profile of this set-up, or cluster.allow_other_hardware: true ({'; '.join(differs)})"
        raise ParameterError("trainer.profile", profile.name, allowed)
    return trainer_speeds(profile.training, architecture, device)
