"""An engine on a share of a GPU's SMs: what computes slows down with the share, what reads memory less.

Estimates: compute runs at ``sm_share`` of its rate, memory is read at ``min(1, sm_share / saturation)`` of its rate,
where ``saturation`` is the share of the SMs that suffices for the full rate. Launches, links and the host are as on
the whole GPU. Engines that read at the same time are not slowed down by each other: with a saturation below 1 their
rates may add up to more than the memory gives (semi-PD, arXiv 2504.19867, partitions the SMs; its rates are its own).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlsim.costs.catalogue import Device
from rlsim.costs.fields import fraction
from rlsim.costs.provenance import Provenance
from rlsim.costs.steplaw import StepLaw, interpolate


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

    def measured(self, law: StepLaw, whole: StepLaw, part: StepLaw) -> StepLaw:
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

    def given(self, base: float, sequence: float, kv: float, token: float, pair: float) -> StepLaw:
        """The user's coefficients in seconds on the share: an empty step and a KV token read, the others compute."""
        memory, share = self.memory_share, self.sm_share
        law = StepLaw.affine(base / memory, sequence / share, kv / memory, token / share, pair / share)
        return replace(law, provenance=self.provenance(law))

    def provenance(self, law: StepLaw) -> Provenance:
        """Whatever the whole GPU's law is, on a share it is an estimate."""
        rates = f"on {self.sm_share:.0%} of the SMs, with {self.memory_share:.0%} of the memory rate (assumed)"
        return Provenance("estimate", f"{law.provenance.source}, {rates}")


def _dense(law: StepLaw, tokens: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return interpolate(np.array(tokens), law.tokens, law.dense_seconds)
