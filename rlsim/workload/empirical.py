"""Lengths as they were measured: the table of observed values is the law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rlsim.core.errors import ParameterError
from rlsim.core.streams import FloatArray
from rlsim.workload.lengths import LengthLaw
from rlsim.workload.ranges import LARGEST_CAP_TOKENS, whole
from rlsim.workload.samples import read_samples


@dataclass(frozen=True, slots=True)
class Empirical(LengthLaw):
    """Each of ``tokens`` alike; a cap of 0 stands for the largest.

    Values at the cap they were recorded under are cut ones: a drift cannot know how long they would be.
    """

    tokens: tuple[int, ...] = field(repr=False)
    cap_tokens: int = 0
    _table: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.tokens:
            raise ParameterError("tokens", [], "at least one length")
        table = np.sort(np.asarray(self.tokens, dtype=np.float64))
        self._refuse(table)
        largest = max(1, int(table[-1]))
        cap = whole("cap_tokens", self.cap_tokens) if self.cap_tokens else largest
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "cap_tokens", cap)

    def _refuse(self, table: FloatArray) -> None:
        good = np.isfinite(table) & (table >= 0) & (table <= LARGEST_CAP_TOKENS) & (table == np.rint(table))
        if not good.all():
            bad = float(table[~good][0])
            raise ParameterError("tokens", bad, f"whole numbers in [0, {LARGEST_CAP_TOKENS}]")

    @classmethod
    def from_values(cls, values: Sequence[object], cap_tokens: int = 0, path: str = "values") -> Empirical:
        """From lengths; ``path`` names the key and the position of a value that is refused."""
        return cls(tuple(whole(f"{path}.{i}", v, low=0) for i, v in enumerate(values)), cap_tokens)

    @classmethod
    def from_file(cls, file: Path, cap_tokens: int = 0, *, column: str | None = None, path: str = "file") -> Empirical:
        """From a file that `rlsim.workload.samples.read_samples` reads."""
        values = read_samples(file, path, column, largest=LARGEST_CAP_TOKENS, whole_numbers=True)
        return cls(tuple(int(value) for value in values), cap_tokens)

    def uncapped(self, u: FloatArray) -> FloatArray:
        """The value of rank floor(u * n)."""
        ranks = np.minimum(np.asarray(u) * len(self._table), len(self._table) - 1)
        return np.asarray(self._table[ranks.astype(np.int64)])

    def cdf(self, x: FloatArray) -> FloatArray:
        """Share of values up to ``x``."""
        return np.asarray(np.searchsorted(self._table, x, side="right") / len(self._table))

    def mean_tokens(self) -> float:
        """Mean of the capped values."""
        return float(np.clip(self._table, 1, self.cap_tokens).mean())

    def describe(self) -> str:
        """Number of values."""
        return f"table of {len(self.tokens):,} lengths"
