"""Prefill tokens of a step by its predicted time, instead of by a fixed budget."""

from __future__ import annotations

from bisect import bisect_right

from rlsim.core.discipline import StepTarget
from rlsim.core.engine import Request
from rlsim.core.steptime import StepTime, attention_pairs

Chunk = tuple[Request, int]


class PacedChunks:
    """The longest chunk with which the predicted time of the step stays within the target.

    The predictor is the replica's own step law times ``predicted_scale``. Whatever it says, a step may take
    ``min_chunk_tokens`` of prefill. The law never decreases with a chunk's tokens, so bisection finds the longest.
    A chunk that is cut short is the last of its step.
    """

    def __init__(self, target: StepTarget, law: StepTime) -> None:
        self._law, self._least = law, target.min_chunk_tokens
        self._ticks = int(target.ticks / target.predicted_scale)

    def tokens(self, decodes: int, kv_tokens: int, chunks: list[Chunk], computed: int, most: int) -> int:
        """Tokens, at most ``most``, of a chunk after ``computed`` ones beside decodes and earlier chunks; or 0."""
        before = sum(tokens for _, tokens in chunks)
        pairs = sum(attention_pairs(tokens, request.computed) for request, tokens in chunks)
        law, count = self._law, len(chunks) + 1

        def ticks(tokens: int) -> int:
            attended = pairs + attention_pairs(tokens, computed)
            return law.mixed(decodes, kv_tokens, count, before + tokens, attended)

        if ticks(most) <= self._ticks:
            return most
        fitting = bisect_right(range(1, most), self._ticks, key=ticks)
        return max(fitting, min(most, self._least - before))
