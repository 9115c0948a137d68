"""Token ids as characters, where no tokenizer is read: what a tool gets to see of a turn, and how it answers."""

from __future__ import annotations

from collections.abc import Sequence

from rlsim.live.pool import Served
from rlsim.live.sandbox import CalculatorTool
from rlsim.live.texts import RESERVED_IDS

ALPHABET = "0123456789+-*/%() abcdefghijklmnopqrstuvwxyz:.?"


class Spelling:
    """Every id stands for a character, by its remainder; a character for the lowest id that stands for it."""

    def __init__(self, vocabulary: int) -> None:
        """``vocabulary`` is the number of token ids; a small one has only the first characters."""
        self._letters = ALPHABET[: max(1, vocabulary - RESERVED_IDS)]
        self._first = min(RESERVED_IDS, vocabulary - 1)

    def read(self, ids: Sequence[int]) -> str:
        """The characters of token ids."""
        return "".join(self._letters[(number - self._first) % len(self._letters)] for number in ids)

    def write(self, text: str) -> Sequence[int]:
        """The token ids of characters; those that there are not are left out."""
        return [self._first + self._letters.index(letter) for letter in text.lower() if letter in self._letters]

    def fault(self, served: Served[Sequence[int]]) -> Sequence[int]:
        """What a trajectory is told of a tool that has not answered."""
        return self.write(f"error: {served.outcome}")

    def calculator(self) -> CalculatorTool:
        """A calculator for trajectories of such ids."""
        return CalculatorTool(self.read, self.write)
