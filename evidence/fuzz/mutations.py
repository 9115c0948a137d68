"""Damage: one to four changes of a file's bytes, chosen by a source of random numbers."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

VALUES = (
    *("0", "-1", "-0", "1", "2", "1e-300", "1e300", "1e999", "-1e999", "0.0000001", "9" * 19, "9" * 5000),
    *("9223372036854775807", "9223372036854775808", "4294967296", "1_000", "0x10", "1e6", "100000000", "3.5"),
    *("nan", "NaN", ".nan", "inf", "-.inf", "Infinity", "null", "~", "true", "no", '""', "''", "[]", "{}", "[[[[]]]]"),
    *("\u0663", "\u00b2", "\u2467", "\u00e9", "\u202e", "\x00", "\x1b[31m", "\x07", "[/red]", "[bold]b", "<b>"),
    *(
        "..",
        ".",
        "/",
        "/dev/zero",
        "/dev/stdin",
        "a/b",
        "~",
        "CON",
        "x" * 300,
        "*a",
        "&a",
        "!!python/name:os",
        "%",
        "`",
    ),
    *(
        "${",
        "$((",
        "$(",
        "<<E",
        "\\",
        '"',
        "'",
        "#",
        ":",
        "- ",
        "? ",
        "|",
        ">",
        "=",
        "\t",
        "\r",
        "\ufeff",
        "2026-01-01",
    ),
)
"""What readers of text trip over: numbers at the ends of types, odd names, marks of syntax."""
WORD = re.compile(rb"[\w.+-]+")
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
LARGEST_BYTES = 1 << 20

Change = Callable[[bytes, random.Random], bytes]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes after one to four changes; at most ``LARGEST_BYTES`` of them."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        data = rng.choice(CHANGES)(data, rng)
    return data[:LARGEST_BYTES]


def _value(rng: random.Random) -> bytes:
    return rng.choice(VALUES).encode()


def _replace(pattern: re.Pattern[bytes]) -> Change:
    def change(data: bytes, rng: random.Random) -> bytes:
        found = list(pattern.finditer(data))
        if not found:
            return data + _value(rng)
        match = rng.choice(found)
        new = _value(rng) if rng.random() < 0.7 else rng.choice(found).group()
        return data[: match.start()] + new + data[match.end() :]

    return change


def _scaled(data: bytes, rng: random.Random) -> bytes:
    """A number times a power of ten, or its negative."""
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    match = rng.choice(found)
    factor = rng.choice((-1.0, 1e-9, 1e-3, 0.5, 2.0, 10.0, 1e3, 1e6, 1e9))
    return data[: match.start()] + f"{float(match.group()) * factor:.15g}".encode() + data[match.end() :]


def _lines(data: bytes, rng: random.Random) -> bytes:
    """A line less, a line twice, two lines exchanged, or a line further in."""
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        del lines[first]
    elif kind == 1:
        lines.insert(second, lines[first])
    elif kind == 2:
        lines[first], lines[second] = lines[second], lines[first]
    else:
        lines[first] = b" " * rng.randrange(1, 5) + lines[first]
    return b"".join(lines)


def _bytes(data: bytes, rng: random.Random) -> bytes:
    """Up to eight bytes with other values."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 9) if data else 0):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    """The beginning alone, the end alone, or a piece less."""
    first, second = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return rng.choice((data[:first], data[second:], data[:first] + data[second:]))


def _again(data: bytes, rng: random.Random) -> bytes:
    """A piece many times."""
    start = rng.randrange(len(data) + 1)
    piece = data[start : start + rng.randrange(1, 64)]
    return data[:start] + piece * rng.choice((2, 3, 100, 5000)) + data[start:]


def _insert(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + _value(rng) + data[place:]


CHANGES: Sequence[Change] = (_replace(WORD), _replace(NUMBER), _scaled, _lines, _bytes, _cut, _again, _insert)
