"""Random draws of the members of a group: quantiles by identity, drawn a group at a time.

The identity of a sample is (prompt, attempt, member). A group's values at a turn are one read of a stream
placed at (prompt, attempt, turn); member m is the m-th value of that read, so neither the number of members
asked for, nor the turns, nor the order of the calls changes any draw.

Classes of requests: prompts of several kinds, each with its share and its own laws of lengths.

Quantiles of the members of a group that are alike, because their prompt is the same.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from rlsim.core.checks import above
from rlsim.core.streams import FloatArray, IndexedNormals, IndexedUniforms, PlacedStream
from rlsim.workload.lengths import LengthDistribution

GROUPS_KEPT = 8192
"""Groups (at a turn) whose values are remembered; a forgotten one is drawn again, the same."""


class GroupDistribution(Protocol):
    """How the quantiles of a group's members come about: what chance draws at the group's place, and the prompt."""

    def draw(self, generator: Generator, members: int) -> FloatArray:
        """What a generator placed at the group gives its members: shape (members,)."""
        ...

    def quantiles(self, drawn: FloatArray, prompts: Sequence[int]) -> FloatArray:
        """Quantiles of the members of groups of ``prompts``, a row a group: shape (groups, members), as drawn."""
        ...


class Independent:
    """Uniform quantiles, whoever the prompt is."""

    def draw(self, generator: Generator, members: int) -> FloatArray:
        return generator.random(members)

    def quantiles(self, drawn: FloatArray, prompts: Sequence[int]) -> FloatArray:
        return drawn


class IndependentNormals:
    """Standard normals in the place of quantiles, whoever the prompt is."""

    def draw(self, generator: Generator, members: int) -> FloatArray:
        return generator.standard_normal(members)

    def quantiles(self, drawn: FloatArray, prompts: Sequence[int]) -> FloatArray:
        return drawn


class GroupDraws:
    """Values of one purpose: quantiles of a group at a turn, mapped by a law once and remembered."""

    def __init__(
        self,
        seed: int,
        purpose: str,
        group_size: int,
        group_law: GroupDistribution,
        law: Callable[[FloatArray], npt.NDArray[np.float64] | npt.NDArray[np.int64]],
    ) -> None:
        self._stream = PlacedStream(seed, purpose)
        self._group_size = group_size
        self._group_law, self._law = group_law, law
        self._rows: dict[tuple[int, int, int], list[float]] = {}

    def quantiles(self, prompt: int, attempt: int, turn: int, members: int) -> FloatArray:
        """Quantiles of the first ``members`` members: shape (members,)."""
        drawn = self._group_law.draw(self._stream.at(prompt, attempt, turn), members)
        return self._group_law.quantiles(drawn.reshape(1, -1), (prompt,)).reshape(-1)

    def value(self, prompt: int, attempt: int, turn: int, member: int) -> float:
        """The law at the member's quantile."""
        row = self._rows.get((prompt, attempt, turn))
        if row is None or member >= len(row):
            row = self._draw(prompt, attempt, turn, member)
        return row[member]

    def foresee(self, prompts: Sequence[int], attempt: int) -> None:
        """Draw the first turns of groups that will be asked for: many at once are cheaper, and no value changes."""
        drawn = np.empty((len(prompts), self._group_size))
        for row, prompt in enumerate(prompts):
            drawn[row] = self._group_law.draw(self._stream.at(prompt, attempt), self._group_size)
        values: list[list[float]] = self._law(self._group_law.quantiles(drawn, prompts)).tolist()
        for prompt, row_values in zip(prompts, values, strict=True):
            self._keep((prompt, attempt, 0), row_values)

    def _draw(self, prompt: int, attempt: int, turn: int, member: int) -> list[float]:
        members = self._group_size * (member // self._group_size + 1)
        row: list[float] = self._law(self.quantiles(prompt, attempt, turn, members)).tolist()
        self._keep((prompt, attempt, turn), row)
        return row

    def _keep(self, place: tuple[int, int, int], row: list[float]) -> None:
        if len(self._rows) >= GROUPS_KEPT:
            del self._rows[next(iter(self._rows))]
        self._rows[place] = row


@dataclass(frozen=True, slots=True)
class ClassLengths:
    """What the prompts of one class ask for; ``share`` is relative to the other classes'."""

    share: float
    prompt_length: LengthDistribution
    response_length: LengthDistribution

    def __post_init__(self) -> None:
        above("share", self.share, 0.0)


class ClassOf:
    """The class of a prompt: a function of the seed and the prompt, as all its draws."""

    def __init__(self, seed: int, shares: Sequence[float]) -> None:
        self._uniforms = IndexedUniforms(seed, "request class")
        total = sum(shares)
        self._bounds = [bound / total for bound in accumulate(shares)][:-1]

    def __call__(self, prompt: int) -> int:
        """Place among the shares."""
        return bisect_right(self._bounds, self._uniforms[prompt])


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
