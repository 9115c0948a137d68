"""Timings of trainer points to the coefficients of rlsim's training cost, and how far these are off elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np

from calibration.fitting.robust_regression import LinearFit, fit_linear, hold_out
from calibration.measure.measurements import halves, noise_floor, upward_bias
from calibration.trainer.points import TrainerDesign, TrainerPoint, Work
from rlsim.core.errors import ParameterError
from rlsim.costs.architecture import Architecture
from rlsim.costs.evidence import Coefficient, HoldOutError, Sampled

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNKNOWNS = (
    "train_flops_per_second",
    "logprob_flops_per_second",
    "attention_flops_per_second",
    "seconds_per_micro_batch",
    "logprob_seconds_per_micro_batch",
    "update_seconds",
)
"""Names in the profile; the first three are fitted as their inverses, seconds a FLOP of one GPU."""
RATES = 3
TRAINING_FLOPS = 3.0
"""FLOPs of forward and backward over those of a forward pass."""


@dataclass(frozen=True, slots=True)
class TrainerFit:
    """Coefficients with intervals, and errors on shapes and passes that were not fitted."""

    law: LinearFit
    coefficients: dict[str, Coefficient]
    hold_out: HoldOutError
    hold_out_by_kind: dict[str, HoldOutError]
    noise_floor: dict[str, float]
    sampled: dict[str, Sampled]


def fit_trainer(
    design: TrainerDesign, table: NDArray[np.float64], architecture: Architecture, peak_flops: float
) -> TrainerFit:
    """Fit the even passes of the fitted points; judge by the odd passes of the others.

    ``table`` is seconds by pass and point (of ``design.points``), without gaps; no rate is above ``peak_flops``.
    Raises ``ParameterError`` with fewer than two passes or times that are not above zero.
    """
    if len(table) < 2 or not (table > 0).all():
        raise ParameterError("samples", f"{len(table)} passes", "at least two whole passes of times above zero")
    even, odd = halves(table)
    fit = fit_points(design.fitted, even[: len(design.fitted)], architecture, peak_flops, upward_bias(table))
    expected = predicted(fit, design.held_out, architecture)
    measured = odd[len(design.fitted) :]
    by_kind = {}
    for work in get_args(Work):
        chosen = [index for index, point in enumerate(design.held_out) if point.work == work]
        if chosen:
            by_kind[work] = hold_out(expected[chosen], measured[chosen], [design.held_out[index] for index in chosen])
    works = [point.work for point in design.points]
    kinds = {work: [i for i, other in enumerate(works) if other == work] for work in get_args(Work)}
    floors = {work: noise_floor(even[of_kind], odd[of_kind]) for work, of_kind in kinds.items() if of_kind}
    return TrainerFit(
        law=fit,
        coefficients=_coefficients(fit, table.shape[0] // 2 * len(design.fitted)),
        hold_out=hold_out(expected, measured, design.held_out),
        hold_out_by_kind=by_kind,
        noise_floor={name: round(floor, 5) for name, floor in ({"all": noise_floor(even, odd)} | floors).items()},
        sampled=_sampled(design, table),
    )


def fit_points(
    points: Sequence[TrainerPoint],
    seconds: NDArray[np.float64],
    architecture: Architecture,
    peak_flops: float,
    below: float = 0.0,
) -> LinearFit:
    """The unknowns from one time a point; all times may be too long by the share ``below``."""
    least = np.array([1.0 / peak_flops] * RATES + [0.0] * (len(UNKNOWNS) - RATES))
    return fit_linear(_design(points, architecture), seconds, least, below)


def predicted(fit: LinearFit, points: Sequence[TrainerPoint], architecture: Architecture) -> NDArray[np.float64]:
    """Seconds of points; the same as :class:`rlsim.costs.training.TrainingCost` gives with the fitted keys."""
    seconds: NDArray[np.float64] = _design(points, architecture) @ fit.values
    return seconds


def interval_width(design: TrainerDesign, table: NDArray[np.float64], architecture: Architecture, peak: float) -> float:
    """Half width of the wider relative interval of the two pass rates, which decide the time of a real step."""
    even, _ = halves(table)
    return fit_points(design.fitted, even[: len(design.fitted)], architecture, peak).width((0, 1))


def _design(points: Sequence[TrainerPoint], architecture: Architecture) -> NDArray[np.float64]:
    return np.array([_row(point, architecture) for point in points])


def _row(point: TrainerPoint, architecture: Architecture) -> list[float]:
    """FLOPs of either pass outside attention, of attention in both, micro-batches of either, updates."""
    trains, scores = point.work in ("train", "step"), point.work in ("logprob", "step")
    tokens, pairs = architecture.token_flops() * point.tokens, architecture.pair_flops() * point.pairs
    return [
        TRAINING_FLOPS * tokens * trains,
        tokens * scores,
        pairs * (TRAINING_FLOPS * trains + scores),
        float(point.micro_batches * trains),
        float(point.micro_batches * scores),
        float(point.work in ("update", "step")),
    ]


def _coefficients(fit: LinearFit, samples: int) -> dict[str, Coefficient]:
    coefficients = {}
    for column, name in enumerate(UNKNOWNS):
        ends = (float(fit.low[column]), float(fit.values[column]), float(fit.high[column]))
        if column < RATES:
            ends = (1.0 / ends[2], 1.0 / ends[1], 1.0 / ends[0])
        low, value, high = (float(f"{end:.6g}") for end in ends)
        unit = "FLOP/s" if column < RATES else "s"
        coefficients[name] = Coefficient(value, unit, low, high, samples=samples)
    return coefficients


def _sampled(design: TrainerDesign, table: NDArray[np.float64]) -> dict[str, Sampled]:
    samples = {}
    for work in get_args(Work):
        chosen = [index for index, point in enumerate(design.points) if point.work == work]
        counts = [sum(point.work == work for point in points) for points in (design.fitted, design.held_out)]
        tokens = [design.points[index].tokens for index in chosen]
        seconds = table[:, chosen]
        ranges = {"tokens": (float(min(tokens)), float(max(tokens)))} if max(tokens) else {}
        ranges["seconds"] = (float(seconds.min()), float(seconds.max()))
        samples[work] = Sampled(counts[0] * len(table), counts[1] * len(table), ranges)
    return samples
