"""What more GPUs and more staleness buy.

Progress of arms against what they used up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlsim.core.errors import ParameterError
from rlsim.results.columns import Columns
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
    legend_below,
    new_figure,
    styled,
)
from rlsim.results.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LOOKS = tuple(zip((BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK), "osD^vPX", strict=True))


class StalePoint(NamedTuple):
    """A setting of a staleness bound."""

    label: str
    """The bound as the policy counts it."""
    lag: Estimate
    """Mean start lag of trained samples, weights versions."""
    most: float
    """Largest start lag of any trained sample."""
    speedup: Estimate
    """Step time of the reference over this one's, paired."""


@styled
def throughput_over_gpus(
    series: Mapping[str, Mapping[int, Estimate]], title: str = "Throughput against GPUs", confidence: float = 0.95
) -> Figure:
    """Trained tokens a second (all GPUs together, and of one) against GPUs in use, on logarithmic axes.

    ``series`` has, for each setting, the estimate of trained tokens a second and GPU by number of GPUs. Dashed: as
    much a GPU as its smallest size makes. Raises ``ParameterError`` where there is nothing to draw.
    """
    counts = sorted({gpus for sizes in series.values() for gpus in sizes})
    if not counts:
        raise ParameterError("series", dict(series), "at least one size of one setting")
    figure = new_figure(5.2, title, _note(series, confidence))
    whole, one = figure.subplots(1, 2)
    whole.set_yscale("log")
    handles: list[Artist] = []
    for (name, sizes), (colour, marker) in zip(series.items(), _LOOKS, strict=False):
        ordered = dict(sorted(sizes.items()))
        handles.append(
            _line(whole, {gpus: _times(estimate, gpus) for gpus, estimate in ordered.items()}, name, colour, marker)
        )
        _line(one, ordered, name, colour, marker)
        _linear(whole, one, ordered, colour)
    _gpu_axes(whole, counts, "trained tokens a second")
    _gpu_axes(one, counts, "trained tokens a second and GPU")
    one.set_ylim(bottom=0)
    legend_below(figure, handles)
    return figure


def _note(series: Mapping[str, Mapping[int, Estimate]], confidence: float) -> str:
    n = sorted({estimate.n for sizes in series.values() for estimate in sizes.values()})
    counts = " to ".join(dict.fromkeys(str(one) for one in (n[0], n[-1])))
    return (
        f"Mean over n = {counts} replications; bars: {100 * confidence:g} % t intervals; "
        "dashed: linear from the smallest size"
    )


def _times(estimate: Estimate, factor: float) -> Estimate:
    low, high = (None if end is None else end * factor for end in (estimate.low, estimate.high))
    return Estimate(estimate.mean * factor, low, high, estimate.n)


def _line(axes: Axes, sizes: Mapping[int, Estimate], name: str, colour: str, marker: str) -> Artist:
    axes.plot(list(sizes), [estimate.mean for estimate in sizes.values()], color=colour, marker=marker, ms=6, lw=1.6)
    for gpus, estimate in sizes.items():
        _bar(axes, gpus, estimate, colour)
    return axes.plot([], [], color=colour, marker=marker, ms=6, lw=1.6, label=name)[0]


def _bar(axes: Axes, x: float, estimate: Estimate, colour: str) -> None:
    if estimate.low is not None and estimate.high is not None:
        low = max(estimate.low, estimate.mean / 100)  # a logarithmic axis has no place for less
        axes.errorbar(
            x, estimate.mean, [[estimate.mean - low], [estimate.high - estimate.mean]], ecolor=colour, capsize=4, lw=1.4
        )


def _linear(whole: Axes, one: Axes, sizes: Mapping[int, Estimate], colour: str) -> None:
    smallest, largest = min(sizes), max(sizes)
    mean = sizes[smallest].mean
    whole.plot([smallest, largest], [mean * smallest, mean * largest], color=colour, ls=(0, (4, 3)), lw=0.9)
    one.plot([smallest, largest], [mean, mean], color=colour, ls=(0, (4, 3)), lw=0.9)


def _gpu_axes(axes: Axes, counts: Sequence[int], what: str) -> None:
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("GPUs in use")
    axes.set_ylabel(what)
    axes.grid(color=PALE)


@styled
def speedup_over_staleness(
    series: Mapping[str, Sequence[StalePoint]],
    reference: str,
    title: str = "Speed-up against staleness",
    confidence: float = 0.95,
) -> Figure:
    """Speed-up over the arm ``reference`` against the mean start lag that it costs; labels are the bounds.

    The thin line to the right of a mark ends at the largest lag of any trained sample. What staleness does to learning
    is not in this figure. Raises ``ParameterError`` where there is nothing to draw.
    """
    points = [point for some in series.values() for point in some]
    if not points:
        raise ParameterError("series", dict(series), "at least one point")
    note = (
        f"Step time of {reference} over its own, n = {points[0].speedup.n} paired replications; "
        f"bars: {100 * confidence:g} % intervals; thin line: to the largest lag"
    )
    figure = new_figure(5.4, title, note)
    axes = figure.subplots()
    handles = [
        _stale(axes, name, some, *look, 7 if place % 2 == 0 else -15)
        for place, ((name, some), look) in enumerate(zip(series.items(), _LOOKS, strict=False))
    ]
    axes.axhline(1.0, color=GREY, lw=1, ls=(0, (4, 3)))
    axes.set_xlim(left=-0.1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("start lag of trained samples, mean (weights versions)")
    axes.set_ylabel("speed-up of the step (×)")
    axes.grid(color=PALE)
    legend_below(figure, handles)
    return figure


def _stale(axes: Axes, name: str, points: Sequence[StalePoint], colour: str, marker: str, above: float) -> Artist:
    for point in points:
        lag, speed = point.lag, point.speedup
        axes.plot([lag.mean, point.most], [speed.mean] * 2, color=colour, lw=0.6, alpha=0.7)
        _bar(axes, lag.mean, speed, colour)
        if lag.low is not None and lag.high is not None:
            reach = [[lag.mean - lag.low], [lag.high - lag.mean]]
            axes.errorbar(lag.mean, speed.mean, xerr=reach, ecolor=colour, capsize=4, lw=1.4)
        axes.annotate(point.label, (lag.mean, speed.mean), xytext=(6, above), textcoords="offset points", fontsize=10)
    means = [point.lag.mean for point in points], [point.speedup.mean for point in points]
    return axes.plot(*means, color=colour, marker=marker, ms=6, lw=1.6, label=name)[0]


AGAINST = {"rollouts": ("rollouts (thousands)", 1e3), "seconds": ("time (hours)", 3600.0), "usd": ("cost (USD)", 1.0)}
_LOOKS_plots_progress = [
    (colour, line) for line in ("-", "--", ":") for colour in (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, BLACK)
]


@styled
def progress_curves(runs_by_arm: Mapping[str, Sequence[Columns]], target: float | None, title: str) -> Figure:
    """Success of the model against rollouts, time and money; lines are means, bands least to most, over replications.

    ``runs_by_arm`` holds the columns of ``rlsim.results.progress.progress_columns``.
    """
    n = max(len(runs) for runs in runs_by_arm.values())
    note = f"Statistical model of learning, an estimate; mean (line) and range (band) of n = {n} replications"
    figure = new_figure(5.0, title, note)
    panels = figure.subplots(1, len(AGAINST), sharey=True)
    for axes, (used, (label, unit)) in zip(panels, AGAINST.items(), strict=True):
        lines = [_drawn(axes, arm, runs, used, unit, place) for place, (arm, runs) in enumerate(runs_by_arm.items())]
        if target is not None:
            axes.axhline(target, color=GREY, lw=1, ls=(0, (4, 3)))
        axes.set_xlabel(label)
        axes.set_xlim(left=0)
        axes.grid(color=PALE)
    panels[0].set_ylabel("success of a fresh sample")
    legend_below(figure, lines)
    return figure


def _drawn(axes: Axes, arm: str, runs: Sequence[Columns], used: str, unit: float, place: int) -> Artist:
    colour, line = _LOOKS_plots_progress[place % len(_LOOKS_plots_progress)]
    grid = np.linspace(0, min(float(run[used][-1]) for run in runs), 200)
    values: NDArray[np.float64] = np.array([np.interp(grid, run[used], run["success"]) for run in runs])
    axes.fill_between(grid / unit, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, lw=0)
    return axes.plot(grid / unit, values.mean(axis=0), color=colour, ls=line, lw=2, label=arm)[0]
