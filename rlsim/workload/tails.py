"""How much longer than a sample its whole group takes."""

from __future__ import annotations

import math

import numpy as np

from rlsim.core.streams import FloatArray
from rlsim.workload.lengths import LengthLaw

_SCORES = 4096
_PROMPTS = 401
_REACH = 8.0


def group_max_ratio(law: LengthLaw, members: int, rho: float = 0.0) -> float:
    """M_tail = E[longest of the group] / E[length], under the Gaussian copula of correlation ``rho``.

    Numeric, no luck: given the prompt's score the members are independent, so the score of the longest
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
