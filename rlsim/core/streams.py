"""Random numbers by name and place, so that what an entity draws does not depend on who drew before it.

Streams are Philox 4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The 128-bit
key is a hash of the seed and the purpose; the 256-bit counter has four words. Word 0 counts the draws
at one place; words 1 to 3 are the place, so places never overlap (a place would need 2**64 blocks to
reach the next). A purpose is either read sequentially (`generator`) or by place, never both.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numpy.random import Generator, Philox

FloatArray = npt.NDArray[np.float64]

BLOCK_VALUES = 1024
"""Values drawn at once by an indexed sequence."""
BLOCKS_KEPT = 256
"""Blocks an indexed sequence remembers: 2 MiB of values."""

_WORD = (1 << 64) - 1


@lru_cache(maxsize=4096)
def stream_key(seed: int, purpose: str, *names: str | int) -> tuple[int, int]:
    """The two 64-bit words of the Philox key of a named stream; the same in every process."""
    name = repr((int(seed), purpose, *(n if isinstance(n, str) else int(n) for n in names)))
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def _philox(key: tuple[int, int], counter: int = 0) -> Philox:
    return Philox(key=key[0] | key[1] << 64, counter=counter)


def generator(seed: int, purpose: str, *names: str | int) -> Generator:
    """A fresh generator of the named stream, to be read in sequence."""
    return Generator(_philox(stream_key(seed, purpose, *names)))


def generator_at(seed: int, purpose: str, index: int) -> Generator:
    """A fresh generator at place ``index`` in [0, 2**128): counter words 2 (low) and 3 (high)."""
    return Generator(_philox(stream_key(seed, purpose), index << 128))


class PlacedStream:
    """One generator of a purpose that is moved from place to place, at a tenth of the cost of a new one."""

    def __init__(self, seed: int, purpose: str) -> None:
        self._philox = _philox(stream_key(seed, purpose))
        self._generator = Generator(self._philox)
        self._state = self._philox.state
        self._counter = self._state["state"]["counter"]

    def at(self, first: int, second: int = 0, third: int = 0) -> Generator:
        """The generator at counter words (3, 2, 1) = (first, second, third); good until the next call.

        With ``third`` 0 it draws what ``generator_at(seed, purpose, first << 64 | second)`` draws.
        """
        counter = self._counter
        counter[1] = third
        counter[2] = second
        counter[3] = first
        self._philox.state = self._state
        return self._generator


class _Indexed:
    """An infinite sequence drawn in blocks; value ``i`` is a function of seed, purpose and ``i`` alone."""

    def __init__(self, seed: int, purpose: str, draw: Callable[[Generator, int], FloatArray]) -> None:
        self._stream = PlacedStream(seed, purpose)
        self._draw = draw
        self._blocks: OrderedDict[int, FloatArray] = OrderedDict()

    def __getitem__(self, index: int) -> float:
        """Value ``index``, counted from 0; IndexError below."""
        if index < 0:
            raise IndexError(index)
        block, offset = divmod(index, BLOCK_VALUES)
        return float(self._block(block)[offset])

    def take(self, start: int, count: int) -> FloatArray:
        """Values ``start`` to ``start + count - 1``: shape (count,)."""
        if start < 0 or count < 0:
            raise IndexError((start, count))
        first, last = start // BLOCK_VALUES, (start + count) // BLOCK_VALUES
        values = np.concatenate([self._block(block) for block in range(first, last + 1)])
        offset = start - first * BLOCK_VALUES
        return values[offset : offset + count]

    def _block(self, block: int) -> FloatArray:
        values = self._blocks.get(block)
        if values is not None:
            self._blocks.move_to_end(block)
            return values
        values = self._draw(self._stream.at(block >> 64, block & _WORD), BLOCK_VALUES)
        self._blocks[block] = values
        if len(self._blocks) > BLOCKS_KEPT:
            self._blocks.popitem(last=False)
        return values


class IndexedNormals(_Indexed):
    """Independent standard normals by index."""

    def __init__(self, seed: int, purpose: str) -> None:
        super().__init__(seed, purpose, Generator.standard_normal)


class IndexedUniforms(_Indexed):
    """Independent uniforms on [0, 1) by index."""

    def __init__(self, seed: int, purpose: str) -> None:
        super().__init__(seed, purpose, Generator.random)
