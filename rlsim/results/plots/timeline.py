"""What every replica and the trainer did, over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlsim.results.curves import TRAINER, Tables, end_seconds, occupancy, publications, replicas
from rlsim.results.plots.style import cause, cause_patches, legend_below, mark_versions, new_figure, ordered, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

MOST_ROWS = 64
"""More replicas than this are drawn as bands: how many of them do what."""
BINS, BAND_BINS = 1500, 400
"""Bins of the time axis: finer than a pixel for bars, coarser for bands."""

Span = tuple[float, float]
Shares = dict[str, NDArray[np.float64]]
"""For each cause, its share of every bin."""


@styled
def timeline(tables: Tables, title: str = "Timeline", seconds: Span | None = None) -> Figure:
    """Bars by cause for each replica and the trainer, with a mark where a weights version was published.

    A bar shows what took most of each bin of time (a 1500th of ``seconds``, by default the whole run). Above 64
    replicas the upper part shows how many replicas do what. Blank: nothing is booked, as for a trainer on shared
    GPUs while they generate.
    """
    span = seconds or (0.0, max(end_seconds(tables), 1e-9))
    activity, indices = tables["activity"], replicas(tables)
    bands = len(indices) > MOST_ROWS
    edges = np.linspace(*span, (BAND_BINS if bands else BINS) + 1)
    count = len(indices)
    figure = new_figure(
        3.2 + 0.24 * min(max(count, 4), 24) if count <= MOST_ROWS else 8.0, title, _note(len(indices), bands, span)
    )
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[max(min(len(indices), 24), 4), 1.5])
    rollout = activity[activity["who"] != TRAINER]
    shown = _replicas(upper, rollout, indices, edges)
    shown |= _trainer(lower, activity[activity["who"] == TRAINER], edges)
    _finish(upper, lower, tables, span)
    legend_below(figure, cause_patches(shown, hatched=False))
    return figure


@styled
def timelines(runs: Mapping[str, Tables], title: str, note: str) -> Figure:
    """Runs one above the other on one time axis, each with its replicas and its trainer; titles are their names."""
    span = (0.0, max(1e-9, *(end_seconds(tables) for tables in runs.values())))
    edges, count = np.linspace(*span, BINS + 1), max(len(replicas(tables)) for tables in runs.values())
    rows = min(max(count, 2), 24)
    figure = new_figure(1.8 + len(runs) * (0.9 + 0.24 * (rows + 2)), title, note)
    axes = figure.subplots(2 * len(runs), 1, sharex=True, height_ratios=[rows, 1.5] * len(runs), squeeze=False)[:, 0]
    shown: set[str] = set()
    for place, (name, tables) in enumerate(runs.items()):
        upper, lower = axes[2 * place], axes[2 * place + 1]
        activity, indices = tables["activity"], replicas(tables)
        shown |= _replicas(upper, activity[activity["who"] != TRAINER], indices, edges)
        shown |= _trainer(lower, activity[activity["who"] == TRAINER], edges)
        _finish(upper, lower, tables, span)
        upper.set_title(name, fontsize=11, pad=16)
        lower.set_xlabel("time since the start of the run (s)" if 2 * place + 2 == len(axes) else "")
    legend_below(figure, cause_patches(shown, hatched=False))
    return figure


def _replicas(axes: Axes, activity: DataFrame, indices: list[int], edges: NDArray[np.float64]) -> set[str]:
    if len(indices) > MOST_ROWS:
        return _bands(axes, activity, edges)
    return _rows(axes, activity, indices, edges)


def _note(count: int, bands: bool, span: Span) -> str:
    what = "stacked by what they do, means of" if bands else "coloured by what takes most of each of the"
    bin_seconds = (span[1] - span[0]) / (BAND_BINS if bands else BINS)
    return f"One run; {count} replicas, {what} {bin_seconds:.2g} s bins; dashed: weights version published"


def _finish(upper: Axes, lower: Axes, tables: Tables, span: Span) -> None:
    marks = [at for at in publications(tables).tolist() if at <= span[1]]
    for axes in (upper, lower):
        mark_versions(axes, marks, label=axes is upper)
        axes.set_xlim(*span)
    lower.set_xlabel("time since the start of the run (s)")


def _shares(activity: DataFrame, edges: NDArray[np.float64]) -> Shares:
    by_cause = activity.groupby("what", sort=True)
    return {str(what): occupancy(rows["start_seconds"], rows["end_seconds"], edges) for what, rows in by_cause}


def _rows(axes: Axes, activity: DataFrame, indices: list[int], edges: NDArray[np.float64]) -> set[str]:
    shown: set[str] = set()
    for place, (_, rows) in enumerate(activity.groupby("who", sort=True)):
        shown |= _bar(axes, _shares(rows, edges), edges, place)
    every = max(1, -(-len(indices) // 16))
    axes.set_yticks(range(0, len(indices), every), [str(index) for index in indices[::every]])
    axes.set_ylim(max(len(indices), 1) - 0.5, -0.5)
    axes.set_ylabel("replica")
    return shown


def _trainer(axes: Axes, activity: DataFrame, edges: NDArray[np.float64]) -> set[str]:
    axes.set_yticks([0], ["trainer"])
    axes.set_ylim(0.5, -0.5)
    return _bar(axes, _shares(activity, edges), edges, 0)


def _bar(axes: Axes, shares: Shares, edges: NDArray[np.float64], place: int) -> set[str]:
    """One horizontal bar, coloured by the largest cause of each bin; blank where nothing is booked."""
    whats = list(shares)
    if not whats:
        return set()
    stacked = np.array([shares[what] for what in whats])
    largest = np.where(stacked.sum(axis=0) > 1e-3, stacked.argmax(axis=0), -1)
    begins = np.flatnonzero(np.append(True, largest[1:] != largest[:-1]))
    ends = np.append(begins[1:], len(largest))
    for number in np.unique(largest[largest >= 0]).tolist():
        mine = largest[begins] == number
        starts, stops = edges[begins[mine]], edges[ends[mine]]
        ranges = list(zip(starts.tolist(), (stops - starts).tolist(), strict=True))
        axes.broken_barh(ranges, (place - 0.42, 0.84), facecolors=cause(whats[number]).colour, linewidth=0)
    return {whats[number] for number in np.unique(largest).tolist() if number >= 0}


def _bands(axes: Axes, activity: DataFrame, edges: NDArray[np.float64]) -> set[str]:
    shares = _shares(activity, edges)
    whats = ordered(shares)
    middles = (edges[1:] + edges[:-1]) / 2
    colours = [cause(what).colour for what in whats]
    axes.stackplot(middles, [shares[what] for what in whats], colors=colours, linewidth=0, step="mid")
    axes.set_ylim(0, activity["who"].nunique())
    axes.set_ylabel("replicas")
    return set(whats)
