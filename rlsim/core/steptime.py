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
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlsim.core.ticks import Ticks
from rlsim.core.travel import as_made


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
