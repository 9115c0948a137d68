"""Seconds of one training batch on the trainer's GPUs, phase by phase.

Work is FLOPs of the model (attention pairs included) over peak times utilisation; a backward pass costs two
forward passes. A phase lasts as long as its slowest data-parallel rank. Host, data and refit overheads are
terms of their own: without them physics predicts a third too little (see the NeMo-RL performance summary).

The speeds of a measured trainer, as a scenario's keys say them.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rlsim.core.errors import ParameterError, unknown
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.evidence import Coefficient
from rlsim.costs.fields import count, fraction, non_negative
from rlsim.costs.profile import Profile
from rlsim.costs.sections import TrainingFit

if TYPE_CHECKING:
    from numpy.typing import NDArray


Packing = Literal["packed", "padded"]
Balance = Literal["none", "lpt"]
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
    """The trainer: a model on GPUs, how a batch is cut, and what a step costs besides FLOPs.

    Utilisations count pipeline bubbles and communication in; with ``recompute`` they count the recomputed
    forward pass as work. Raises ``ParameterError`` for values that cannot be, at ``trainer.<field>``.
    """

    architecture: Architecture
    device: Device
    gpus: int
    mfu: float
    """Utilisation of the dense bf16 peak in forward and backward."""
    logprob_mfu: float | None = None
    """The same of forward-only passes; ``None``: as ``mfu``."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    mini_batches: int = 1
    """Optimizer updates over the batch, an epoch."""
    epochs: int = 1
    packing: Packing = "packed"
    """``padded``: every sample is as long as the longest of its mini-batch."""
    micro_batch_tokens: int = 16384
    recompute: bool = False
    """Activation checkpointing: the forward pass is run again in the backward pass (8/6 of the FLOPs)."""
    balance: Balance = "none"
    """``lpt``: longest sample first to the rank with the fewest tokens; ``none``: contiguous blocks."""
    old_log_prob: bool = True
    reference: bool = False
    critic: bool = False
    """A critic of the model's own size (PPO)."""
    optimizer_offload: bool = False
    """Optimizer state crosses the host link both ways in every update."""
    fixed_seconds_per_step: float = 0.0
    seconds_per_update: float = 0.0
    seconds_per_micro_batch: float = 0.0
    attention_mfu: float | None = None
    """Utilisation of the same peak by attention over (query, key) pairs, in every pass; ``None``: as its matrix
    products. Attention kernels reach another share of the peak, which shows in how time grows with length."""
    logprob_seconds_per_micro_batch: float | None = None
    """The overhead of a micro-batch in forward-only passes; ``None``: as ``seconds_per_micro_batch``."""
    seconds_per_sample: float = 0.0
    """What the controller does with each sample of a step: rewards, advantages, metrics, its way to the ranks."""
    expert_utilisation: float = 1.0
    """Of the grouped matrix products of routed experts, over that of dense ones, in every pass."""
    pipeline_bubbles: bool = False
    """Stages idle while a pipeline fills and drains: as long as (stages - 1) further micro-batches in every pass.
    Off: the utilisations count it in."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            count(f"trainer.{name}", getattr(self, name))
        for name in _OVERHEADS:
            non_negative(f"trainer.{name}", getattr(self, name))
        fraction("trainer.mfu", self.mfu)
        fraction("trainer.expert_utilisation", self.expert_utilisation)
        for name in ("logprob_mfu", "attention_mfu"):
            if getattr(self, name) is not None:
                fraction(f"trainer.{name}", getattr(self, name))
        if self.logprob_seconds_per_micro_batch is not None:
            non_negative("trainer.logprob_seconds_per_micro_batch", self.logprob_seconds_per_micro_batch)
        if self.packing not in ("packed", "padded"):
            raise unknown("trainer.packing", self.packing, ("packed", "padded"))
        if self.balance not in ("none", "lpt"):
            raise unknown("trainer.balance", self.balance, ("none", "lpt"))
        if self.gpus % self.gpus_per_rank:
            raise ParameterError("trainer.gpus", self.gpus, f"a multiple of {self.gpus_per_rank} (TP x PP x CP)")

    @property
    def gpus_per_rank(self) -> int:
        """GPUs that hold one data-parallel rank."""
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    @property
    def data_parallel(self) -> int:
        """Data-parallel ranks."""
        return self.gpus // self.gpus_per_rank

    def phases(self, samples: Samples, mini_batches: int | None = None, last: bool = True) -> list[tuple[str, float]]:
        """(phase, seconds) of one training batch, in the order in which they run.

        ``mini_batches`` are the optimizer updates made on these samples, by default those of a step. Without ``last``
        they are a part of a step that others follow, with which its fixed overhead comes.

        Phases, where switched on: ``old_log_prob``, ``reference``, ``values``, ``update_critic``,
        ``update_actor`` and ``overhead``. Raises ``ParameterError`` for an empty batch or negative lengths.
        """
        loads = self._loads(_lengths(samples), mini_batches or self.mini_batches)
        forward, update = self._forward_seconds(loads), self._update_seconds(loads)
        overhead = self.seconds_per_sample * len(samples) + (self.fixed_seconds_per_step if last else 0.0)
        timed = (
            (self.old_log_prob, "old_log_prob", forward),
            (self.reference, "reference", forward),
            (self.critic, "values", forward),
            (self.critic, "update_critic", update),
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
        parameters = self.architecture.parameters() / self.gpus
        seconds = parameters * OPTIMIZER_BYTES / (self.device.memory_bytes_per_second * MEMORY_EFFICIENCY)
        if self.optimizer_offload:
            seconds += 2 * parameters * OPTIMIZER_STATE_BYTES / self.device.host_link_bytes_per_second
        return seconds + self.seconds_per_update

    @property
    def _token_work(self) -> float:
        """Forward FLOPs of a token outside attention, those of routed experts as many more as they are slower."""
        experts = 2.0 * self.architecture.active_expert_parameters()
        return self.architecture.token_flops() + experts * (1.0 / self.expert_utilisation - 1.0)

    @property
    def _training_pass(self) -> _Pass:
        factor = 4.0 if self.recompute else 3.0
        return _Pass(factor, self.mfu, self.attention_mfu or self.mfu, self.seconds_per_micro_batch)

    @property
    def _forward_pass(self) -> _Pass:
        mfu, overhead = self.logprob_mfu or self.mfu, self.logprob_seconds_per_micro_batch
        overhead = self.seconds_per_micro_batch if overhead is None else overhead
        return _Pass(1.0, mfu, self.attention_mfu or mfu, overhead)

    def _forward_seconds(self, loads: _Loads) -> float:
        """One forward pass over the whole batch: ranks meet only at its end."""
        whole = _Loads(*(part.sum(axis=0, keepdims=True) for part in (loads.tokens, loads.pairs, loads.micro_batches)))
        return self._slowest(whole, self._forward_pass)

    def _update_seconds(self, loads: _Loads) -> float:
        """Every mini-batch waits for its slowest rank, then steps the optimizer."""
        passes = self._slowest(loads, self._training_pass)
        return self.epochs * (passes + len(loads.tokens) * self.optimizer_seconds())

    def _slowest(self, loads: _Loads, kind: _Pass) -> float:
        """Sum over mini-batches of the seconds of the slowest rank."""
        tokens = self._token_work * loads.tokens / kind.mfu
        pairs = self.architecture.pair_flops() * loads.pairs / kind.attention_mfu
        peak = self.gpus_per_rank * self.device.bf16_flops
        seconds = kind.flop_factor * (tokens + pairs) / peak + kind.seconds_per_micro_batch * loads.micro_batches
        if self.pipeline_bubbles:
            seconds *= 1.0 + (self.pipeline_parallel - 1) / np.maximum(loads.micro_batches, 1.0)
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
        rank = _lpt(lengths, ranks) if self.balance == "lpt" else _blocks(len(lengths), ranks)
        longest = int(lengths.max())
        computed = (np.full_like(lengths, longest) if self.packing == "padded" else lengths).astype(np.float64)
        tokens = _by_rank(rank, computed, ranks)
        pairs = _by_rank(rank, computed * (computed + 1.0) / 2.0, ranks)
        if self.packing == "packed":
            return tokens, pairs, np.ceil(tokens / self.micro_batch_tokens)
        in_one = max(1, self.micro_batch_tokens // max(longest, 1))
        return tokens, pairs, np.ceil(_by_rank(rank, np.ones(len(rank)), ranks) / in_one)


_OVERHEADS = ("fixed_seconds_per_step", "seconds_per_sample", "seconds_per_update", "seconds_per_micro_batch")
_COUNTS = (
    "gpus",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "mini_batches",
    "epochs",
    "micro_batch_tokens",
)


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


@dataclass(frozen=True, slots=True)
class TrainerSpeeds:
    """Keys of the trainer section; utilisations are of the dense bf16 peak of the device they were asked for."""

    mfu: float
    logprob_mfu: float
    attention_mfu: float
    seconds_per_update: float
    """Beyond the memory traffic of the optimizer, which the cost model adds itself."""
    seconds_per_micro_batch: float
    logprob_seconds_per_micro_batch: float


def trainer_speeds(fit: TrainingFit, architecture: Architecture, device: Device) -> TrainerSpeeds:
    """Keys with which a trainer on ``device`` takes the seconds that were measured.

    Raises ``ParameterError`` at ``trainer.profile`` for a coefficient that is missing or a rate above the peak.
    """
    found = {name: _value(fit.coefficients, name) for name in TRAINER_COEFFICIENTS}
    rates = {key: found[name] / device.bf16_flops for key, name in RATES.items()}
    for key, share in rates.items():
        if not 0 < share <= 1:
            raise ParameterError("trainer.profile", f"{key} {share:.3g} of {device.name}", "rates up to its bf16 peak")
    return TrainerSpeeds(
        seconds_per_update=max(0.0, found["update_seconds"] - _traffic_seconds(fit, architecture, device)),
        seconds_per_micro_batch=found["seconds_per_micro_batch"],
        logprob_seconds_per_micro_batch=found["logprob_seconds_per_micro_batch"],
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


def _traffic_seconds(fit: TrainingFit, architecture: Architecture, device: Device) -> float:
    """What the cost model takes for an update on the GPUs that were measured."""
    gpus = fit.parallel.get("data_parallel", 1)
    return TrainingCost(architecture, device, gpus=gpus, mfu=1.0).optimizer_seconds()


def _value(coefficients: Mapping[str, Coefficient], name: str) -> float:
    if name not in coefficients:
        raise ParameterError("trainer.profile", f"no {name}", f"coefficients {', '.join(TRAINER_COEFFICIENTS)}")
    return coefficients[name].value
