"""Quantiles of the members of a group that are alike, because their prompt is the same."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from rlsim.core.streams import FloatArray, IndexedNormals


class Copula:
    """Gaussian copula of a group: z = sqrt(rho) * z_prompt + sqrt(1 - rho) * z_member, u = Phi(z).

    ``z_prompt`` depends on the prompt alone: a long prompt is long at every attempt, for every member.
    """

    def __init__(self, seed: int, rho: float) -> None:
        self._prompts = IndexedNormals(seed, "prompt difficulty")
        self._common, self._own = math.sqrt(rho), math.sqrt(1 - rho)

    def __call__(self, generator: Generator, prompt: int, members: int) -> FloatArray:
        """Quantiles of ``members`` members: shape (members,)."""
        from scipy.special import ndtr

        scores = self._own * generator.standard_normal(members) + self._common * self._prompts[prompt]
        return np.asarray(ndtr(scores))
