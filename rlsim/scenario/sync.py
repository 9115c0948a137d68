"""The section ``sync``: what a publication of weights costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from rlsim.core.errors import ParameterError
from rlsim.core.section import Count, Fraction, Positive, Seconds, Section


class AcceptanceConfig(Section):
    """How often replicas accept new weights, for policies that let them judge."""

    probability: float = Field(ge=0, le=1, description="That a candidate passes")
    test_seconds: Seconds = Field(default=0.0, description="Time of a test on the replicas")


class SyncConfig(Section):
    """What it costs to publish weights to the replicas; when it happens is the policy's."""

    link_bytes_per_second: Positive | None = Field(
        default=None, description="Of the slowest link; None: from the device"
    )
    stage_bytes_per_second: Positive | None = Field(
        default=None,
        description="What one pipeline stage of the trainer sends, all at once, up to a GPU's share of the network",
    )
    restore_bytes_per_second: Positive | None = Field(
        default=None,
        description="At which a GPU brings back weights of trainer.weights_offload; None: its host link",
    )
    base_seconds: Seconds = Field(default=0.0, description="Fixed time of a publication")
    payload_share: Fraction = Field(
        default=1.0, description="Share of the weights' bytes that moves: an adapter, a delta"
    )
    tensors: Count | None = Field(default=None, description="Tensors sent one by one; None: not counted")
    per_tensor_seconds: Seconds = Field(default=0.0, description="Overhead of a tensor")
    scope: Literal["global", "per_replica"] = Field(default="global", description="All replicas at once, or each alone")
    acceptance: AcceptanceConfig | None = Field(default=None, description="None: new weights are not judged")

    def contradictions(self) -> Iterator[ParameterError]:
        """Two rates for one publication."""
        if self.stage_bytes_per_second is not None and self.link_bytes_per_second is not None:
            allowed = "no such key with link_bytes_per_second, the rate of the whole model"
            yield ParameterError("stage_bytes_per_second", self.stage_bytes_per_second, allowed)
