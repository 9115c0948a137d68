"""A bench with a known law on a shared machine: made-up steps, host speed and interruptions, and a made-up clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from calibration.measure.design import StepLimits
from calibration.measure.points import StepPoint, TimedStep
from rlsim.costs.step_model import StepTimeModel

LIMITS = StepLimits(max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=2304, block_size=128, kv_blocks=1400)

TRUTH = StepTimeModel.affine(
    base_seconds=6.2e-3,
    per_sequence_seconds=4.0e-4,
    per_kv_token_seconds=8.0e-7,
    per_prefill_token_seconds=2.1e-4,
    per_pair_seconds=1.7e-7,
)

BENT = StepTimeModel(
    tokens=(1, 16, 256, 2048),
    dense_seconds=(6.0e-3, 6.4e-3, 3.0e-2, 3.4e-1),
    sequences=(1, 64),
    sequence_seconds=(0.0, 6.3e-3),
    decodes=(1,),
    kv_seconds_per_token=(6.0e-7,),
    pair_seconds=1.2e-7,
)
"""The fit may bend in these places."""

KINKED = replace(BENT, tokens=(1, 24, 400, 2048), dense_seconds=(6.0e-3, 6.6e-3, 4.5e-2, 3.4e-1))
"""Bends where no family of the fit has one."""


@dataclass
class NoisyBench:
    """Host speed flips between full and less than half for seconds; steps jitter and are interrupted."""

    law: StepTimeModel
    seed: int
    slow_share: float = 1 / 3
    """Of the time that the host is slow, by a factor of 2 to 2.75 (240 against 520 to 660 us)."""
    interrupted: float = 0.05
    """Probability that another process takes the CPU during a step."""
    jitter: float = 0.025
    now: float = 0.0
    own_cpu: bool = True
    asked: list[StepPoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._until, self._factor = 0.0, 1.0

    def clock(self) -> float:
        return self.now

    def reference_seconds(self) -> float:
        return min(self._spend(240e-6)[1] for _ in range(3))

    def measure(self, point: StepPoint, repeats: int) -> list[TimedStep]:
        assert LIMITS.possible(point), point
        self.asked.append(point)
        self.now += 0.02
        return [self._step(point, grown) for grown in range(repeats)]

    def _step(self, point: StepPoint, grown: int) -> TimedStep:
        at = point.sample(1.0)
        kv_tokens = at.kv_tokens + grown * at.decodes
        true = self.law.mixed_seconds(at.decodes, kv_tokens, at.chunks, at.prefill_tokens, at.pairs)
        wall, cpu = self._spend(true)
        return TimedStep(wall, at.decodes, kv_tokens, at.chunks, at.prefill_tokens, int(at.pairs), cpu_seconds=cpu)

    def _spend(self, seconds: float) -> tuple[float, float]:
        if self.now >= self._until:
            self._flip()
        cpu = seconds * self._factor * float(np.exp(self.jitter * self._random.standard_normal()))
        stolen = float(self._random.exponential(0.03)) if self._random.random() < self.interrupted else 0.0
        self.now += cpu + stolen
        return cpu + stolen, cpu

    def _flip(self) -> None:
        slow = self._random.random() < self.slow_share
        self._factor = float(self._random.uniform(2.0, 2.75)) if slow else float(self._random.uniform(0.99, 1.01))
        self._until = self.now + float(self._random.exponential(3.0))
