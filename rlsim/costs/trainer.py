"""The section ``trainer``: how a batch is cut over the GPUs that train, and how fast they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from rlsim.core.errors import ParameterError
from rlsim.core.section import Count, Fraction, Name, Seconds, Section

Packing = Literal["packed", "padded"]
"""``padded``: every sample is as long as the longest of its mini-batch."""


@dataclass(frozen=True, slots=True)
class TrainerSpeeds:
    """Keys of the section that a profile gives; utilisations are of the dense bf16 peak of the scenario's device."""

    mfu: float
    logprob_mfu: float
    attention_mfu: float
    seconds_per_update: float
    """Beyond the memory traffic of the optimizer, which the cost model adds itself."""
    seconds_per_micro_batch: float
    logprob_seconds_per_micro_batch: float


class TrainerConfig(Section):
    """The GPUs that run log-probability passes and optimizer updates.

    Utilisations are of the dense bf16 peak and count pipeline bubbles and communication in; with
    ``activation_recompute`` they count the recomputed forward pass as work. Attention kernels reach another share of
    the peak than matrix products, which shows in how time grows with length. ``seconds_per_sample`` is what the
    controller does with each sample of a step: rewards, advantages, metrics, its way to the ranks.
    """

    gpus: Count = Field(description="GPUs that train")
    tensor_parallel: Count = Field(default=1, description="Ranks that split each layer")
    pipeline_parallel: Count = Field(default=1, description="Stages that split the layers")
    context_parallel: Count = Field(default=1, description="Ranks that split each sequence")
    expert_parallel: Count = Field(
        default=1,
        description="Ranks that split the experts of a layer; what it does to time is in mfu",
    )
    updates_per_step: Count = Field(default=1, description="Optimizer updates (mini-batches) in a step")
    epochs: Count = Field(default=1, description="Passes over the batch of a step")
    mfu: Fraction | None = Field(
        default=None, description="Model FLOP utilisation of forward and backward; needed without a profile"
    )
    logprob_mfu: Fraction | None = Field(default=None, description="Of log-probability passes; None: as mfu")
    attention_mfu: Fraction | None = Field(default=None, description="Of attention in all passes; None: as the pass")
    profile: Name | None = Field(default=None, description="Profile of a measured trainer; replaces mfu and overheads")
    packing: Packing = Field(default="packed", description="How sequences fill a micro-batch")
    micro_batch_tokens: Count = Field(default=16384, description="Tokens of a micro-batch on one data-parallel rank")
    activation_recompute: bool = Field(default=False, description="Recompute activations in the backward pass")
    balance: Literal["none", "lpt"] = Field(default="none", description="How samples are spread over ranks")
    old_log_prob: bool = Field(default=True, description="Recompute the log-probabilities of the behaviour model")
    reference: bool = Field(default=False, description="Run a reference model")
    critic: bool = Field(default=False, description="Train a critic")
    expert_utilisation: Fraction = Field(
        default=1.0, description="Utilisation of the experts' grouped products, over that of dense ones"
    )
    pipeline_bubbles: bool = Field(
        default=False, description="Idle stages while a pipeline fills and drains come on top; else they are in mfu"
    )
    fixed_seconds_per_step: Seconds = Field(default=0.0, description="Overhead of a step")
    seconds_per_sample: Seconds = Field(default=0.0, description="Overhead of a sample of a step: rewards, controller")
    seconds_per_update: Seconds = Field(default=0.0, description="Overhead of an optimizer update")
    seconds_per_micro_batch: Seconds = Field(default=0.0, description="Overhead of a micro-batch")
    logprob_seconds_per_micro_batch: Seconds | None = Field(
        default=None, description="The same in log-probability passes; None: as seconds_per_micro_batch"
    )
    optimizer_offload: bool = Field(default=False, description="Keep the optimizer state in host memory")
    weights_offload: bool = Field(default=False, description="Keep the weights there, too, while they are not needed")

    def contradictions(self) -> Iterator[ParameterError]:
        """A split that does not divide the GPUs; speeds from nowhere, or from a profile and from the file."""
        if self.gpus % self.gpus_per_rank:
            split = "tensor_parallel * pipeline_parallel * context_parallel"
            yield ParameterError("gpus", self.gpus, f"a multiple of {self.gpus_per_rank} ({split})")
        if self.profile is None and self.mfu is None:
            yield ParameterError("mfu", None, "a number, above 0 and at most 1, or trainer.profile")
        if self.profile is not None:
            for name in TrainerSpeeds.__slots__:
                if getattr(self, name):
                    yield ParameterError(name, getattr(self, name), "no such key with trainer.profile, which gives it")

    @property
    def gpus_per_rank(self) -> int:
        """GPUs that hold one data-parallel rank."""
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel
