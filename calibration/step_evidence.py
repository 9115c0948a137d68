"""A fitted step law with its evidence: errors on held-out steps, ranges of the samples, points to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibration.stepfit import StepSample, hold_out_by_kind, hold_out_error
from rlsim.costs.evidence import Evidence, Sampled
from rlsim.costs.sections import POINT_COLUMNS, LawIntervals, StepFit
from rlsim.costs.steplaw import StepLaw

STORED_POINTS = 180
"""Held-out points kept in a profile at most, an even choice of each kind."""


def step_fit(
    law: StepLaw,
    fitted: Sequence[StepSample],
    held_out: Sequence[StepSample],
    intervals: LawIntervals | None = None,
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
    kinds = sorted({sample.kind for sample in (*fitted, *held_out)})
    return {kind: _sampled(_of_kind(fitted, kind), _of_kind(held_out, kind)) for kind in kinds}


def point_columns(samples: Sequence[StepSample], limit: int = STORED_POINTS) -> dict[str, tuple[float, ...]]:
    """Points by column, at most ``limit``: an even choice of each kind. Seconds keep six digits."""
    kinds = sorted({sample.kind for sample in samples})
    chosen = [sample for kind in kinds for sample in _evenly(_of_kind(samples, kind), limit // len(kinds))]
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


def _of_kind(samples: Sequence[StepSample], kind: str) -> list[StepSample]:
    return [sample for sample in samples if sample.kind == kind]


def _evenly(samples: list[StepSample], limit: int) -> list[StepSample]:
    step = max(1.0, len(samples) / limit)
    return [samples[int(index * step)] for index in range(min(len(samples), limit))]


def _sampled(fitted: list[StepSample], held_out: list[StepSample]) -> Sampled:
    values: dict[str, list[float]] = {}
    for sample in (*fitted, *held_out):
        for name, value in _quantities(sample).items():
            values.setdefault(name, []).append(_short(value))
    ranges = {name: (min(found), max(found)) for name, found in values.items()}
    return Sampled(len(fitted), len(held_out), ranges)


def _quantities(sample: StepSample) -> dict[str, float]:
    """What a step varies in; contexts and cached tokens are means over its sequences."""
    found: dict[str, float] = {"seconds": sample.seconds}
    if sample.decodes:
        found |= {"decodes": sample.decodes, "context_tokens": sample.kv_tokens / sample.decodes}
    if sample.chunks:
        tokens = sample.prefill_tokens / sample.chunks
        cached = sample.pairs / sample.chunks / tokens - (tokens + 1) / 2
        found |= {"chunks": sample.chunks, "prefill_tokens": sample.prefill_tokens, "cached_tokens": max(0.0, cached)}
    return found
