"""What chance gives to the members of a group: quantiles by identity, drawn a group at a time.

The identity of a sample is (prompt, attempt, member). A group's values at a turn are one read of a stream
placed at (prompt, attempt, turn); member m is the m-th value of that read, so neither the number of members
asked for, nor the turns, nor the order of the questions changes anybody's luck.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from rlsim.core.streams import FloatArray, PlacedStream

GROUPS_KEPT = 8192
"""Groups (at a turn) whose values are remembered; a forgotten one is drawn again, the same."""


class QuantileLaw(Protocol):
    """How the quantiles of one group, by prompt, come out of a generator placed at the group."""

    def __call__(self, generator: Generator, prompt: int, members: int) -> FloatArray:
        """Quantiles in [0, 1]: shape (members,)."""
        ...


def independent(generator: Generator, prompt: int, members: int) -> FloatArray:
    """Uniform quantiles, whoever the prompt is."""
    return generator.random(members)


class GroupDraws:
    """Values of one purpose: quantiles of a group at a turn, mapped by a law once and remembered."""

    def __init__(
        self,
        seed: int,
        purpose: str,
        group_size: int,
        quantiles: QuantileLaw,
        law: Callable[[FloatArray], npt.NDArray[np.float64] | npt.NDArray[np.int64]],
    ) -> None:
        self._stream = PlacedStream(seed, purpose)
        self._group_size = group_size
        self._quantiles, self._law = quantiles, law
        self._rows: dict[tuple[int, int, int], list[float]] = {}

    def quantiles(self, prompt: int, attempt: int, turn: int, members: int) -> FloatArray:
        """Quantiles of the first ``members`` members: shape (members,)."""
        return self._quantiles(self._stream.at(prompt, attempt, turn), prompt, members)

    def value(self, prompt: int, attempt: int, turn: int, member: int) -> float:
        """The law at the member's quantile."""
        row = self._rows.get((prompt, attempt, turn))
        if row is None or member >= len(row):
            row = self._draw(prompt, attempt, turn, member)
        return row[member]

    def _draw(self, prompt: int, attempt: int, turn: int, member: int) -> list[float]:
        members = self._group_size * (member // self._group_size + 1)
        row: list[float] = self._law(self.quantiles(prompt, attempt, turn, members)).tolist()
        if len(self._rows) >= GROUPS_KEPT:
            del self._rows[next(iter(self._rows))]
        self._rows[prompt, attempt, turn] = row
        return row
