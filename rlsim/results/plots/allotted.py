"""Which prompts got what: a heat map a strategy, over success probability and training steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlsim.core.errors import ParameterError
from rlsim.results.allocation import EDGES, ROWS, UNKNOWN, Allotted
from rlsim.results.plots.style import BLACK, GREY, PALE, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

WINDOWS = 12
"""Columns of the longest run, at most."""
_ACROSS = 3
_COLOURS = "YlGnBu"
"""Of ColorBrewer, safe for colour-blind readers: its lightness only falls; darker is more."""


class What(NamedTuple):
    """What is counted."""

    label: str
    name: str
    unit: float


WHAT = {
    "samples": What("samples a training step", "samples", 1.0),
    "tokens": What("thousand response tokens a training step", "response tokens", 1000.0),
}


@styled
def allotted_map(
    runs_by_arm: Mapping[str, Sequence[Allotted]], what: str = "samples", title: str = "Which prompts got the samples"
) -> Figure:
    """``samples`` or ``tokens`` a training step, by success probability of the prompt; a panel an arm, one scale.

    Means over the replications of an arm (``rlsim.results.allocation``). A sample is in the column of the step under
    way when it began, in the row of its prompt then. ``ParameterError`` where there is nothing to draw, or rows of one
    arm are measured and those of another are not.
    """
    counted, measured = WHAT[what], _measured(runs_by_arm)
    steps = max(run.samples.shape[1] for runs in runs_by_arm.values() for run in runs)
    width = -(-steps // WINDOWS)
    edges = [*range(0, steps, width), steps]
    grids = {arm: _mean(runs, what, edges) / counted.unit for arm, runs in runs_by_arm.items()}
    rows = ROWS + any(grid[UNKNOWN].any() for grid in grids.values())
    down = -(-len(grids) // _ACROSS)
    figure = new_figure(1.9 + 3.3 * down, title, _note(runs_by_arm, counted, measured))
    panels = figure.subplots(down, min(len(grids), _ACROSS), sharex=True, sharey=True, squeeze=False)
    most = max(float(grid.max()) for grid in grids.values())
    from matplotlib.colors import PowerNorm

    scale = PowerNorm(0.5, vmin=0.0, vmax=most)  # what rejects whole batches makes one cell outshine all others
    for axes, (arm, grid) in zip(panels.flat, grids.items(), strict=False):
        drawn = np.ma.masked_equal(grid[:rows], 0.0)
        axes.pcolormesh(edges, np.arange(rows + 1), drawn, cmap=_COLOURS, norm=scale, edgecolors=PALE, linewidth=0.4)
        axes.set_title(arm, fontsize=11)
        _shares_beside(axes, _shares(runs_by_arm[arm], what)[:rows])
    for axes in panels.flat[len(grids) :]:
        axes.set_visible(False)
    _labels(panels, len(grids), rows, measured)
    _colour_bar(figure, panels, scale, counted.label)
    return figure


def _measured(runs_by_arm: Mapping[str, Sequence[Allotted]]) -> bool:
    kinds = {run.measured for runs in runs_by_arm.values() for run in runs if run.samples.size}
    if len(kinds) != 1 or not all(runs_by_arm.values()):
        raise ParameterError("runs_by_arm", dict(runs_by_arm), "arms with samples, all in rows of one kind")
    return kinds.pop()


def _mean(runs: Sequence[Allotted], what: str, edges: Sequence[int]) -> NDArray[np.float64]:
    """Shape (rows, windows): a step of each window, of the runs that lasted so long."""
    counts, steps = np.zeros((ROWS + 1, len(edges) - 1)), np.zeros(len(edges) - 1)
    for run in runs:
        values = getattr(run, what)
        for window, (low, high) in enumerate(pairwise(edges)):
            counts[:, window] += values[:, low:high].sum(axis=1)
            steps[window] += values[:, low:high].shape[1]
    return counts / np.maximum(steps, 1)


def _shares(runs: Sequence[Allotted], what: str) -> NDArray[np.float64]:
    rows: NDArray[np.int64] = sum((getattr(run, what).sum(axis=1) for run in runs), np.zeros(ROWS + 1, np.int64))
    return rows / max(1, int(rows.sum()))


def _shares_beside(axes: Axes, shares: NDArray[np.float64]) -> None:
    for row, share in enumerate(shares):
        text = f"{100 * share:.0f} %" if share >= 0.005 else "0" if share == 0 else "< 1 %"
        axes.annotate(
            text, (1, row + 0.5), xycoords=("axes fraction", "data"), xytext=(5, 0), textcoords="offset points",
            va="center", fontsize=9, color=BLACK if share else GREY,
        )  # fmt: skip


def _labels(panels: NDArray[np.object_], count: int, rows: int, measured: bool) -> None:
    limits = [0.0, *EDGES, 1.0]
    names = [f"{100 * low:.0f}–{100 * high:.0f}" for low, high in pairwise(limits)]
    names += ["unknown"] * (rows - ROWS)
    for number, axes in enumerate(panels.flat[:count]):
        axes.set_yticks(np.arange(rows) + 0.5, names)
        axes.tick_params(axis="y", length=0)
        if number % panels.shape[1] == 0:
            axes.set_ylabel("pass rate of the group (%)" if measured else "success of the prompt (%)")
        if number + panels.shape[1] >= count:
            axes.set_xlabel("training step (samples begun in it)")
            axes.tick_params(labelbottom=True)


def _colour_bar(figure: Figure, panels: NDArray[np.object_], scale: Normalize, label: str) -> None:
    from matplotlib.cm import ScalarMappable

    bar = figure.colorbar(
        ScalarMappable(scale, _COLOURS), ax=panels.ravel().tolist(), location="bottom", shrink=0.5, aspect=40
    )
    bar.set_label(f"{label} (colour by the square root)")


def _note(runs_by_arm: Mapping[str, Sequence[Allotted]], counted: What, measured: bool) -> str:
    counts = sorted({len(runs) for runs in runs_by_arm.values()})
    n = " to ".join(dict.fromkeys(str(count) for count in (counts[0], counts[-1])))
    model = "of a statistical model, an estimate, when samples began"
    rows = "measured, k of the n samples of a group" if measured else model
    return f"Rows: success {rows}; right: share of all {counted.name}; white: none; mean of n = {n} replications"
