"""Token ids of a task: three special ones, then its symbols."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PAD, BOS, EOS = 0, 1, 2
SPECIAL = ("<pad>", "<bos>", "<eos>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A word is a token."""

    words: tuple[str, ...]

    @property
    def size(self) -> int:
        """Token ids, the special ones included."""
        return len(SPECIAL) + len(self.words)

    def ids(self, words: Iterable[str]) -> tuple[int, ...]:
        """Token ids of words; ``ValueError`` for one that there is not."""
        return tuple(len(SPECIAL) + self.words.index(word) for word in words)

    def text(self, ids: Iterable[int]) -> str:
        """For people: words with blanks between; ids beyond the vocabulary as ``?``."""
        names = SPECIAL + self.words
        return " ".join(names[i] if 0 <= i < len(names) else "?" for i in ids)
