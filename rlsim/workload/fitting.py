"""Laws from the figures that papers and logs give: means after the cap, medians, samples.

How much longer than a sample its whole group takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from rlsim.core.checks import above, whole, within
from rlsim.core.errors import ParameterError
from rlsim.core.streams import FloatArray
from rlsim.workload.empirical import Empirical
from rlsim.workload.lengths import Gamma, LengthDistribution, Lognormal, Pareto, described

Law = TypeVar("Law", bound=LengthDistribution)

_SIGMAS = tuple(0.02 * 1.15**i for i in range(45))
_SHAPES = tuple(0.05 * 1.1**i for i in range(80))
_TAIL_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)
_FEWEST_IN_TAIL = 10
_MEAN_TOLERANCE = 1e-6


def fit_lognormal(
    median_tokens: float | None, mean_tokens: float | None, sigma: float | None, cap_tokens: int
) -> Lognormal:
    """The capped lognormal of any two of uncapped median, mean after the cap, and sigma.

    ParameterError if not exactly two are given, or if no law of the family has that mean under that cap.
    """
    parameters = {"median_tokens": median_tokens, "mean_tokens": mean_tokens, "sigma": sigma}
    missing = [name for name, value in parameters.items() if value is None]
    if len(missing) != 1:
        raise ParameterError("lognormal", sorted(set(parameters) - set(missing)), f"two of {', '.join(parameters)}")
    cap = whole("cap_tokens", cap_tokens)
    if median_tokens is not None and sigma is not None:
        return Lognormal(median_tokens, sigma, cap)
    mean = _reachable_mean(mean_tokens, cap)
    if sigma is not None:
        return _by_scale(lambda median: Lognormal(median, above("sigma", sigma), cap), mean, cap)
    return _by_sigma(above("median_tokens", median_tokens), mean, cap)


def fit_gamma(mean_tokens: float, shape: float, cap_tokens: int) -> Gamma:
    """The gamma law of that shape whose mean after the cap is ``mean_tokens``."""
    cap = whole("cap_tokens", cap_tokens)
    above("shape", shape)
    return _by_scale(lambda scale: Gamma(scale, shape, cap), _reachable_mean(mean_tokens, cap), cap)


def _reachable_mean(mean_tokens: object, cap: int) -> float:
    mean = within("mean_tokens", mean_tokens, 1, cap, open_above=True)
    return above("mean_tokens", mean, 1.0)


def _by_scale(make: Callable[[float], Law], mean: float, cap: int) -> Law:
    low, high = 1e-9, 1.0
    while make(high).mean_tokens() < mean:
        low, high = high, high * 8
        if high > cap * 1e12:
            raise ParameterError("mean_tokens", mean, f"a mean that a cap of {cap} leaves within reach")
    return _bisect(make, low, high, mean)


def _by_sigma(median: float, mean: float, cap: int) -> Lognormal:
    """The smallest sigma with that mean: the capped mean first grows with sigma, then tends to cap / 2."""
    means = [Lognormal(median, _SIGMAS[0], cap).mean_tokens()]
    if means[0] >= mean:
        raise ParameterError("mean_tokens", mean, f"a mean above the median, {median:g}")
    for low, high in pairwise(_SIGMAS):
        means.append(Lognormal(median, high, cap).mean_tokens())
        if means[-1] >= mean:
            return _bisect(lambda sigma: Lognormal(median, sigma, cap), low, high, mean)
    allowed = f"at most {max(means):,.0f}, the largest mean of median {median:g} under cap {cap}"
    raise ParameterError("mean_tokens", mean, allowed)


def _bisect(make: Callable[[float], Law], low: float, high: float, mean: float) -> Law:
    for _ in range(200):
        middle = (low + high) / 2 if high < 2 * low else math.sqrt(low * high)
        law = make(middle)
        error = law.mean_tokens() - mean
        if abs(error) <= _MEAN_TOLERANCE * mean:
            break
        low, high = (low, middle) if error > 0 else (middle, high)
    return law


@dataclass(frozen=True, slots=True)
class Fit:
    """The law chosen for some samples, and the Kolmogorov-Smirnov distance of every candidate."""

    law: LengthDistribution
    ks_distance: float
    candidates: Mapping[str, tuple[LengthDistribution, float]]

    def describe(self) -> str:
        """The choice, then each candidate with its distance."""
        rows = (f"{name} KS {distance:.3f}" for name, (_, distance) in self.candidates.items())
        return f"{described(self.law)}; candidates: {', '.join(rows)}"


@dataclass(frozen=True, slots=True)
class _Observed:
    """Distinct lengths below the cap, and the share of samples below and up to each."""

    values: FloatArray
    below: FloatArray
    up_to: FloatArray

    def distance(self, law: LengthDistribution) -> float:
        """Largest gap between the two step functions, seen from both sides of every observed length."""
        before = np.where(self.values > 1, law.cdf(np.maximum(self.values - 0.5, 0.5)), 0.0)
        gaps = (np.abs(law.cdf(self.values + 0.5) - self.up_to), np.abs(before - self.below))
        return float(max(gaps[0].max(), gaps[1].max()))


def fit_samples(samples: FloatArray, cap_tokens: int, tolerance: float = 0.05) -> Fit:
    """The best law for measured lengths, in tokens; a length at the cap counts as cut there.

    Lognormal and gamma pass through the sample median and take the spread of least KS distance; a Pareto
    tail begins at the sample quantile of least KS distance, over a lognormal body. The closer of lognormal and
    gamma is chosen if its distance is within sampling noise (1.36 / sqrt(n), the 5 % point of Kolmogorov's
    law), else the closest of the three if at most ``tolerance``, else the table itself (distance 0).
    """
    table = Empirical.from_values(np.asarray(samples).tolist(), cap_tokens, "samples")
    tokens = np.clip(np.sort(np.asarray(table.tokens, dtype=np.float64)), 1, cap_tokens)
    median = float(np.median(tokens))
    if median >= cap_tokens:
        raise ParameterError("samples", "a median at the cap", "samples of which fewer than half are cut")
    from scipy.special import gammaincinv

    values, counts = np.unique(tokens[tokens < cap_tokens], return_counts=True)
    up_to = np.cumsum(counts) / len(tokens)
    observed = _Observed(values, up_to - counts / len(tokens), up_to)
    tails = [_tail(tokens, median, share, cap_tokens) for share in _TAIL_SHARES]
    fits: dict[str, tuple[LengthDistribution, float]] = {}
    fits["lognormal"] = _search(lambda sigma: Lognormal(median, sigma, cap_tokens), _SIGMAS, observed)
    fits["gamma"] = _search(lambda k: Gamma(median / float(gammaincinv(k, 0.5)), k, cap_tokens), _SHAPES, observed)
    laws = [law for law in tails if law is not None]
    if laws:
        fits["pareto"] = _closest(laws, observed)
    candidates = fits
    candidates["empirical"] = (table, 0.0)
    chosen = _choose({name: gap for name, (_, gap) in candidates.items()}, len(tokens), tolerance)
    return Fit(*candidates[chosen], candidates)


def _choose(distances: Mapping[str, float], count: int, tolerance: float) -> str:
    simple = min(("lognormal", "gamma"), key=lambda name: distances[name])
    if distances[simple] <= 1.36 / math.sqrt(count):
        return simple
    closest = min((name for name in distances if name != "empirical"), key=lambda name: distances[name])
    return closest if distances[closest] <= tolerance else "empirical"


def _search(make: Callable[[float], Law], grid: tuple[float, ...], observed: _Observed) -> tuple[Law, float]:
    """The closest law on the grid, then between the neighbours of that point."""
    distances = [observed.distance(make(value)) for value in grid]
    best = min(max(int(np.argmin(distances)), 1), len(grid) - 2)
    between = np.geomspace(grid[best - 1], grid[best + 1], 65)
    return _closest([make(float(value)) for value in between], observed)


def _closest(laws: Sequence[Law], observed: _Observed) -> tuple[Law, float]:
    distances = [observed.distance(law) for law in laws]
    best = int(np.argmin(distances))
    return laws[best], distances[best]


def _tail(tokens: FloatArray, median: float, share: float, cap: int) -> Pareto | None:
    """The body passes through the sample's median and its quantile 1 - share, where the tail begins.

    Hill's estimator: lengths seen to end in the tail over the sum of log excesses, cut ones included.
    """
    from scipy.special import ndtri

    threshold = float(np.quantile(tokens, 1 - share))
    excess = tokens[tokens > threshold]
    ended = int(np.count_nonzero(excess < cap))
    if ended < _FEWEST_IN_TAIL or threshold <= median:
        return None
    index = ended / float(np.sum(np.log(excess / threshold)))
    sigma = math.log(threshold / median) / float(ndtri(1 - share))
    return Pareto(threshold, index, cap, share, sigma)


_SCORES = 4096
_PROMPTS = 401
_REACH = 8.0


def group_max_ratio(law: LengthDistribution, members: int, rho: float = 0.0) -> float:
    """M_tail = E[longest of the group] / E[length], under the Gaussian copula of correlation ``rho``.

    Numeric, without random draws: given the prompt's score the members are independent, so the score of the longest
    has cdf G(z) = E over z_prompt of Phi((z - sqrt(rho) z_prompt) / sqrt(1 - rho)) ** members, and the law is
    summed over the increments of G.
    """
    from scipy.special import ndtr

    edges = np.linspace(-_REACH, _REACH, _SCORES + 1)
    shares = np.diff(_longest_cdf(edges, members, rho))
    middles = law.quantile(np.asarray(ndtr((edges[:-1] + edges[1:]) / 2)))
    return float(shares @ middles) / law.mean_tokens()


def _longest_cdf(scores: FloatArray, members: int, rho: float) -> FloatArray:
    from scipy.special import ndtr

    if rho == 0:
        return np.asarray(ndtr(scores) ** members)
    prompts = np.linspace(-_REACH, _REACH, _PROMPTS)
    density = np.exp(-(prompts**2) / 2)
    total = np.zeros_like(scores)
    for prompt, weight in zip(prompts, density / density.sum(), strict=True):
        total += weight * ndtr((scores - math.sqrt(rho) * prompt) / math.sqrt(1 - rho)) ** members
    return total
