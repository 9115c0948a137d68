"""Measured values read from a file: one number a line, a JSON list, or a column of a CSV file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

from rlsim.core.errors import ParameterError, unknown

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
    line, seen = 1, 0
    for match in re.finditer(r"[^\s,\[\]]+", text):
        line += text.count("\n", seen, match.start())
        seen = match.start()
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
