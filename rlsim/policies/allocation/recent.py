"""The last lengths that were seen, and their quantiles."""

from __future__ import annotations

import math
from collections import deque


class Recent:
    """At most ``kept`` lengths, in tokens; the oldest go first."""

    def __init__(self, kept: int) -> None:
        self._lengths: deque[int] = deque(maxlen=kept)

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, tokens: int) -> None:
        """See another."""
        self._lengths.append(tokens)

    def quantile(self, share: float) -> int:
        """The shortest that at least this share is not longer than."""
        ordered = sorted(self._lengths)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
