"""Progress of arms against what they used up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlsim.results.columns import Columns
from rlsim.results.style import (
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

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AGAINST = {"rollouts": ("rollouts (thousands)", 1e3), "seconds": ("time (hours)", 3600.0), "usd": ("cost (USD)", 1.0)}
_LOOKS = [
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
    colour, line = _LOOKS[place % len(_LOOKS)]
    grid = np.linspace(0, min(float(run[used][-1]) for run in runs), 200)
    values: NDArray[np.float64] = np.array([np.interp(grid, run[used], run["success"]) for run in runs])
    axes.fill_between(grid / unit, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, lw=0)
    return axes.plot(grid / unit, values.mean(axis=0), color=colour, ls=line, lw=2, label=arm)[0]
