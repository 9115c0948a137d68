"""Step-time models fitted to timed steps, with the evidence: errors on held-out steps, ranges, points to draw.

Every term of the model is linear in its knots, so one non-negative least squares on relative errors fits
all of them together; dense, sequence and prefill terms are fitted as increments, which keeps them from decreasing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.fitting.robust_regression import hold_out, solve
from rlsim.core.errors import ParameterError
from rlsim.costs.evidence import Evidence, HoldOutError, Provenance, Sampled
from rlsim.costs.sections import POINT_COLUMNS, StepFit, StepModelIntervals
from rlsim.costs.step_model import StepTimeModel, interpolate

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class StepSample:
    """One timed engine step."""

    seconds: float
    decodes: int = 0
    kv_tokens: int = 0
    """Summed context of the decodes."""
    chunks: int = 0
    prefill_tokens: int = 0
    pairs: float = 0.0
    """(query, key) pairs of the chunks."""
    weight: float = 1.0
    """Measurements that the seconds are of."""

    @property
    def kind(self) -> str:
        """``decode``, ``prefill`` or ``mixed``."""
        if self.chunks == 0:
            return "decode"
        return "mixed" if self.decodes else "prefill"

    def __str__(self) -> str:
        prefill = f"{self.chunks} chunks, {self.prefill_tokens} tokens"
        return f"{self.decodes} decodes over {self.kv_tokens} KV tokens, {prefill}"


@dataclass(frozen=True, slots=True)
class Knots:
    """Where the law bends."""

    tokens: tuple[int, ...] = tuple(2**n for n in range(15))
    sequences: tuple[int, ...] = (1, 16, 64, 256, 1024)
    decodes: tuple[int, ...] = tuple(2**n for n in range(11))
    prefill_tokens: tuple[int, ...] = (1, 64, 256, 1024, 4096, 16384)
    weights: dict[str, float] = field(default_factory=lambda: {"decode": 3.0})
    """Weight of a kind's relative error in the fit; 1 where it is not named."""


def fit_step_law(samples: Sequence[StepSample], provenance: Provenance, knots: Knots | None = None) -> StepTimeModel:
    """The law with the least squared relative error.

    Raises ``ParameterError`` without samples or for one that took no time.
    """
    if not samples or min(sample.seconds for sample in samples) <= 0:
        raise ParameterError("samples", len(samples), "timed steps, each longer than zero seconds")
    knots = knots_within(knots or Knots(), samples)
    importance = np.array([knots.weights.get(sample.kind, 1.0) for sample in samples])
    seconds = np.array([sample.seconds for sample in samples])
    return law_of(solve(regressors(samples, knots), seconds, importance, iterations=1), knots, provenance)


def hold_out_error(law: StepTimeModel, samples: Sequence[StepSample]) -> HoldOutError:
    """Errors of the law on ``samples``, which must not be those it was fitted to."""
    predicted = np.array([predicted_seconds(law, sample) for sample in samples])
    return hold_out(predicted, np.array([sample.seconds for sample in samples]), samples)


def hold_out_by_kind(law: StepTimeModel, samples: Sequence[StepSample]) -> dict[str, HoldOutError]:
    """Hold-out error for each kind of step that occurs."""
    kinds = sorted({sample.kind for sample in samples})
    return {kind: hold_out_error(law, [s for s in samples if s.kind == kind]) for kind in kinds}


def predicted_seconds(law: StepTimeModel, sample: StepSample) -> float:
    """What the law says of a timed step."""
    return law.mixed_seconds(sample.decodes, sample.kv_tokens, sample.chunks, sample.prefill_tokens, sample.pairs)


def knots_within(knots: Knots, samples: Sequence[StepSample]) -> Knots:
    """Knots beyond the data would be free: keep those the samples reach."""
    return Knots(
        tokens=_reached(knots.tokens, [sample.decodes + sample.prefill_tokens for sample in samples]),
        sequences=_reached(knots.sequences, [sample.decodes + sample.chunks for sample in samples]),
        decodes=_reached(knots.decodes, [sample.decodes for sample in samples]),
        prefill_tokens=_reached(knots.prefill_tokens, [sample.prefill_tokens for sample in samples]),
        weights=knots.weights,
    )


def _reached(knots: tuple[int, ...], values: Sequence[int]) -> tuple[int, ...]:
    return tuple(knot for knot in knots if knot <= max(values)) or knots[:1]


def regressors(samples: Sequence[StepSample], knots: Knots) -> NDArray[np.float64]:
    """One row a sample, one column an unknown: dense and sequence increments, KV knots, prefill increments, pairs.

    A constant of the step belongs to the dense part, so the sequence part starts from zero.
    """
    decodes = np.array([sample.decodes for sample in samples])
    prefilled = np.array([sample.prefill_tokens for sample in samples])
    tokens = decodes + prefilled
    sequences = decodes + np.array([sample.chunks for sample in samples])
    kv_tokens = np.array([sample.kv_tokens for sample in samples], dtype=float)
    pairs = np.array([sample.pairs for sample in samples])
    dense = hats(tokens, knots.tokens) @ np.tri(len(knots.tokens))
    sequence = hats(sequences, knots.sequences) @ np.tri(len(knots.sequences))[:, 1:]
    kv = hats(np.minimum(decodes, knots.decodes[-1]), knots.decodes) * kv_tokens[:, None]
    prefill = hats(prefilled, knots.prefill_tokens) @ np.tri(len(knots.prefill_tokens)) * (prefilled > 0)[:, None]
    return np.hstack([dense, sequence, kv, prefill, pairs[:, None]])


def hats(at: NDArray[np.int_], knots: tuple[int, ...]) -> NDArray[np.float64]:
    """Weights of the knots in the value at ``at``, one row each."""
    units = np.eye(len(knots))
    return np.stack([interpolate(at, knots, unit.tolist()) for unit in units], axis=1)


def law_of(solution: NDArray[np.float64], knots: Knots, provenance: Provenance) -> StepTimeModel:
    """The law whose unknowns, in the order of :func:`regressors`, are ``solution``."""
    ends = np.cumsum([len(knots.tokens), len(knots.sequences) - 1, len(knots.decodes), len(knots.prefill_tokens)])
    dense, sequence, kv, prefill, pair = np.split(solution, ends)
    return StepTimeModel(
        tokens=knots.tokens,
        dense_seconds=tuple(rounded(np.cumsum(dense))),
        sequences=knots.sequences,
        sequence_seconds=(0.0, *rounded(np.cumsum(sequence))),
        decodes=knots.decodes,
        kv_seconds_per_token=tuple(rounded(kv)),
        pair_seconds=rounded(pair)[0],
        prefill_tokens=knots.prefill_tokens,
        prefill_seconds=tuple(rounded(np.cumsum(prefill))),
        provenance=provenance,
    )


def rounded(values: NDArray[np.float64]) -> list[float]:
    """Six digits: far finer than the fit, and short in the file."""
    return [float(f"{value:.6g}") for value in values]


STORED_POINTS = 180
"""Held-out points kept in a profile at most, an even choice of each kind."""


def step_fit(
    law: StepTimeModel,
    fitted: Sequence[StepSample],
    held_out: Sequence[StepSample],
    intervals: StepModelIntervals | None = None,
    **known: Any,
) -> StepFit:
    """The ``step`` section of a profile.

    ``law`` was fitted to ``fitted`` and never to ``held_out``; ``known`` are the further fields of
    :class:`rlsim.costs.evidence.Evidence` (method, command, hardware, driver, libraries, noise floor).
    """
    evidence = Evidence(
        provenance=law.provenance,
        hold_out=hold_out_error(law, held_out),
        hold_out_by_kind=hold_out_by_kind(law, held_out),
        sampled=sampled(fitted, held_out),
        **known,
    )
    return StepFit(law, evidence, intervals, point_columns(held_out))


def sampled(fitted: Sequence[StepSample], held_out: Sequence[StepSample]) -> dict[str, Sampled]:
    """Counts and ranges of the samples by kind."""
    counts, values = dict[str, list[int]](), dict[str, dict[str, list[float]]]()
    for half, samples in enumerate((fitted, held_out)):
        for sample in samples:
            counts.setdefault(sample.kind, [0, 0])[half] += 1
            quantities: dict[str, float] = {"seconds": sample.seconds}
            if sample.decodes:
                quantities |= {"decodes": sample.decodes, "context_tokens": sample.kv_tokens / sample.decodes}
            if sample.chunks:
                tokens = sample.prefill_tokens / sample.chunks
                cached = sample.pairs / sample.chunks / tokens - (tokens + 1) / 2
                quantities |= {
                    "chunks": sample.chunks,
                    "prefill_tokens": sample.prefill_tokens,
                    "cached_tokens": max(0.0, cached),
                }
            for name, value in quantities.items():
                values.setdefault(sample.kind, {}).setdefault(name, []).append(_short(value))
    samples_by_kind = {}
    for kind, (fit_count, check_count) in sorted(counts.items()):
        ranges = {name: (min(column), max(column)) for name, column in values[kind].items()}
        samples_by_kind[kind] = Sampled(fit_count, check_count, ranges)
    return samples_by_kind


def point_columns(samples: Sequence[StepSample], limit: int = STORED_POINTS) -> dict[str, tuple[float, ...]]:
    """Points by column, at most ``limit``: an even choice of each kind. Seconds keep six digits."""
    kinds = sorted({sample.kind for sample in samples})
    chosen = list[StepSample]()
    for kind in kinds:
        of_kind = [sample for sample in samples if sample.kind == kind]
        step = max(1.0, len(of_kind) / (limit // len(kinds)))
        chosen += [of_kind[int(index * step)] for index in range(min(len(of_kind), limit // len(kinds)))]
    return {name: tuple(_short(getattr(sample, name)) for sample in chosen) for name in POINT_COLUMNS}


def samples_of(points: Mapping[str, Sequence[float]]) -> list[StepSample]:
    """The samples of :func:`point_columns`."""
    rows = zip(*(points[name] for name in POINT_COLUMNS), strict=True)
    return [StepSample(row[5], int(row[0]), int(row[1]), int(row[2]), int(row[3]), row[4]) for row in rows]


def _short(value: float) -> float:
    """Counts as they are, pairs as whole numbers where they are, seconds to six digits."""
    if float(value).is_integer():
        return int(value)
    return float(f"{value:.6g}")
