"""Lengths as they were measured: the table of observed values is the law.

Measured values read from a file: one number a line, a JSON list, or a column of a CSV file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rlsim.core.checks import LARGEST_CAP_TOKENS, whole
from rlsim.core.errors import ParameterError, unknown
from rlsim.core.streams import FloatArray
from rlsim.workload.lengths import LengthDistribution

LARGEST_FILE_BYTES = 64 * 2**20
LARGEST_COUNT = 2_000_000


def read_samples(
    file: Path, path: str, column: str | None = None, *, largest: float, whole_numbers: bool = False
) -> list[float]:
    """Values of ``file``, each in [0, largest]; a fault is a ParameterError at ``path`` with file and line.

    ``.json`` is one flat list; ``.csv`` needs ``column``, a name of its header; anything else is one number a
    line, where empty lines and lines that start with ``#`` are skipped.
    """
    text = _text(file, path)
    readers = {".json": _json_items, ".csv": _csv_items}
    items = readers.get(file.suffix.lower(), _line_items)(file, path, text, column)
    values = [_value(f"{file}:{line}", path, item, largest, whole_numbers) for line, item in items]
    if not 1 <= len(values) <= LARGEST_COUNT:
        raise ParameterError(path, f"{len(values)} values in {file}", f"1 to {LARGEST_COUNT} values")
    return values


def _text(file: Path, path: str) -> str:
    try:
        size = file.stat().st_size
        if size > LARGEST_FILE_BYTES:
            raise ParameterError(path, f"{file} of {size} bytes", f"at most {LARGEST_FILE_BYTES} bytes")
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ParameterError(path, str(file), "a text file in UTF-8") from None
    except OSError as error:
        raise ParameterError(path, str(file), f"a file that can be read ({error.strerror})") from None


def _value(place: str, path: str, item: str, largest: float, whole_numbers: bool) -> float:
    try:
        value = float(item)
    except ValueError:
        value = math.nan
    if not 0 <= value <= largest or (whole_numbers and not value.is_integer()):
        kind = "whole numbers" if whole_numbers else "numbers"
        raise ParameterError(path, f"{item} at {place}", f"{kind} in [0, {largest:g}]")
    return value


def _line_items(file: Path, path: str, text: str, column: str | None) -> Iterator[tuple[int, str]]:
    if column is not None:
        raise ParameterError(path, str(file), "a .csv file, when a column is named")
    for line, item in enumerate(text.splitlines(), start=1):
        if item.strip() and not item.startswith("#"):
            yield line, item.strip()


def _json_items(file: Path, path: str, text: str, column: str | None) -> Iterator[tuple[int, str]]:
    if column is not None:
        raise ParameterError(path, str(file), "a .csv file, when a column is named")
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParameterError(path, f"{file}: {error}", "a JSON list of numbers") from None
    if not isinstance(items, list) or any(type(item) not in (int, float) for item in items):
        raise ParameterError(path, str(file), "a flat JSON list of numbers")
    line, offset = 1, 0
    for match in re.finditer(r"[^\s,\[\]]+", text):
        line += text.count("\n", offset, match.start())
        offset = match.start()
        yield line, match.group()


def _csv_items(file: Path, path: str, text: str, column: str | None) -> Iterator[tuple[int, str]]:
    import csv

    rows = csv.DictReader(text.splitlines())
    if column is None:
        raise ParameterError(path, str(file), "the column to read, named by 'column'")
    if column not in (rows.fieldnames or ()):
        raise unknown(path, column, rows.fieldnames or ())
    for row in rows:
        yield rows.line_num, (row[column] or "").strip()


@dataclass(frozen=True, slots=True)
class Empirical(LengthDistribution):
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
        good = np.isfinite(table) & (table >= 0) & (table <= LARGEST_CAP_TOKENS) & (table == np.rint(table))
        if not good.all():
            bad = float(table[~good][0])
            raise ParameterError("tokens", bad, f"whole numbers in [0, {LARGEST_CAP_TOKENS}]")
        largest = max(1, int(table[-1]))
        cap = whole("cap_tokens", self.cap_tokens) if self.cap_tokens else largest
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "cap_tokens", cap)

    @classmethod
    def from_values(cls, values: Sequence[object], cap_tokens: int = 0, path: str = "values") -> Empirical:
        """From lengths; ``path`` names the key and the position of a value that is refused."""
        return cls(tuple(whole(f"{path}.{i}", v, low=0) for i, v in enumerate(values)), cap_tokens)

    @classmethod
    def from_file(cls, file: Path, cap_tokens: int = 0, *, column: str | None = None, path: str = "file") -> Empirical:
        """From a file that `rlsim.workload.empirical.read_samples` reads."""
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
