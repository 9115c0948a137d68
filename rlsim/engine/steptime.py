"""The time of one engine step as an integer law of its batch.

A step runs ``B`` decodes whose contexts sum to ``kv`` tokens and some prefill chunks; a chunk of ``t``
tokens after ``c`` cached ones attends over ``t*c + t*(t+1)/2`` (query, key) pairs::

    step = dense[B + prefill tokens] + sequence[sequences] + kv[B] * kv tokens + prefill[prefill tokens] + pair * pairs

Beside a chunk, ``mixed_kv[B]`` stands for ``kv[B]``: a kernel laid out for the chunk's many queries reads the decodes'
KV more slowly (measured: 1.7 to 3 times).
``dense`` is the matrix work, read once whatever the mix (so it holds the weight read and, for a
mixture of experts, the concave growth of experts touched); ``sequence`` the head and sampling; ``kv`` the
decode attention, affine in the KV tokens at a fixed batch size, which is what makes the time of ``n``
decode steps a closed form; ``prefill`` what prefill attention takes beyond its pairs (a launch, a device that few
tokens do not fill), once a step that has chunks. All coefficients are integers: jumped and stepped runs agree to the
last digit.

Random extra time of engine steps, exact in distribution under jumps and cuts.

Every step takes its law's time less ``mean_ps`` plus an independent gamma variable of that mean and of shape ``shape``
(1: exponential), so the mean is the law's and each step has a standard deviation of ``mean_ps / sqrt(shape)``.
The extra of ``n`` steps is one gamma draw of shape ``n*shape``; given it, the extra of the first ``m`` is a beta share
of it. A window so costs O(log n) draws whatever its length.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rlsim.core.ticks import Ticks
from rlsim.core.view import as_made


@dataclass(frozen=True, slots=True)
class StepTime:
    """Picoseconds; lists are indexed by the count they depend on, from 0."""

    dense_ps: list[int]
    """By tokens in the step (decodes and prefill), up to ``max_num_batched_tokens``."""
    sequence_ps: list[int]
    """By sequences scheduled in the step, up to ``max_num_seqs``."""
    kv_ps: list[int]
    """A KV token, by the number of decodes in the step."""
    pair_ps: int
    """A (query, key) pair of prefill attention."""
    prefill_ps: list[int] = field(default_factory=list)
    """By prefill tokens in the step, 0 at 0 and never decreasing; empty: nothing."""
    mixed_kv_ps: list[int] = field(default_factory=list)
    """A KV token in a step with a chunk, by its decodes; ``kv_ps`` where none is given."""

    def __post_init__(self) -> None:
        if not self.mixed_kv_ps:
            object.__setattr__(self, "mixed_kv_ps", self.kv_ps)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return as_made(self)

    def slowed(self, factor: float) -> StepTime:
        """Every step ``factor`` times as long, each coefficient to the nearest picosecond."""
        return StepTime(
            _times(self.dense_ps, factor),
            _times(self.sequence_ps, factor),
            _times(self.kv_ps, factor),
            round(self.pair_ps * factor),
            _times(self.prefill_ps, factor),
            _times(self.mixed_kv_ps, factor),
        )

    def decode(self, decodes: int, kv_tokens: int) -> Ticks:
        """A step of decodes only."""
        return self.dense_ps[decodes] + self.sequence_ps[decodes] + self.kv_ps[decodes] * kv_tokens

    def mixed(self, decodes: int, kv_tokens: int, chunks: int, prefill_tokens: int, pairs: int) -> Ticks:
        """A step of decodes and ``chunks`` prefill chunks of ``prefill_tokens`` tokens in all."""
        return (
            self.dense_ps[decodes + prefill_tokens]
            + self.sequence_ps[decodes + chunks]
            + self.mixed_kv_ps[decodes] * kv_tokens
            + self.pair_ps * pairs
            + (self.prefill_ps[prefill_tokens] if self.prefill_ps else 0)
        )


def _times(ticks: list[int], factor: float) -> list[int]:
    return [round(each * factor) for each in ticks]


def attention_pairs(tokens: int, context: int) -> int:
    """(query, key) pairs of a causal chunk of ``tokens`` after ``context`` cached tokens."""
    return tokens * context + tokens * (tokens + 1) // 2


class Extra(Protocol):
    """What the steps of a replica take beside their law."""

    def open(self, steps: int) -> None:
        """A new window of at most ``steps`` steps."""
        ...

    def ticks(self, steps: int) -> Ticks:
        """Of the window's first ``steps`` steps; may be negative."""
        ...


class StepNoise:
    """The gamma path of one replica's steps, drawn where it is looked at."""

    def __init__(self, rng: np.random.Generator, mean_ps: int, shape: float = 1.0) -> None:
        self._rng, self._mean, self._shape = rng, mean_ps, shape
        self._steps, self._extra = [0], [0.0]

    def open(self, steps: int) -> None:
        """A new window of at most ``steps`` steps."""
        extra = self._rng.gamma(steps * self._shape) * self._mean / self._shape
        self._steps, self._extra = [0, steps], [0.0, extra]

    def ticks(self, steps: int) -> Ticks:
        """Extra time of the window's first ``steps`` steps, less its mean."""
        at = bisect_left(self._steps, steps)
        if self._steps[at] != steps:
            self._split(at, steps)
        return round(self._extra[at]) - steps * self._mean

    def _split(self, at: int, steps: int) -> None:
        """Draw the path at ``steps`` between two points already known."""
        before, after = self._steps[at - 1], self._steps[at]
        low, high = self._extra[at - 1], self._extra[at]
        share = self._rng.beta((steps - before) * self._shape, (after - steps) * self._shape)
        self._steps.insert(at, steps)
        self._extra.insert(at, low + (high - low) * share)
