"""Step times of policies, live and simulated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from rlsim.results.style import BLUE, GREY, PALE, VERMILLION, legend_below, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Steps(NamedTuple):
    """Step times of one policy, seconds: median, least and most of its live runs, and the prediction."""

    live: float
    low: float
    high: float
    simulated: float


@styled
def live_and_simulated(steps: Mapping[str, Steps], title: str, note: str) -> Figure:
    """One line a policy: the live runs from least to most, their median, and the prediction."""
    figure = new_figure(2.2 + 0.42 * len(steps), title, note)
    axes = figure.subplots()
    for place, found in enumerate(steps.values()):
        axes.plot([found.low, found.high], [place, place], color=GREY, lw=3, solid_capstyle="round", zorder=2)
    places = range(len(steps))
    live, simulated = [found.live for found in steps.values()], [found.simulated for found in steps.values()]
    points = [
        axes.scatter(live, places, s=64, color=BLUE, zorder=3, label="live, median (line: all live runs)"),
        axes.scatter(simulated, places, s=90, marker="x", color=VERMILLION, lw=2, zorder=4, label="simulated"),
    ]
    axes.set_yticks(list(places), list(steps))
    axes.set_ylim(len(steps) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.grid(axis="x", color=PALE)
    axes.set_xlabel("step time (s)")
    legend_below(figure, points)
    return figure
