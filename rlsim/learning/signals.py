"""Readings of a response while it is made: noisy, deterministic, and never the outcome itself.

``quality`` and ``confidence`` are binormal: d' * (outcome - 1/2) plus standard normal noise, where d' is
sqrt(2) * Phi^-1(AUROC) (Green and Swets, Signal Detection Theory and Psychophysics, 1966). ``entropy``
reads 4 p (1 - p), ``teacher-overlap`` falls at a drift of constant hazard, ``repetition`` is 1 once a response repeats
itself. A share of the noise is the sample's own; the rest is new at every hundredth of the response.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from rlsim.core.errors import unknown
from rlsim.core.streams import FloatArray
from rlsim.learning.model import Auroc, Signals
from rlsim.workload.draws import GroupDistribution, GroupDraws, Independent, IndependentNormals

NAMES = ("quality", "confidence", "entropy", "teacher-overlap", "repetition")
PLACES = 100
"""Places of a response at which the noise of a reading is new."""
_NORMAL = NormalDist()
_CERTAIN = 1e-6


def d_prime(auroc: float) -> float:
    """Distance of the two normal readings, in standard deviations, that has this area under its ROC curve."""
    return math.sqrt(2.0) * _NORMAL.inv_cdf(min(max(auroc, _CERTAIN), 1 - _CERTAIN))


def _as_drawn(values: FloatArray) -> FloatArray:
    return np.asarray(values)


class Readings:
    """The signals of one run, by name."""

    def __init__(self, signals: Signals, seed: int, group_size: int) -> None:
        self._signals, self._seed, self._size = signals, seed, group_size
        self._own, self._new = math.sqrt(signals.persistence), math.sqrt(1 - signals.persistence)
        self._draws: dict[str, GroupDraws] = {}
        laws: tuple[Callable[..., float], ...] = (
            lambda *reading: self._binormal(signals.quality, "quality", *reading),
            lambda *reading: self._binormal(signals.confidence, "confidence", *reading),
            self._entropy,
            self._overlap,
            self._repetition,
        )
        self._by_name = dict(zip(NAMES, laws, strict=True))

    def read(
        self, name: str, prompt: int, attempt: int, member: int, share: float, outcome: bool, success: float
    ) -> float:
        """The reading at ``share`` of the response, in (0, 1]; ``ParameterError`` for an unknown signal."""
        reading = self._by_name.get(name)
        if reading is None:
            raise unknown("signal", name, self._by_name)
        if not 0.0 < share <= 1.0:
            raise ValueError(f"share {share} of a response")
        return reading((prompt, attempt, member), share, outcome, success)

    def _binormal(
        self, auroc: Auroc, name: str, who: tuple[int, int, int], share: float, outcome: bool, success: float
    ) -> float:
        return d_prime(auroc.at(share)) * (outcome - 0.5) + self._noise(name, who, share)

    def _entropy(self, who: tuple[int, int, int], share: float, outcome: bool, success: float) -> float:
        return 4 * success * (1 - success) + self._signals.entropy_noise * self._noise("entropy", who, share)

    def _overlap(self, who: tuple[int, int, int], share: float, outcome: bool, success: float) -> float:
        law = self._signals.overlap
        fallen = law.drop if share >= self.drift_share(who, outcome) else 0.0
        return law.level - fallen + law.noise * self._noise("overlap", who, share)

    def drift_share(self, who: tuple[int, int, int], outcome: bool) -> float:
        """Share of the response before it drifts; above 1 where it does not. Hidden: a policy sees the overlap."""
        law = self._signals.overlap
        drifts = law.success_drifts if outcome else law.failure_drifts
        return -math.log1p(-self._even("overlap drift", who)) / drifts if drifts else math.inf

    def _repetition(self, who: tuple[int, int, int], share: float, outcome: bool, success: float) -> float:
        return float(share >= self.repeats_share(who, outcome))

    def repeats_share(self, who: tuple[int, int, int], outcome: bool) -> float:
        """Share of the response before it repeats itself, endless where it does not. Hidden too."""
        flagged = self._signals.repetition_false if outcome else self._signals.repetition_share
        return self._even("repetition onset", who) if self._even("repeats", who) < flagged else math.inf

    def _noise(self, name: str, who: tuple[int, int, int], share: float) -> float:
        draws = self._drawn(name, IndependentNormals())
        prompt, attempt, member = who
        own = draws.value(prompt, attempt, 0, member)
        return self._own * own + self._new * draws.value(prompt, attempt, math.ceil(share * PLACES), member)

    def _even(self, name: str, who: tuple[int, int, int]) -> float:
        prompt, attempt, member = who
        return self._drawn(name, Independent()).value(prompt, attempt, 0, member)

    def _drawn(self, name: str, law: GroupDistribution) -> GroupDraws:
        if name not in self._draws:
            self._draws[name] = GroupDraws(self._seed, f"signal {name}", self._size, law, _as_drawn)
        return self._draws[name]
