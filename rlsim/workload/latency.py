"""Laws of time: how long tools, environments and rewards take, in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from rlsim.core.checks import above, within
from rlsim.core.errors import ParameterError
from rlsim.core.streams import FloatArray
from rlsim.workload.empirical import read_samples

LONGEST_SECONDS = 1e9


class LatencyDistribution(Protocol):
    """A law of durations from 0, in seconds, given by its quantiles."""

    __slots__ = ()

    def quantile(self, u: FloatArray) -> FloatArray:
        """Seconds at quantiles ``u`` in [0, 1), same shape."""
        ...

    def expected_seconds(self) -> float:
        """Mean, after the cap where there is one."""
        ...

    def describe(self) -> str:
        """The law and its parameters in a few words."""
        ...


def _check_cap(cap_seconds: float) -> None:
    if cap_seconds != math.inf:
        above("cap_seconds", cap_seconds)


def _cap_text(cap_seconds: float) -> str:
    return "" if cap_seconds == math.inf else f", cap {cap_seconds:g} s"


@dataclass(frozen=True, slots=True)
class ConstantLatency(LatencyDistribution):
    """Always ``seconds``."""

    seconds: float

    def __post_init__(self) -> None:
        within("seconds", self.seconds, 0.0, LONGEST_SECONDS)

    def quantile(self, u: FloatArray) -> FloatArray:
        return np.full(np.shape(u), float(self.seconds))

    def expected_seconds(self) -> float:
        return float(self.seconds)

    def describe(self) -> str:
        return f"constant {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class LognormalLatency(LatencyDistribution):
    """Normal in log seconds, cut at ``cap_seconds``; median and sigma are those before the cap."""

    median_seconds: float
    sigma: float
    cap_seconds: float = math.inf

    def __post_init__(self) -> None:
        above("median_seconds", self.median_seconds)
        above("sigma", self.sigma)
        _check_cap(self.cap_seconds)

    def quantile(self, u: FloatArray) -> FloatArray:
        """median * exp(sigma * z(u)), at most the cap."""
        from scipy.special import ndtri

        return np.minimum(self.median_seconds * np.exp(self.sigma * ndtri(u)), self.cap_seconds)

    def expected_seconds(self) -> float:
        """Limited expected value of the lognormal (Klugman, Panjer and Willmot, "Loss Models", app. A)."""
        from scipy.special import ndtr

        mean = self.median_seconds * math.exp(self.sigma**2 / 2)
        if self.cap_seconds == math.inf:
            return mean
        z = math.log(self.cap_seconds / self.median_seconds) / self.sigma
        return mean * float(ndtr(z - self.sigma)) + self.cap_seconds * float(ndtr(-z))

    def describe(self) -> str:
        median = f"lognormal median {self.median_seconds:g} s"
        return f"{median}, sigma {self.sigma:.3g}{_cap_text(self.cap_seconds)}"


@dataclass(frozen=True, slots=True)
class GammaLatency(LatencyDistribution):
    """Gamma, cut at ``cap_seconds``; mean and shape are those before the cap. Shape 1 is the exponential."""

    mean_seconds: float
    shape: float = 1.0
    cap_seconds: float = math.inf

    def __post_init__(self) -> None:
        above("mean_seconds", self.mean_seconds)
        above("shape", self.shape)
        _check_cap(self.cap_seconds)

    def quantile(self, u: FloatArray) -> FloatArray:
        """Inverse of the regularised lower incomplete gamma function, at most the cap."""
        from scipy.special import gammaincinv

        scale = self.mean_seconds / self.shape
        return np.asarray(np.minimum(scale * gammaincinv(self.shape, u), self.cap_seconds))

    def expected_seconds(self) -> float:
        """Limited expected value of the gamma law ("Loss Models", app. A)."""
        from scipy.special import gammainc, gammaincc

        if self.cap_seconds == math.inf:
            return float(self.mean_seconds)
        ratio = self.cap_seconds * self.shape / self.mean_seconds
        below = self.mean_seconds * float(gammainc(self.shape + 1, ratio))
        return below + self.cap_seconds * float(gammaincc(self.shape, ratio))

    def describe(self) -> str:
        name = "exponential" if self.shape == 1 else f"gamma shape {self.shape:.3g},"
        return f"{name} mean {self.mean_seconds:g} s{_cap_text(self.cap_seconds)}"


@dataclass(frozen=True, slots=True)
class NormalLatency(LatencyDistribution):
    """Normal, with 0 in place of what is negative; ``mean_seconds`` and ``deviation_seconds`` are those before that.

    How ROLL Flash (arXiv 2510.11345) and RollArt (arXiv 2512.22560) draw the latency of environments.
    """

    mean_seconds: float
    deviation_seconds: float

    def __post_init__(self) -> None:
        above("mean_seconds", self.mean_seconds)
        above("deviation_seconds", self.deviation_seconds)

    def quantile(self, u: FloatArray) -> FloatArray:
        """mean + deviation * z(u), at least 0."""
        from scipy.special import ndtri

        return np.asarray(np.maximum(self.mean_seconds + self.deviation_seconds * ndtri(u), 0.0))

    def expected_seconds(self) -> float:
        """Mean of the rectified normal: mean * Phi(r) + deviation * phi(r), r their ratio."""
        from scipy.special import ndtr

        ratio = self.mean_seconds / self.deviation_seconds
        density = math.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
        return self.mean_seconds * float(ndtr(ratio)) + self.deviation_seconds * density

    def describe(self) -> str:
        return f"normal mean {self.mean_seconds:g} s, deviation {self.deviation_seconds:g} s, at least 0"


@dataclass(frozen=True, slots=True)
class EmpiricalLatency(LatencyDistribution):
    """Each of the measured ``seconds`` alike."""

    seconds: tuple[float, ...] = field(repr=False)
    _table: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.seconds:
            raise ParameterError("seconds", [], "at least one duration")
        for i, value in enumerate(self.seconds):
            within(f"seconds.{i}", value, 0.0, LONGEST_SECONDS)
        object.__setattr__(self, "_table", np.sort(np.asarray(self.seconds, dtype=np.float64)))

    @classmethod
    def from_file(cls, file: Path, *, column: str | None = None, path: str = "file") -> EmpiricalLatency:
        """From a file that `rlsim.workload.empirical.read_samples` reads."""
        return cls(tuple(read_samples(file, path, column, largest=LONGEST_SECONDS)))

    def quantile(self, u: FloatArray) -> FloatArray:
        """The value of rank floor(u * n)."""
        ranks = np.minimum(np.asarray(u) * len(self._table), len(self._table) - 1)
        return np.asarray(self._table[ranks.astype(np.int64)])

    def expected_seconds(self) -> float:
        return float(self._table.mean())

    def describe(self) -> str:
        return f"table of {len(self.seconds):,} durations, mean {self.expected_seconds():.3g} s"
