"""Laws of groups of samples that both the learning model and allocation parts count with: pure arithmetic.

p is the success probability of a prompt, n a number of samples of it. Rewards are 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def useful_group(success: float, samples: int) -> float:
    """Probability that a group's rewards are not all equal: 1 - p^n - (1 - p)^n."""
    return 1 - success**samples - (1 - success) ** samples


def inverse_success_group(success: float) -> float:
    """Samples until the first success, on average: sGPO's group size 1 / p."""
    return 1 / success


def all_succeed(successes: float, failures: float, samples: int) -> float:
    """Probability that n samples all succeed where p is Beta(successes, failures): prod (a + i) / (a + b + i)."""
    return math.prod((successes + more) / (successes + failures + more) for more in range(samples))


def useful_group_expected(successes: float, failures: float, samples: int) -> float:
    """Mean of ``useful_group`` where p is Beta(successes, failures)."""
    return 1 - all_succeed(successes, failures, samples) - all_succeed(failures, successes, samples)


def square_root_sizes(
    variances: Sequence[float], budget: float, shares: Sequence[float], costs: Sequence[float]
) -> list[float]:
    """Samples by kind that make sum(share * variance / n) least under sum(share * cost * n) = budget.

    n ~ sqrt(variance / cost): Neyman's allocation, GDRO's square-root rule. Not rounded.
    """
    kinds = list(zip(variances, shares, costs, strict=True))
    spent = sum(share * math.sqrt(variance * cost) for variance, share, cost in kinds)
    return [budget * math.sqrt(variance / cost) / spent for variance, _, cost in kinds]
