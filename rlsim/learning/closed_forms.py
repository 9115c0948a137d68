"""Formulas about groups, allocation and reuse that need no simulation: oracles for what is simulated.

p is the success probability of a prompt, n a number of samples. Rewards are 0 or 1 unless said otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlsim.core.group_statistics import inverse_success_group, square_root_sizes, useful_group
from rlsim.core.streams import FloatArray

__all__ = [
    "dr_grpo_variance",
    "expected_max_exponential",
    "expected_max_pareto",
    "inverse_success_group",
    "mean_accepted_share",
    "over_sampling",
    "pass_at",
    "refined_rounds_speedup",
    "rejections_for_share",
    "rloo_allocation",
    "rloo_variance",
    "square_root_allocation",
    "useful_group",
]


def dr_grpo_variance(success: float, samples: int, scale: float = 1.0) -> float:
    """Variance of Dr.GRPO's gradient of a prompt, rewards of +-1: (n - 1) / n^2 * 4 scale^2 p (1 - p) (VIP)."""
    return (samples - 1) / samples**2 * 4 * scale**2 * success * (1 - success)


def rloo_variance(success: float, samples: int, scale: float = 1.0) -> float:
    """The same of RLOO: 4 scale^2 p (1 - p) / (n - 1) (VIP); at least two samples."""
    return 4 * scale**2 * success * (1 - success) / (samples - 1)


def square_root_allocation(
    variances: Sequence[float],
    budget: float,
    shares: Sequence[float] | None = None,
    costs: Sequence[float] | None = None,
) -> FloatArray:
    """Samples by kind of prompt that make sum(share * variance / n) least under sum(share * cost * n) = budget.

    n ~ sqrt(variance / cost): Neyman's allocation, GDRO's square-root rule. Not rounded; shape (kinds,).
    """
    v = np.asarray(variances, dtype=float)
    q = np.ones_like(v) if shares is None else np.asarray(shares, dtype=float)
    c = np.ones_like(v) if costs is None else np.asarray(costs, dtype=float)
    return np.asarray(square_root_sizes(v.tolist(), budget, q.tolist(), c.tolist()))


def rloo_allocation(successes: Sequence[float], budget: float) -> FloatArray:
    """Samples by prompt that make the sum of ``rloo_variance`` least: n - 1 ~ sqrt(p (1 - p)), sum n = budget."""
    p = np.asarray(successes, dtype=float)
    weights = np.sqrt(p * (1 - p))
    return np.asarray(1 + (budget - len(p)) * weights / weights.sum())


def over_sampling(useful: float) -> float:
    """Groups made for each one that is kept: 1 / probability of keeping."""
    return 1 / useful


def pass_at(success: float, samples: int) -> float:
    """Probability of a success among n samples."""
    return 1 - (1 - success) ** samples


def expected_max_exponential(mean: float, samples: int) -> float:
    """Mean of the largest of n exponentials: mean * H_n."""
    return mean * sum(1 / count for count in range(1, samples + 1))


def expected_max_pareto(least: float, tail_index: float, samples: int) -> float:
    """Mean of the largest of n Pareto values; tail index above 1."""
    inverse = 1 / tail_index
    logs = math.lgamma(samples + 1) + math.lgamma(1 - inverse) - math.lgamma(samples + 1 - inverse)
    return least * math.exp(logs)


def refined_rounds_speedup(tail_index: float, rounds: int, kept: float) -> float:
    """Progress a sample of equal rounds over that of one, each on the best share ``kept`` of the last one's prompts.

    Derived by us, not VIGOR's text: progress is proportional to reward variance, which is Pareto over prompts and known
    after the first round, so that the best share q has q^(-1 / tail_index) of the mean; an upper bound. Bounded rewards
    have bounded variance, where it cannot hold for many rounds.
    """
    return float(sum(kept ** (-done / tail_index) for done in range(rounds)) / rounds)


def mean_accepted_share(rejections: float) -> float:
    """Mean share of an old trajectory before its first rejection, at a constant hazard: (1 - exp(-h)) / h."""
    return -math.expm1(-rejections) / rejections if rejections else 1.0


def rejections_for_share(accepted: float) -> float:
    """Rejections over a trajectory that give this mean accepted share, in (0, 1)."""
    from scipy.optimize import brentq

    return float(brentq(lambda hazard: mean_accepted_share(hazard) - accepted, 1e-9, 2 / accepted))
