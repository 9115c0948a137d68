"""Logs that are consoles: lines that print a Python dict (slime, miles, vime), and prime-rl's step lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from calibration.logs.records import TrainingLog, gather, read_text

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_DICT_LINE = re.compile(r"\b\w+ (\d+): (\{.*\})\s*$")
_NUMPY = re.compile(r"\bnp\.\w+\(([^()]*)\)")
_NOT_A_NUMBER = re.compile(r"(?<=[:\s\[,(-])(?:nan|inf)\b")
_PRIME_LINE = re.compile(r"\bStep (\d+) \| (Time: .*)$")
_PRIME_NUMBER = re.compile(r"(-?[\d.]+(?:e[+-]?\d+)?)\s*(K(?=\s*tok)|%)?")

EVALUATIONS = ("eval", "test")
"""Dicts printed under these names are not of a training step."""


def is_dict_line(line: str) -> bool:
    """Whether it prints a step's dict."""
    return _DICT_LINE.search(line) is not None and "': " in line


def is_prime_line(line: str) -> bool:
    """Whether it is prime-rl's line of a step."""
    return _PRIME_LINE.search(_ANSI.sub("", line)) is not None


def read_console_dicts(file: Path) -> TrainingLog:
    """``perf 3: {'perf/step_time': 12.3}`` and the like; the dicts of one number are one row."""
    torn: list[int] = []
    rows = list(_dict_rows(file, torn))
    notes = [f"{len(torn)} dict lines could not be read (the first is line {torn[0]})"] if torn else []
    return gather(file.name, "console dicts", rows, notes)


def _dict_rows(file: Path, torn: list[int]) -> Iterator[tuple[int, dict[str, object]]]:
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        plain = _ANSI.sub("", line)
        found = _DICT_LINE.search(plain)
        if found is None or plain[: found.start(1)].split()[-1] in EVALUATIONS:
            continue
        values = _literal(found[2])
        if values is None:
            torn.append(number)
        else:
            yield int(found[1]), values


def _literal(text: str) -> dict[str, object] | None:
    """The dict that was printed, read as data: literals only, nothing is evaluated."""
    try:
        tree = ast.literal_eval(_NOT_A_NUMBER.sub("None", _NUMPY.sub(r"\1", text)))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return {str(name): value for name, value in tree.items()} if isinstance(tree, dict) else None


def read_prime_rl(file: Path) -> TrainingLog:
    """The step lines of orchestrator (they have a reward) and trainer (they have a loss), one row a step.

    Both print a ``Time``, of different things: columns are named ``orchestrator/...`` and ``trainer/...``.
    """
    return gather(file.name, "prime-rl console", _prime_rows(file), ())


def _prime_rows(file: Path) -> Iterator[tuple[int, dict[str, object]]]:
    for line in read_text(file).splitlines():
        found = _PRIME_LINE.search(_ANSI.sub("", line))
        if found is None:
            continue
        fields = dict(part.split(": ", 1) for part in found[2].split(" | ") if ": " in part)
        side = "trainer" if "Loss" in fields else "orchestrator"
        yield int(found[1]), {f"{side}/{name}": _quantity(text) for name, text in fields.items()}


def _quantity(text: str) -> float | None:
    found = _PRIME_NUMBER.match(text)
    if found is None:
        return None
    return float(found[1]) * (1000.0 if found[2] == "K" else 1.0)
