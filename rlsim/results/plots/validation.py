"""Predictions over published measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rlsim.results.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    legend_below,
    new_figure,
    styled,
)
from rlsim.results.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BANDS = (0.12, 0.30)
"""Relative errors that are shaded."""
_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK, YELLOW)
_MARKERS = "osD^vPX<>"


class Point(NamedTuple):
    """One published number, in the unit of its quantity, with the prediction."""

    group: str
    measured: float
    predicted: Estimate
    calibrated: bool


@styled
def predicted_and_measured(points: Sequence[Point]) -> Figure:
    """Log-log, a mark a number; calibrated ones are hollow, bands are errors of 12 and 30 %, bars are intervals."""
    note = "Each mark a published number in its own unit; hollow: used to calibrate; bars: intervals over replications."
    figure = new_figure(9.0, "Predicted over published measurements", note)
    axes = figure.subplots()
    low = 0.7 * min(min(point.measured, point.predicted.mean) for point in points)
    high = 1.4 * max(max(point.measured, point.predicted.mean) for point in points)
    handles = _bands(axes, low, high)
    for number, group in enumerate(dict.fromkeys(point.group for point in points)):
        colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
        some = [point for point in points if point.group == group]
        handles.append(_marks(axes, group, some, colour, marker))
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set_xlabel("measured (s, tokens/s, factor or share)")
    axes.set_ylabel("predicted (same unit)")
    axes.grid(color=PALE)
    legend_below(figure, handles)
    return figure


def _bands(axes: Axes, low: float, high: float) -> list[Artist]:
    ends = [low, high]
    handles: list[Artist] = []
    for band, shade in zip(reversed(BANDS), (PALE, "#C9D8E6"), strict=True):
        below, above = ([(1 + sign * band) * end for end in ends] for sign in (-1, 1))
        handles.append(axes.fill_between(ends, below, above, color=shade, lw=0, label=f"error up to {band:.0%}"))
    handles += axes.plot(ends, ends, color=GREY, lw=1, label="as measured")
    return handles


def _marks(axes: Axes, group: str, points: Sequence[Point], colour: str, marker: str) -> Artist:
    for point in points:
        predicted = point.predicted
        if predicted.low is not None and predicted.high is not None:
            axes.plot([point.measured] * 2, [max(predicted.low, 1e-9), predicted.high], color=colour, lw=1, zorder=3)
        face = "white" if point.calibrated else colour
        axes.scatter(
            point.measured, predicted.mean, s=38, marker=marker, fc=face, ec=colour, lw=1.2, zorder=4, alpha=0.9
        )
    return axes.scatter([], [], s=38, marker=marker, color=colour, label=f"{group} ({len(points)})")
