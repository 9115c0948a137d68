"""The time of an engine step as a law in seconds, and its quantisation to the engine's integers.

The law is the one :mod:`rlsim.engine.steptime` documents: dense work by tokens, head and sampling by
sequences, decode attention affine in the KV tokens at a fixed batch size, prefill attention by pairs beyond what it
takes at least::

    step = scale * (dense(tokens) + sequence(sequences) + kv(decodes) * kv tokens
                    + prefill(prefill tokens) + pair * pairs) + offset

In a step with a prefill chunk ``mixed_kv(decodes)`` stands for ``kv(decodes)``, if the law has one.
Each function is piecewise linear between its knots and follows its last slope beyond them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rlsim.core.errors import ParameterError
from rlsim.core.ticks import TICKS_PER_SECOND
from rlsim.costs.evidence import Provenance
from rlsim.costs.fields import Number, Numbers, Wholes, non_negative, positive
from rlsim.engine.steptime import StepTime

if TYPE_CHECKING:
    from numpy.typing import NDArray

GIVEN = Provenance("given", "the user's own coefficients")


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """Knots of the law, in seconds. Raises ``ParameterError`` for knots that are not a law."""

    tokens: Wholes
    dense_seconds: Numbers
    """By tokens in the step, never decreasing."""
    sequences: Wholes
    sequence_seconds: Numbers
    """By sequences in the step; may be negative as long as the dense part covers it."""
    decodes: Wholes
    kv_seconds_per_token: Numbers
    """A KV token, by decodes in the step; beyond the last knot it stays."""
    pair_seconds: Number
    """A (query, key) pair of prefill attention."""
    prefill_tokens: Wholes = (1,)
    prefill_seconds: Numbers = (0.0,)
    """By prefill tokens in the step, never decreasing: what prefill attention takes beyond its pairs (the launch, a
    GPU that few tokens do not fill). A step without prefill has none of it."""
    scale: Number = 1.0
    offset_seconds: Number = 0.0
    """Host overhead of every step, not scaled."""
    provenance: Provenance = field(default=GIVEN)
    mixed_kv_seconds_per_token: Numbers = ()
    """The same in a step with a prefill chunk; without it, no dearer than in one of decodes only."""

    def __post_init__(self) -> None:
        _check_knots("tokens", self.tokens, "dense_seconds", self.dense_seconds)
        _check_knots("sequences", self.sequences, "sequence_seconds", self.sequence_seconds)
        _check_knots("decodes", self.decodes, "kv_seconds_per_token", self.kv_seconds_per_token)
        _check_knots("prefill_tokens", self.prefill_tokens, "prefill_seconds", self.prefill_seconds)
        if self.mixed_kv_seconds_per_token:
            _check_knots("decodes", self.decodes, MIXED_KV, self.mixed_kv_seconds_per_token)
            non_negative(MIXED_KV, min(self.mixed_kv_seconds_per_token))
        non_negative("dense_seconds", min(self.dense_seconds))
        non_negative("kv_seconds_per_token", min(self.kv_seconds_per_token))
        non_negative("prefill_seconds", min(self.prefill_seconds))
        non_negative("pair_seconds", self.pair_seconds)
        positive("scale", self.scale)
        non_negative("offset_seconds", self.offset_seconds)
        for name in ("dense_seconds", "prefill_seconds"):
            if any(later < earlier for earlier, later in pairwise(getattr(self, name))):
                raise ParameterError(name, getattr(self, name), "knots that never decrease")
        # Tokens are never fewer than sequences, so one token a sequence is the worst case.
        last = 2 * max(*self.tokens, *self.sequences)
        counts = np.array(sorted({*self.tokens, *self.sequences, last}))
        least = float((self._dense(counts) + self._sequence(counts)).min())
        if least < -1e-15:
            raise ParameterError("sequence_seconds", least, "a step whose time is never negative")

    @classmethod
    def affine(
        cls,
        base_seconds: float,
        per_sequence_seconds: float = 0.0,
        per_kv_token_seconds: float = 0.0,
        per_prefill_token_seconds: float = 0.0,
        per_pair_seconds: float = 0.0,
    ) -> StepTimeModel:
        """A law with constant coefficients.

        Every sequence in a step costs ``per_sequence_seconds``, which covers one token of it (all of a
        decode); each further token of a prefill chunk costs ``per_prefill_token_seconds``.
        """
        non_negative("per_sequence_seconds", per_sequence_seconds)
        token = non_negative("per_prefill_token_seconds", per_prefill_token_seconds)
        base = non_negative("base_seconds", base_seconds)
        return cls(
            tokens=(1, 2),
            dense_seconds=(base + token, base + 2 * token),
            sequences=(1, 2),
            sequence_seconds=(per_sequence_seconds - token, 2 * (per_sequence_seconds - token)),
            decodes=(1,),
            kv_seconds_per_token=(per_kv_token_seconds,),
            pair_seconds=per_pair_seconds,
        )

    def calibrated(self, scale: float = 1.0, offset_seconds: float = 0.0) -> StepTimeModel:
        """The same law with a further scale on all its terms and a further offset on every step."""
        positive("scale", scale)
        offset = self.offset_seconds * scale + non_negative("offset_seconds", offset_seconds)
        return replace(self, scale=self.scale * scale, offset_seconds=offset)

    def decode_seconds(self, decodes: int, kv_tokens: float) -> float:
        """A step of ``decodes`` sequences whose contexts sum to ``kv_tokens``."""
        return self.mixed_seconds(decodes, kv_tokens, 0, 0, 0)

    def mixed_seconds(self, decodes: int, kv_tokens: float, chunks: int, prefill_tokens: int, pairs: float) -> float:
        """A step of decodes and ``chunks`` prefill chunks of ``prefill_tokens`` tokens in all."""
        dense = float(self._dense(np.array([decodes + prefill_tokens]))[0])
        sequence = float(self._sequence(np.array([decodes + chunks]))[0])
        kv = float((self._mixed_kv if chunks else self._kv)(np.array([decodes]))[0])
        prefill = float(self._prefill(np.array([prefill_tokens]))[0])
        work = dense + sequence + kv * kv_tokens + prefill + self.pair_seconds * pairs
        return self.scale * work + self.offset_seconds

    def quantise(self, max_num_batched_tokens: int, max_num_seqs: int) -> StepTime:
        """The law in whole picoseconds, tabulated from 0 up to both limits.

        A step of the result differs from this law by at most half a picosecond per term: 3 + KV tokens
        + pairs halves.
        """
        tokens = np.arange(max_num_batched_tokens + 1)
        dense, prefill = self._dense(tokens), self._prefill(tokens)
        sequences = np.arange(max_num_seqs + 1)
        return StepTime(
            dense_ps=_picoseconds(dense * self.scale + self.offset_seconds),
            sequence_ps=_picoseconds(self._sequence(sequences) * self.scale),
            kv_ps=_picoseconds(self._kv(sequences) * self.scale),
            pair_ps=round(self.pair_seconds * self.scale * TICKS_PER_SECOND),
            prefill_ps=_picoseconds(prefill * self.scale) if prefill.any() else [],
            mixed_kv_ps=_picoseconds(self._mixed_kv(sequences) * self.scale) if self.mixed_kv_seconds_per_token else [],
        )

    def as_dict(self) -> dict[str, Any]:
        """The knots as JSON values, without the provenance."""
        knots = (*KNOTS, MIXED_KV) if self.mixed_kv_seconds_per_token else KNOTS
        lists = {name: list(getattr(self, name)) for name in knots}
        return {**lists, **{name: getattr(self, name) for name in SCALARS}}

    def _dense(self, tokens: NDArray[np.int_]) -> NDArray[np.float64]:
        return interpolate(tokens, self.tokens, self.dense_seconds)

    def _sequence(self, sequences: NDArray[np.int_]) -> NDArray[np.float64]:
        return interpolate(sequences, self.sequences, self.sequence_seconds)

    def _kv(self, decodes: NDArray[np.int_]) -> NDArray[np.float64]:
        return np.interp(decodes, self.decodes, self.kv_seconds_per_token)

    def _prefill(self, tokens: NDArray[np.int_]) -> NDArray[np.float64]:
        return np.where(tokens > 0, interpolate(tokens, self.prefill_tokens, self.prefill_seconds), 0.0)

    def _mixed_kv(self, decodes: NDArray[np.int_]) -> NDArray[np.float64]:
        return np.interp(decodes, self.decodes, self.mixed_kv_seconds_per_token or self.kv_seconds_per_token)


KNOTS = (
    "tokens",
    "dense_seconds",
    "sequences",
    "sequence_seconds",
    "decodes",
    "kv_seconds_per_token",
    "prefill_tokens",
    "prefill_seconds",
)
"""The list-valued fields of every law."""

MIXED_KV = "mixed_kv_seconds_per_token"
"""The list-valued field that a law may be without."""

SCALARS = ("pair_seconds", "scale", "offset_seconds")
"""The number-valued fields of a law."""


def interpolate(at: NDArray[np.int_], knots: Sequence[int], values: Sequence[float]) -> NDArray[np.float64]:
    """Piecewise linear; constant before the first knot, on the last slope beyond the last one."""
    inside = np.interp(at, knots, values)
    if len(knots) < 2:
        return inside
    slope = (values[-1] - values[-2]) / (knots[-1] - knots[-2])
    return inside + slope * np.maximum(np.asarray(at) - knots[-1], 0)


def _picoseconds(seconds: NDArray[np.float64]) -> list[int]:
    whole: list[int] = np.rint(seconds * TICKS_PER_SECOND).astype(np.int64).tolist()
    return whole


def _check_knots(at: str, knots: Sequence[int], name: str, values: Sequence[float]) -> None:
    if len(knots) != len(values) or not knots:
        raise ParameterError(name, len(values), f"one value a knot of {at} ({len(knots)})")
    if knots[0] < 1 or any(later <= earlier for earlier, later in pairwise(knots)):
        raise ParameterError(at, knots, "increasing whole numbers >= 1")
    if not np.isfinite(values).all():
        raise ParameterError(name, values, "finite numbers")
