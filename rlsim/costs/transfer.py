"""Moving weights: publication to replicas, and the sleep and wake of GPUs that change roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlsim.core.errors import ParameterError, unknown
from rlsim.costs.fields import count, non_negative, positive

Scope = Literal["global", "per_replica"]


@dataclass(frozen=True, slots=True)
class Transport:
    """A way of sending weights, as measured end to end on full models."""

    bytes_per_second: float
    base_seconds: float
    measured: str
    """The range of the measurements."""
    source: str


TRANSPORTS = {
    "nccl": Transport(
        30e9,
        0.1,
        "19-45 GB/s over 9B to 1T models on H100 with InfiniBand",
        "LMSYS and miles P2P weight-transfer tables, NCCL column",
    ),
    "checkpoint-engine": Transport(
        66e9,
        0.5,
        "59-76 GB/s, 16 to 256 GPUs; metadata 0.1-1.3 s",
        "checkpoint-engine README, broadcast column",
    ),
    "rdma": Transport(
        140e9,
        0.5,
        "138-149 GB/s on 235B to 1T mixtures of experts; smaller models reach less",
        "LMSYS and miles P2P weight-transfer tables, RDMA column",
    ),
}
"""Effective rates by transport; a rate is of the whole model, not of one link."""


@dataclass(frozen=True, slots=True)
class SyncCost:
    """Seconds to publish weights: ``base + restore + bytes / rate + tensors * per tensor``.

    The wait until the engines are quiet is not in it: that is the policy's. Raises ``ParameterError`` for
    NaN, negative or zero values where they mean nothing.
    """

    model_bytes: float
    bytes_per_second: float = TRANSPORTS["nccl"].bytes_per_second
    base_seconds: float = TRANSPORTS["nccl"].base_seconds
    tensors: int = 0
    per_tensor_seconds: float = 0.0
    """Control-plane latency of one tensor's update call."""
    restore_seconds: float = 0.0
    """An offloaded trainer brings its weights back from host memory first."""
    scope: Scope = "global"
    """``global``: one publication reaches every replica; ``per_replica``: each pulls its own."""
    source: str = TRANSPORTS["nccl"].source

    def __post_init__(self) -> None:
        non_negative("sync.model_bytes", self.model_bytes)
        positive("sync.link_bytes_per_second", self.bytes_per_second)
        non_negative("sync.base_seconds", self.base_seconds)
        count("sync.tensors", self.tensors, least=0)
        non_negative("sync.per_tensor_seconds", self.per_tensor_seconds)
        non_negative("sync.restore_seconds", self.restore_seconds)
        if self.scope not in ("global", "per_replica"):
            raise unknown("sync.scope", self.scope, ("global", "per_replica"))

    @classmethod
    def over(cls, transport: str, model_bytes: float, scope: Scope = "global") -> SyncCost:
        """The cost over one of ``TRANSPORTS``; raises ``ParameterError`` for an unknown one."""
        if transport not in TRANSPORTS:
            raise unknown("sync.transport", transport, TRANSPORTS)
        chosen = TRANSPORTS[transport]
        return cls(model_bytes, chosen.bytes_per_second, chosen.base_seconds, scope=scope, source=chosen.source)

    def seconds(self) -> float:
        """One publication (``global``) or one replica's pull (``per_replica``)."""
        wire = self.model_bytes / self.bytes_per_second
        return self.base_seconds + self.restore_seconds + wire + self.tensors * self.per_tensor_seconds


def staged_bytes_per_second(stage_rate: float, stages: int, receiver_rate: float) -> float:
    """Of the whole model, where the first rank of every pipeline stage sends its part at once.

    Every receiving GPU takes in all of it, so that more stages help up to its share of the network. Raises
    ``ParameterError`` for rates or counts that mean nothing.
    """
    sent = positive("sync.stage_bytes_per_second", stage_rate) * count("trainer.pipeline_parallel", stages)
    return min(sent, positive("inter_node_bytes_per_second", receiver_rate))


SLEEP_BYTES_PER_SECOND = 16.06e9 / 10.57
WAKE_BYTES_PER_SECOND = 16.06e9 / 2.19
RELOAD_BYTES_PER_SECOND = 16.06e9 / 6.53
DISCARD_SECONDS = 0.31
"""vLLM issue 48337, an 8B model on one GPU: level 1 sleeps in 10.57 s and wakes in 2.19 s; level 2 in
0.31 and 6.53 s. One report: treat as an order of magnitude."""


@dataclass(frozen=True, slots=True)
class SwitchCost:
    """Seconds for GPUs to change between generating and training."""

    sleep_seconds: float
    """The engine frees its memory."""
    wake_seconds: float
    """The engine gets it back, weights included unless a sync brings them."""
    offload_seconds: float = 0.0
    """The trainer's state leaves the GPUs."""
    onload_seconds: float = 0.0
    """The trainer's state returns."""
    reshard_seconds: float = 0.0
    """Weights change layout between trainer and engine."""
    source: str = "given"

    @property
    def is_given(self) -> bool:
        """Whether somebody set the seconds; else they follow from bytes."""
        return self.source.startswith("given")

    def __post_init__(self) -> None:
        for name in ("sleep", "wake", "offload", "onload", "reshard"):
            non_negative(f"switching.{name}_seconds", getattr(self, f"{name}_seconds"))

    @classmethod
    def vllm_sleep(
        cls, weight_bytes_per_gpu: float, level: int = 1, host_link_bytes_per_second: float | None = None
    ) -> SwitchCost:
        """vLLM sleep mode; every GPU moves its own weights over its own host link.

        Level 1 keeps the weights in host memory, level 2 drops them and reads them again. Without a link
        rate, the effective rates of vLLM issue 48337 (an estimate).
        """
        if level not in (1, 2):
            raise ParameterError("switching.level", level, "1 or 2")
        size = non_negative("weight_bytes_per_gpu", weight_bytes_per_gpu)
        link_rate = host_link_bytes_per_second
        sleep_rate = SLEEP_BYTES_PER_SECOND if link_rate is None else link_rate
        wake_rate = WAKE_BYTES_PER_SECOND if level == 1 else RELOAD_BYTES_PER_SECOND
        wake_rate = wake_rate if link_rate is None else link_rate
        sleep = size / positive("switching.host_link_bytes_per_second", sleep_rate)
        rates = "rates of vLLM issue 48337" if link_rate is None else f"{link_rate / 1e9:g} GB/s host link"
        return cls(
            sleep_seconds=sleep if level == 1 else DISCARD_SECONDS,
            wake_seconds=size / wake_rate,
            source=f"vLLM sleep level {level}, {rates}",
        )

    @classmethod
    def from_bytes(
        cls,
        weight_bytes_per_gpu: float,
        trainer_bytes_per_gpu: float = 0.0,
        host_link_bytes_per_second: float = 25e9,
        reshard_seconds: float = 0.0,
    ) -> SwitchCost:
        """Everything moved over a host link of known effective rate.

        The default rate is an estimate: pinned copies over PCIe 5.0 reach well under the 64 GB/s peak.
        """
        rate = positive("switching.host_link_bytes_per_second", host_link_bytes_per_second)
        engine = non_negative("weight_bytes_per_gpu", weight_bytes_per_gpu) / rate
        trainer = non_negative("trainer_bytes_per_gpu", trainer_bytes_per_gpu) / rate
        return cls(engine, engine, trainer, trainer, reshard_seconds, f"bytes over {rate / 1e9:g} GB/s host link")

    def to_training_seconds(self) -> float:
        """From generating to training."""
        return self.sleep_seconds + self.onload_seconds

    def to_rollout_seconds(self) -> float:
        """From training to generating, without the weight sync."""
        return self.offload_seconds + self.reshard_seconds + self.wake_seconds
