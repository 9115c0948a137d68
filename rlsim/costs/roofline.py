"""A step law from data-sheet facts alone: an estimate, for models and GPUs nobody has profiled yet.

A step reads the weights it touches and multiplies them; the slower of the two sets the time (the roofline
of arXiv 2606.18967, with its fitted efficiencies). A mixture of experts reads ``1-(1-k/E)^T`` of its experts
for ``T`` tokens.

An engine on a share of a GPU's SMs: what computes slows down with the share, what reads memory less.

Estimates: compute runs at ``sm_share`` of its rate, memory is read at ``min(1, sm_share / saturation)`` of its rate,
where ``saturation`` is the share of the SMs that suffices for the full rate. Launches, links and the host are as on
the whole GPU. Engines that read at the same time are not slowed down by each other: with a saturation below 1 their
rates may add up to more than the memory gives (semi-PD, arXiv 2504.19867, partitions the SMs; its rates are its own).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from rlsim.core.errors import ParameterError
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.evidence import Provenance
from rlsim.costs.fields import count, fraction, non_negative
from rlsim.costs.step_model import StepTimeModel, interpolate


@dataclass(frozen=True, slots=True)
class Efficiency:
    """How much of the data sheet a real engine reaches; the defaults say where they come from.

    *The tables* are those of aiconfigurator-core 0.12 for H100 and vLLM 0.24. *Chosen* marks a value of this
    project that makes the estimate resemble the tables and the A100 steps of arXiv 2606.18967 at small batches.
    """

    memory: float = 0.77
    """Of the memory rate. arXiv 2606.18967 fits 1.57-1.62 of 2.039 TB/s on A100 (0.77-0.79)."""
    kv: float = 0.92
    """Of the memory rate in decode attention: fits to the tables give 0.92-0.96."""
    compute: float = 0.75
    """Of the dense peak in large matrix products. arXiv 2606.18967 fits 233.5 of 312 TFLOP/s on A100; fits
    to the tables give 0.70-0.75 for 8B models and, collectives included, 0.54-0.63 for 32B on 4 and 2 GPUs."""
    expert_compute: float = 0.25
    """Of the dense peak in grouped expert products. Chosen; a fit to the tables gives 0.33 for all of
    Qwen3-30B-A3B, dense parts included."""
    attention_compute: float = 0.60
    """Of the dense peak in prefill attention. Chosen, below the 0.67-0.75 that fits to the tables give, as
    short prompts reach less."""
    sequence_seconds: float = 15e-6
    """Head, sampling and bookkeeping of one sequence. Chosen; arXiv 2606.18967 fits 39-74 us on A100 with
    fewer KV bytes than the models have."""
    layer_seconds: float = 8e-6
    """Launches and small kernels of one layer (norms, rotary, activation). Chosen."""
    expert_layer_seconds: float = 25e-6
    """Routing and dispatch of one layer of experts. Chosen."""
    collective_seconds: float = 5e-6
    """Start of a small all-reduce: 5.1 us for 8 KB on 8 GPUs in the tables."""
    node_collective_seconds: float = 102e-6
    """The same over nodes, of H100: the network measurements of vidur (MIT) have 155 us for 16 A100 on 2 nodes, and
    19 us for H100 against 29 us for A100 from one GPU to another; the ratio is taken for the whole."""
    collective_link: float = 0.6
    """Of the link rate that an all-reduce reaches: 260 of 450 GB/s between 2 GPUs in the tables."""

    def __post_init__(self) -> None:
        for item in fields(self):
            check = non_negative if item.name.endswith("_seconds") else fraction
            check(f"efficiency.{item.name}", getattr(self, item.name))


TOKEN_KNOTS = tuple(sorted({1, 3, *(2**n for n in range(15)), *(3 * 2**n for n in range(1, 13))}))
"""Token counts at which the roofline is evaluated, 1 to 16384."""


@dataclass(frozen=True, slots=True)
class _Replica:
    """One engine instance on its GPUs."""

    model: Architecture
    device: Device
    tensor_parallel: int
    pipeline_parallel: int
    expert_ranks: int
    efficiency: Efficiency
    bytes_per_parameter: float
    gpus_per_node: int

    def dense_seconds(self, tokens: int) -> float:
        """All layers of all pipeline stages, one after the other, for one micro-batch."""
        launches = self.model.layers * self.efficiency.layer_seconds
        launches += self.model.moe_layers * self.efficiency.expert_layer_seconds
        return self._shared(tokens) + self._experts(tokens) + self._collectives(tokens) + launches

    def _shared(self, tokens: int) -> float:
        embedding = 0 if self.model.tied_embeddings else self.model.vocab * self.model.hidden
        read = (self.model.shared_parameters() - embedding) * self.bytes_per_parameter
        flops = (self.model.token_flops() - 2.0 * self.model.active_expert_parameters()) * tokens
        compute = self.device.bf16_flops * self.efficiency.compute
        return max(read / self.memory_rate, flops / compute) / self.tensor_parallel

    def _experts(self, tokens: int) -> float:
        if self.model.experts is None:
            return 0.0
        read = self.model.expert_parameters() * self.bytes_per_parameter * self.model.experts.touched(tokens)
        flops = 2.0 * self.model.active_expert_parameters() * tokens
        compute = self.device.bf16_flops * self.efficiency.expert_compute
        return max(read / self.memory_rate, flops / compute) / self.expert_ranks

    def _collectives(self, tokens: int) -> float:
        sent = tokens * self.model.hidden * 2.0
        reduces = 2 * self.model.layers if self.tensor_parallel > 1 else 0
        volume = 2.0 * sent * (self.tensor_parallel - 1) / self.tensor_parallel
        start, rate = self._link(self.tensor_parallel)
        hops = (self.pipeline_parallel - 1) * (self.efficiency.collective_seconds + sent / self._link(1)[1])
        return reduces * (start + volume / rate) + hops

    def _link(self, ranks: int) -> tuple[float, float]:
        """Start and rate of an exchange of so many GPUs: those of a node, or of the network between nodes."""
        if ranks <= self.gpus_per_node:
            return (
                self.efficiency.collective_seconds,
                self.device.link_bytes_per_second * self.efficiency.collective_link,
            )
        rate = self.device.inter_node_bytes_per_second * self.efficiency.collective_link
        return self.efficiency.node_collective_seconds, rate

    @property
    def memory_rate(self) -> float:
        """Bytes a second that one GPU reads."""
        return self.device.memory_bytes_per_second * self.efficiency.memory

    def sequence_seconds(self) -> float:
        """One more sequence: bookkeeping, its recurrent state read and written, and its sliding windows read."""
        state = 2.0 * self.model.state_bytes_per_sequence() - self.model.window_bytes_per_sequence()
        state /= self.tensor_parallel
        return self.efficiency.sequence_seconds + state / self.memory_rate

    def pair_seconds(self) -> float:
        """One (query, key) pair of prefill attention."""
        compute = self.device.bf16_flops * self.efficiency.attention_compute
        return self.model.pair_flops() / self.tensor_parallel / compute


def roofline(
    architecture: Architecture,
    device: Device,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    expert_parallel: int = 1,
    efficiency: Efficiency | None = None,
    bytes_per_parameter: float = 2.0,
    kv_bytes_per_element: float = 2.0,
    gpus_per_node: int = 8,
) -> StepTimeModel:
    """An estimated law. A step of one micro-batch passes every pipeline stage.

    Tensor-parallel ranks on several nodes reduce over the network.

    Experts are spread over ``max(tensor_parallel, expert_parallel)`` GPUs under even routing; the exchange
    between expert ranks beyond the tensor-parallel group is left out. Raises ``ParameterError`` for
    degrees below 1 and for efficiencies outside (0, 1].
    """
    for name, degree in (("tensor_parallel", tensor_parallel), ("pipeline_parallel", pipeline_parallel)):
        count(name, degree)
    if tensor_parallel > architecture.heads:
        raise ParameterError("tensor_parallel", tensor_parallel, f"at most {architecture.heads} (the heads)")
    ranks = max(tensor_parallel, count("expert_parallel", expert_parallel))
    efficiency = efficiency or Efficiency()
    replica = _Replica(
        model=architecture,
        device=device,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        expert_ranks=ranks,
        efficiency=efficiency,
        bytes_per_parameter=bytes_per_parameter,
        gpus_per_node=count("gpus_per_node", gpus_per_node),
    )
    one = replica.sequence_seconds()
    kv_bytes = architecture.kv_bytes_per_token_per_gpu(tensor_parallel, kv_bytes_per_element)
    return StepTimeModel(
        tokens=TOKEN_KNOTS,
        dense_seconds=tuple(replica.dense_seconds(tokens) for tokens in TOKEN_KNOTS),
        sequences=(1, 2),
        sequence_seconds=(one, 2 * one),
        decodes=(1,),
        kv_seconds_per_token=(kv_bytes / (device.memory_bytes_per_second * efficiency.kv),),
        pair_seconds=replica.pair_seconds(),
        provenance=Provenance("estimate", f"roofline of {architecture.name} on {device.name}"),
    )


@dataclass(frozen=True, slots=True)
class Partition:
    """A share of the SMs of every GPU of an engine. Raises ``ParameterError`` for shares outside (0, 1]."""

    sm_share: float
    saturation: float = 1.0

    def __post_init__(self) -> None:
        fraction("sm_share", self.sm_share)
        fraction("bandwidth_saturation", self.saturation)

    @property
    def memory_share(self) -> float:
        """Of the memory rate."""
        return min(1.0, self.sm_share / self.saturation)

    def device(self, whole: Device) -> Device:
        """A device with the rates of the share: a roofline of it is exact, as every term there has one of the two."""
        return replace(
            whole,
            bf16_flops=whole.bf16_flops * self.sm_share,
            memory_bytes_per_second=whole.memory_bytes_per_second * self.memory_share,
        )

    def measured(self, law: StepTimeModel, whole: StepTimeModel, part: StepTimeModel) -> StepTimeModel:
        """A measured law on the share: it cannot tell compute from reading, so rooflines of both say how much slower.

        Dense work is scaled by the ratio of the two rooflines at each of its knots, KV reads by the memory rate, pairs
        by the compute rate; the terms by sequence, and prefill's beyond its pairs (launches), are left as they are.
        """
        ratio = _dense(part, law.tokens) / _dense(whole, law.tokens)
        slower = np.maximum.accumulate(np.array(law.dense_seconds) * ratio)
        return replace(
            law,
            dense_seconds=tuple(slower.tolist()),
            kv_seconds_per_token=tuple(seconds / self.memory_share for seconds in law.kv_seconds_per_token),
            mixed_kv_seconds_per_token=tuple(seconds / self.memory_share for seconds in law.mixed_kv_seconds_per_token),
            pair_seconds=law.pair_seconds / self.sm_share,
            provenance=self.provenance(law),
        )

    def affine(self, base: float, sequence: float, kv: float, token: float, pair: float) -> StepTimeModel:
        """The user's coefficients in seconds on the share: an empty step and a KV token read, the others compute."""
        memory, share = self.memory_share, self.sm_share
        law = StepTimeModel.affine(base / memory, sequence / share, kv / memory, token / share, pair / share)
        return replace(law, provenance=self.provenance(law))

    def provenance(self, law: StepTimeModel) -> Provenance:
        """Whatever the whole GPU's law is, on a share it is an estimate."""
        rates = f"on {self.sm_share:.0%} of the SMs, with {self.memory_share:.0%} of the memory rate (assumed)"
        return Provenance("estimate", f"{law.provenance.source}, {rates}")


def _dense(law: StepTimeModel, tokens: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return interpolate(np.array(tokens), law.tokens, law.dense_seconds)
