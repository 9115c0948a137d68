"""Figures of a plan: how flat the optimum is, time against cost, and what would change the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlsim.results.plots.style import BLACK, BLUE, GREY, ORANGE, PALE, SKY, VERMILLION, legend_below, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rlsim.results.statistics import Estimate

MOST_TICKS = 16
HIGH = 3.0
"""Times the best: where the axis of the objective ends."""
FAR = 1.6
"""Times the front's largest time or cost: a point beyond tells nothing."""


@dataclass(frozen=True, slots=True)
class AxisLevel:
    """One level of an axis with the best that the others allow."""

    label: str
    objective: Estimate | None
    """None where no choice with this level is feasible."""
    series: str = ""
    """Levels of one series are joined by a line: those that share out as many GPUs."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A choice in time and cost."""

    label: str
    time: Estimate
    cost: Estimate
    is_front: bool
    is_best: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """An input at a low and a high value."""

    key: str
    low: str
    high: str
    low_change: Estimate
    """Ratio of the objective to that with the input as it is."""
    high_change: Estimate
    low_matters: bool
    """Whether another choice would be better then."""
    high_matters: bool


@styled
def optimum(levels: Sequence[AxisLevel], axis: str, objective: str, margin: float, title: str, note: str) -> Figure:
    """The objective over one axis, each level with the best of the other axes; the band within ``margin`` is shaded."""
    figure = new_figure(5.6, title, note)
    axes = figure.subplots()
    known = [(place, level.objective) for place, level in enumerate(levels) if level.objective is not None]
    best = min(estimate.mean for _, estimate in known)
    axes.axhspan(best, best * (1 + margin), color=SKY, alpha=0.35, lw=0, label=f"within {margin:.0%} of the best")
    for series in dict.fromkeys(level.series for level in levels):
        line = [(place, estimate.mean) for place, estimate in known if levels[place].series == series]
        axes.plot([place for place, _ in line], [mean for _, mean in line], color=BLUE, lw=1.2, zorder=2)
    for is_replicated, label in ((True, "mean, interval over replications"), (False, "one replication, no interval")):
        _points(
            axes, [(place, estimate) for place, estimate in known if (estimate.low is not None) == is_replicated], label
        )
    place, estimate = min(known, key=lambda one: one[1].mean)
    axes.plot(place, estimate.mean, "*", ms=17, color=VERMILLION, mec=BLACK, mew=0.6, label="best", zorder=5)
    places = [place for place, level in enumerate(levels) if level.objective is None]
    if places:
        axes.plot(
            places, [0.02] * len(places), "x", color=GREY, transform=axes.get_xaxis_transform(), label="infeasible"
        )
    every = max(1, -(-len(levels) // MOST_TICKS))
    axes.set_xticks(range(0, len(levels), every), [level.label for level in levels[::every]])
    axes.set(xlabel=axis, ylabel=objective, xlim=(-0.6, len(levels) - 0.4))
    _cut(axes, known, HIGH * best)
    axes.grid(axis="y")
    legend_below(figure, axes.get_legend_handles_labels()[0])
    return figure


def _points(axes: Axes, some: Sequence[tuple[int, Estimate]], label: str) -> None:
    if not some:
        return
    below = [0.0 if estimate.low is None else estimate.mean - estimate.low for _, estimate in some]
    above = [0.0 if estimate.high is None else estimate.high - estimate.mean for _, estimate in some]
    is_replicated = some[0][1].low is not None
    axes.errorbar(
        [place for place, _ in some],
        [estimate.mean for _, estimate in some],
        yerr=[below, above] if is_replicated else None,
        fmt="o",
        color=BLUE,
        mfc=BLUE if is_replicated else "white",
        capsize=3,
        label=label,
        zorder=3,
    )


def _cut(axes: Axes, known: Sequence[tuple[int, Estimate]], most: float) -> None:
    """The axis from 0 to ``most`` at most; what lies above is marked at the edge with its value."""
    above = [(place, estimate.mean) for place, estimate in known if estimate.mean > most]
    if not above:
        axes.set_ylim(0, None)
        return
    axes.set_ylim(0, most)
    for place, value in above:
        axes.plot(place, 0.97, "^", color=BLUE, mfc="white", transform=axes.get_xaxis_transform(), zorder=4)
        axes.annotate(
            f"{value:.3g}", (place, 0.97), xycoords=("data", "axes fraction"), xytext=(0, -7), ha="center", va="top",
            textcoords="offset points", fontsize=9, bbox={"fc": "white", "ec": "none", "pad": 0.5}, zorder=5,
        )  # fmt: skip


@styled
def pareto(spots: Sequence[Spot], time: str, cost: str, title: str, note: str) -> Figure:
    """Time against cost with intervals; the front is joined, the choice is a star. Far points are counted alone."""
    front = sorted((spot for spot in spots if spot.is_front), key=lambda spot: spot.time.mean)
    times, costs = [spot.time for spot in front], [spot.cost for spot in front]
    most_time, most_cost = (FAR * max(e.mean if e.high is None else e.high for e in axis) for axis in (times, costs))
    others = [spot for spot in spots if not spot.is_front]
    shown = [spot for spot in others if spot.time.mean <= most_time and spot.cost.mean <= most_cost]
    far = f"; {len(others) - len(shown)} points beyond the axes" if len(shown) < len(others) else ""
    figure = new_figure(6.2, title, note + far)
    axes = figure.subplots()
    axes.plot(
        [spot.time.mean for spot in shown], [spot.cost.mean for spot in shown], "o", ms=5, color=GREY, mfc=PALE,
        label="beaten in both, or simulated once only", zorder=2,
    )  # fmt: skip
    axes.plot([s.time.mean for s in front], [s.cost.mean for s in front], color=ORANGE, lw=1.4, zorder=2)
    axes.errorbar(
        [estimate.mean for estimate in times],
        [estimate.mean for estimate in costs],
        xerr=_sides(times),
        yerr=_sides(costs),
        fmt="s",
        color=ORANGE,
        mec=BLACK,
        mew=0.6,
        capsize=3,
        label="front: nothing is better in both",
        zorder=3,
    )
    for spot in (spot for spot in spots if spot.is_best):
        axes.plot(
            spot.time.mean, spot.cost.mean, "*", ms=17, color=VERMILLION, mec=BLACK, mew=0.6, label="choice", zorder=5
        )
    _name_spots(axes, front)
    axes.set(xlabel=time, ylabel=cost)
    axes.margins(0.12)
    axes.grid()
    legend_below(figure, axes.get_legend_handles_labels()[0])
    return figure


def _sides(estimates: Sequence[Estimate]) -> list[list[float]]:
    below = [0.0 if one.low is None else one.mean - one.low for one in estimates]
    above = [0.0 if one.high is None else one.high - one.mean for one in estimates]
    return [below, above]


def _name_spots(axes: Axes, front: Sequence[Spot]) -> None:
    """The ends of the front and the choice by name, and as many between as there is room for."""
    every = max(1, -(-len(front) // 6))
    named = [spot for place, spot in enumerate(front) if place % every == 0 or spot.is_best or place == len(front) - 1]
    for place, spot in enumerate(named):
        above = place % 2 == 0
        axes.annotate(
            spot.label, (spot.time.mean, spot.cost.mean), xytext=(10, 10 if above else -10), textcoords="offset points",
            fontsize=9, va="bottom" if above else "top", bbox={"fc": "white", "ec": "none", "pad": 1, "alpha": 0.8},
            zorder=6,
        )  # fmt: skip


@styled
def tornado(bars: Sequence[Bar], objective: str, title: str, note: str) -> Figure:
    """The change of the choice's objective with each input low and high, the widest on top; hatched: another choice."""
    from matplotlib.patches import Patch

    figure = new_figure(2.4 + 0.7 * len(bars), title, note)
    axes = figure.subplots()
    for row, bar in enumerate(reversed(bars)):
        _bar(axes, row + 0.15, bar.low_change, bar.low_matters, SKY)
        _bar(axes, row - 0.15, bar.high_change, bar.high_matters, ORANGE)
    axes.axvline(0, color=BLACK, lw=1)
    axes.set_yticks(range(len(bars)), [f"{bar.key}\n{bar.low} to {bar.high}" for bar in reversed(bars)])
    axes.set(xlabel=f"change of the choice's {objective}, %", ylim=(-0.7, len(bars) - 0.3))
    axes.margins(x=0.08)
    axes.grid(axis="x")
    patches = [
        Patch(fc=SKY, ec=GREY, label="input at its low value"),
        Patch(fc=ORANGE, ec=GREY, label="input at its high value"),
        Patch(fc="white", ec=BLACK, hatch="///", label="another choice would be better then"),
    ]
    legend_below(figure, patches)
    return figure


def _bar(axes: Axes, row: float, change: Estimate, matters: bool, colour: str) -> None:
    error = None if change.low is None or change.high is None else 50 * (change.high - change.low)
    axes.barh(
        row, 100 * (change.mean - 1), 0.3, color=colour, ec=BLACK if matters else GREY, lw=0.8,
        hatch="///" if matters else "", xerr=error, capsize=3, error_kw={"lw": 1.2},
    )  # fmt: skip
