"""Quantiles of the members of a group that are alike, because their prompt is the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

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

    def draw(self, generator: Generator, members: int) -> FloatArray:
        """The members' own scores, without the prompt's: shape (members,)."""
        return generator.standard_normal(members)

    def quantiles(self, drawn: FloatArray, prompts: Sequence[int]) -> FloatArray:
        """Quantiles of the members of groups of ``prompts``: shape (groups, members)."""
        from scipy.special import ndtr

        common = np.array([self._prompts[prompt] for prompt in prompts])
        return np.asarray(ndtr(self._own * drawn + self._common * common[:, np.newaxis]))
