"""Laws of token counts: what a quantile is worth in tokens, and what the cap does to the mean.

Every law is capped, because every engine is: the mean that a log shows is the mean after the cap. A drift
multiplies the uncapped length, so a law also says what a quantile would be worth without its cap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rlsim.core.checks import above, whole, within
from rlsim.core.errors import ParameterError
from rlsim.core.streams import FloatArray

TokenArray = npt.NDArray[np.int64]


class LengthDistribution(Protocol):
    """A law of lengths in [1, cap_tokens] tokens, given by its quantiles."""

    __slots__ = ()
    cap_tokens: int

    def uncapped(self, u: FloatArray) -> FloatArray:
        """Real-valued length, in tokens, at quantiles ``u`` in [0, 1), before cap and rounding."""
        ...

    def cdf(self, x: FloatArray) -> FloatArray:
        """P(uncapped length <= x), ``x`` in tokens and positive."""
        ...

    def describe(self) -> str:
        """The law and its parameters, without the cap, in a few words."""
        ...

    def quantile(self, u: FloatArray) -> TokenArray:
        """Tokens at quantiles ``u`` in [0, 1], same shape: capped, then rounded half to even."""
        return np.rint(np.clip(self.uncapped(u), 1, self.cap_tokens)).astype(np.int64)

    def mean_tokens(self) -> float:
        """Mean after cap and rounding: the sum of P(length > k) over k from 0 to the cap."""
        edges = np.arange(1, self.cap_tokens, dtype=np.float64) + 0.5
        return 1.0 + float(np.sum(1.0 - self.cdf(edges)))

    def truncated_share(self) -> float:
        """P(the cap cuts the length)."""
        return 1.0 - float(self.cdf(np.array([self.cap_tokens + 0.5]))[0])


def described(law: LengthDistribution) -> str:
    """The law, its cap and how often that bites."""
    return f"{law.describe()}, cap {law.cap_tokens:,} (cuts {law.truncated_share():.1%})"


def _own_cap(cap_tokens: int, largest: int) -> int:
    return whole("cap_tokens", cap_tokens) if cap_tokens else largest


@dataclass(frozen=True, slots=True)
class Constant(LengthDistribution):
    """Always ``tokens``; a cap of 0 stands for ``tokens`` itself."""

    tokens: int
    cap_tokens: int = 0

    def __post_init__(self) -> None:
        whole("tokens", self.tokens)
        object.__setattr__(self, "cap_tokens", _own_cap(self.cap_tokens, self.tokens))

    def uncapped(self, u: FloatArray) -> FloatArray:
        """``tokens`` whatever the quantile."""
        return np.full(np.shape(u), float(self.tokens))

    def cdf(self, x: FloatArray) -> FloatArray:
        """A step at ``tokens``."""
        return np.where(x >= self.tokens, 1.0, 0.0)

    def describe(self) -> str:
        """The value."""
        return f"constant {self.tokens:,}"


@dataclass(frozen=True, slots=True)
class Uniform(LengthDistribution):
    """Every whole number of [low_tokens, high_tokens] alike; a cap of 0 stands for ``high_tokens``."""

    low_tokens: int
    high_tokens: int
    cap_tokens: int = 0

    def __post_init__(self) -> None:
        whole("low_tokens", self.low_tokens)
        whole("high_tokens", self.high_tokens, low=self.low_tokens)
        object.__setattr__(self, "cap_tokens", _own_cap(self.cap_tokens, self.high_tokens))

    def uncapped(self, u: FloatArray) -> FloatArray:
        """Linear in ``u``, half a token beyond both ends and clipped to them, so that rounding is fair."""
        width = self.high_tokens - self.low_tokens + 1
        return np.clip(self.low_tokens - 0.5 + width * u, self.low_tokens, self.high_tokens)

    def cdf(self, x: FloatArray) -> FloatArray:
        """Linear between the ends."""
        width = self.high_tokens - self.low_tokens + 1
        inside = np.where(x >= self.high_tokens, 1.0, (x - self.low_tokens + 0.5) / width)
        return np.where(x < self.low_tokens, 0.0, inside)

    def describe(self) -> str:
        """The ends."""
        return f"uniform {self.low_tokens:,} to {self.high_tokens:,}"


@dataclass(frozen=True, slots=True)
class Lognormal(LengthDistribution):
    """Normal in log tokens; ``median_tokens`` and ``sigma`` are those of the uncapped law."""

    median_tokens: float
    sigma: float
    cap_tokens: int

    def __post_init__(self) -> None:
        above("median_tokens", self.median_tokens)
        above("sigma", self.sigma)
        whole("cap_tokens", self.cap_tokens)

    def uncapped(self, u: FloatArray) -> FloatArray:
        """median * exp(sigma * z(u))."""
        from scipy.special import ndtri

        return np.asarray(self.median_tokens * np.exp(self.sigma * ndtri(u)))

    def cdf(self, x: FloatArray) -> FloatArray:
        """Normal in log tokens."""
        from scipy.special import ndtr

        return np.asarray(ndtr((np.log(x) - math.log(self.median_tokens)) / self.sigma))

    def describe(self) -> str:
        """Median and spread."""
        return f"lognormal median {self.median_tokens:,.0f}, sigma {self.sigma:.3g}"


@dataclass(frozen=True, slots=True)
class Gamma(LengthDistribution):
    """Gamma with uncapped mean ``shape * scale_tokens``; shape 1 is the exponential."""

    scale_tokens: float
    shape: float
    cap_tokens: int

    def __post_init__(self) -> None:
        above("scale_tokens", self.scale_tokens)
        above("shape", self.shape)
        whole("cap_tokens", self.cap_tokens)

    def uncapped(self, u: FloatArray) -> FloatArray:
        """Inverse of the regularised lower incomplete gamma function."""
        from scipy.special import gammaincinv

        return np.asarray(self.scale_tokens * gammaincinv(self.shape, u))

    def cdf(self, x: FloatArray) -> FloatArray:
        """Regularised lower incomplete gamma function."""
        from scipy.special import gammainc

        return np.asarray(gammainc(self.shape, x / self.scale_tokens))

    def describe(self) -> str:
        """Shape and scale."""
        return f"gamma shape {self.shape:.3g}, scale {self.scale_tokens:,.0f}"


@dataclass(frozen=True, slots=True)
class Pareto(LengthDistribution):
    """A power-law tail above ``threshold_tokens``, over a lognormal body.

    A share ``tail_share`` of lengths exceeds the threshold, as (x / threshold) ** -tail_index; below it the
    length is lognormal of spread ``body_sigma``, joined without a gap. A tail share of 1 is Pareto type I.
    """

    threshold_tokens: float
    tail_index: float
    cap_tokens: int
    tail_share: float = 1.0
    body_sigma: float = 0.0

    def __post_init__(self) -> None:
        above("threshold_tokens", self.threshold_tokens)
        above("tail_index", self.tail_index)
        whole("cap_tokens", self.cap_tokens)
        above("tail_share", within("tail_share", self.tail_share, 0.0, 1.0))
        if self.tail_share < 1:
            above("body_sigma", self.body_sigma)

    @classmethod
    def spliced(
        cls, median_tokens: float, sigma: float, tail_share: float, tail_index: float, cap_tokens: int
    ) -> Pareto:
        """The lognormal (median, sigma) whose top ``tail_share``, below one half, has a Pareto tail."""
        from scipy.special import ndtri

        above("median_tokens", median_tokens)
        above("sigma", sigma)
        above("tail_share", within("tail_share", tail_share, 0.0, 0.5))
        threshold = median_tokens * math.exp(sigma * float(ndtri(1 - tail_share)))
        return cls(threshold, tail_index, cap_tokens, tail_share, sigma)

    def uncapped(self, u: FloatArray) -> FloatArray:
        """Body below quantile 1 - tail_share, power law above."""
        from scipy.special import ndtri

        with np.errstate(divide="ignore"):
            above_threshold = np.minimum((1 - u) / self.tail_share, 1.0) ** (-1 / self.tail_index)
        if self.tail_share == 1:
            return np.asarray(self.threshold_tokens * above_threshold)
        join = 1 - self.tail_share
        below = np.exp(self.body_sigma * (ndtri(np.minimum(u, join)) - ndtri(join)))
        return np.asarray(self.threshold_tokens * below * above_threshold)

    def cdf(self, x: FloatArray) -> FloatArray:
        """Body below the threshold, power law above."""
        from scipy.special import ndtr, ndtri

        ratio = x / self.threshold_tokens
        tail = 1 - self.tail_share * np.maximum(ratio, 1.0) ** -self.tail_index
        if self.tail_share == 1:
            return np.where(ratio < 1, 0.0, tail)
        body = ndtr(ndtri(1 - self.tail_share) + np.log(ratio) / self.body_sigma)
        return np.where(ratio < 1, body, tail)

    def describe(self) -> str:
        """Tail index and where the tail starts."""
        tail = f"pareto index {self.tail_index:.3g} above {self.threshold_tokens:,.0f}"
        return f"{tail} ({self.tail_share:.1%} of lengths)"


@dataclass(frozen=True, slots=True)
class Mixture(LengthDistribution):
    """Each length is from ``laws[i]`` with probability ``weights[i]`` (scaled to sum to 1).

    Laws whose cap bites must share one cap: an engine has one limit. Quantiles are by interpolation of
    the exact cdf on the quantiles of the laws at 4,097 normal scores each, both sides of a jump.
    """

    weights: tuple[float, ...]
    laws: tuple[LengthDistribution, ...]
    cap_tokens: int = field(init=False)
    _cdf: FloatArray = field(init=False, repr=False, compare=False)
    _tokens: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.laws or len(self.laws) != len(self.weights):
            raise ParameterError("weights", len(self.weights), f"one weight a law ({len(self.laws)} laws)")
        total = sum(above(f"weights.{i}", weight) for i, weight in enumerate(self.weights))
        object.__setattr__(self, "weights", tuple(weight / total for weight in self.weights))
        object.__setattr__(self, "cap_tokens", self._common_cap())
        from scipy.special import ndtr

        scores = np.asarray(ndtr(np.linspace(-8.2, 8.2, 4097)))
        values = np.unique(np.concatenate([law.uncapped(scores) for law in self.laws]))
        values = values[values > 0]
        tokens = np.unique(np.concatenate([values, np.nextafter(values, 0.0)]))
        object.__setattr__(self, "_tokens", tokens)
        object.__setattr__(self, "_cdf", self.cdf(tokens))

    def _common_cap(self) -> int:
        cap = max(law.cap_tokens for law in self.laws)
        for i, law in enumerate(self.laws):
            if law.cap_tokens < cap and law.truncated_share() > 0:
                raise ParameterError(f"laws.{i}.cap_tokens", law.cap_tokens, f"the mixture's cap, {cap}")
        return cap

    def uncapped(self, u: FloatArray) -> FloatArray:
        """Interpolated inverse of the cdf."""
        return np.asarray(np.interp(u, self._cdf, self._tokens))

    def cdf(self, x: FloatArray) -> FloatArray:
        """Weighted sum of the laws' own."""
        parts = [weight * law.cdf(x) for weight, law in zip(self.weights, self.laws, strict=True)]
        return np.asarray(np.minimum(np.sum(parts, axis=0), 1.0))

    def describe(self) -> str:
        """The laws and their weights."""
        parts = (f"{w:.0%} {law.describe()}" for w, law in zip(self.weights, self.laws, strict=True))
        return "mixture of " + " and ".join(parts)
