"""Chance for parts: a pure hash of seed and decision, so that a replay decides the same."""

from __future__ import annotations

import math
from hashlib import blake2b


def hashed(*key: int | str) -> int:
    """64 bits that depend on the key alone."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest())


def uniform(*key: int | str) -> float:
    """In (0, 1)."""
    return ((hashed(*key) >> 11) + 0.5) / 2**53


def normal(*key: int | str) -> float:
    """A standard normal score (Box and Muller 1958)."""
    return math.sqrt(-2 * math.log(uniform(*key, "radius"))) * math.cos(2 * math.pi * uniform(*key, "angle"))
