"""Chance for parts: a pure hash of seed and decision, so that a replay decides the same."""

from __future__ import annotations

import math
from hashlib import blake2b
from itertools import count


def hashed(*key: int | str) -> int:
    """64 bits that depend on the key alone."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest())


def uniform(*key: int | str) -> float:
    """In (0, 1)."""
    return ((hashed(*key) >> 11) + 0.5) / 2**53


def normal(*key: int | str) -> float:
    """A standard normal score (Box and Muller 1958)."""
    return math.sqrt(-2 * math.log(uniform(*key, "radius"))) * math.cos(2 * math.pi * uniform(*key, "angle"))


def exponential(*key: int | str) -> float:
    """Of mean 1."""
    return -math.log(uniform(*key))


def gamma(shape: float, *key: int | str) -> float:
    """Gamma of mean ``shape`` and scale 1, by rejection (Marsaglia and Tsang 2000)."""
    if shape < 1:
        return gamma(shape + 1, *key, "boost") * math.pow(uniform(*key, "root"), 1 / shape)
    d = shape - 1 / 3
    for attempt in count():
        x = normal(*key, attempt)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(uniform(*key, attempt, "accept")) < x * x / 2 + d - d * v + d * math.log(v):
            return d * v
    raise AssertionError("unreachable")
