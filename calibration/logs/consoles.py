"""Logs that are consoles: lines that print a Python dict (slime, miles, vime), and prime-rl's step lines."""

from __future__ import annotations

import ast
import re
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
    """``perf 3: {'perf/step_time': 12.3}`` and the like; the dicts of one number are one row.

    They are read as data: literals only, nothing is evaluated.
    """
    rows, torn = list[tuple[int, dict[str, object]]](), list[int]()
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        plain = _ANSI.sub("", line)
        match = _DICT_LINE.search(plain)
        if match is None or plain[: match.start(1)].split()[-1] in EVALUATIONS:
            continue
        try:
            tree = ast.literal_eval(_NOT_A_NUMBER.sub("None", _NUMPY.sub(r"\1", match[2])))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            tree = None
        if isinstance(tree, dict):
            rows.append((int(match[1]), {str(name): value for name, value in tree.items()}))
        else:
            torn.append(number)
    notes = [f"{len(torn)} dict lines could not be read (the first is line {torn[0]})"] if torn else []
    return gather(file.name, "console dicts", rows, notes)


def read_prime_rl(file: Path) -> TrainingLog:
    """The step lines of orchestrator (they have a reward) and trainer (they have a loss), one row a step.

    Both print a ``Time``, of different things: columns are named ``orchestrator/...`` and ``trainer/...``.
    """
    rows = []
    for line in read_text(file).splitlines():
        match = _PRIME_LINE.search(_ANSI.sub("", line))
        if match is None:
            continue
        fields = dict(part.split(": ", 1) for part in match[2].split(" | ") if ": " in part)
        side, values = "trainer" if "Loss" in fields else "orchestrator", dict[str, object]()
        for name, text in fields.items():
            number = _PRIME_NUMBER.match(text)
            values[f"{side}/{name}"] = float(number[1]) * (1000.0 if number[2] == "K" else 1.0) if number else None
        rows.append((int(match[1]), values))
    return gather(file.name, "prime-rl console", rows, ())
