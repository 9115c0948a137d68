"""Figures of a plan show the numbers that they are given, and say what is uncertain."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlsim.results.plots.planning import HIGH, AxisLevel, Bar, Spot, optimum, pareto, tornado
from rlsim.results.plots.style import save_figure
from rlsim.results.statistics import Estimate


def about(mean: float, half: float | None = None) -> Estimate:
    return Estimate(mean, None if half is None else mean - half, None if half is None else mean + half, 3)


LEVELS = [
    AxisLevel("2+6", about(50.0), "8"),
    AxisLevel("4+4", about(10.0, 1.0), "8"),
    AxisLevel("6+2", about(12.0), "8"),
    AxisLevel("8", None, "8 shared"),
]


def texts(axes: object) -> list[str]:
    return [text.get_text() for text in axes.texts]  # type: ignore[attr-defined]


def test_the_band_begins_at_the_best_and_is_as_high_as_the_margin(tmp_path: Path) -> None:
    figure = optimum(LEVELS, "split", "step time, s", 0.05, "title", "note")
    (axes,) = figure.axes
    (band,) = [patch for patch in axes.patches if patch.get_label().startswith("within")]
    box = band.get_extents().transformed(axes.transData.inverted())
    assert (box.ymin, box.ymax) == pytest.approx((10.0, 10.5))
    assert axes.get_ylim() == (0, HIGH * 10)
    assert texts(axes) == ["50"]  # Beyond the axis, told by its value.
    labels = axes.get_legend_handles_labels()[1]
    assert {"infeasible", "one replication, no interval", "mean, interval over replications"} <= set(labels)
    save_figure(figure, tmp_path / "optimum.png")


def test_lines_join_only_levels_of_as_many_gpus() -> None:
    levels = [*LEVELS[:3], AxisLevel("8", about(20.0), "8 shared"), AxisLevel("8+8", about(9.0), "16")]
    (axes,) = optimum(levels, "split", "step time, s", 0.05, "title", "note").axes
    lines = [
        list(line.get_xdata())
        for line in axes.lines
        if line.get_linestyle() == "-" and not line.get_marker().strip("None")
    ]
    assert [line for line in lines if len(line) > 1] == [[0, 1, 2]]


def test_the_front_is_joined_in_order_and_points_far_off_are_counted(tmp_path: Path) -> None:
    spots = [
        Spot("slow", about(20.0, 1.0), about(1.0, 0.1), True, False),
        Spot("quick", about(10.0, 1.0), about(2.0, 0.1), True, True),
        Spot("", about(15.0), about(2.5), False, False),
        Spot("", about(500.0), about(90.0), False, False),
    ]
    figure = pareto(spots, "step time, s", "cost, USD", "title", "note")
    (axes,) = figure.axes
    front = next(line for line in axes.lines if list(line.get_xdata()) == [10.0, 20.0])
    assert list(front.get_ydata()) == [2.0, 1.0]
    assert any("1 points beyond the axes" in text.get_text() for text in figure.texts)
    assert axes.get_xlim()[1] < 500
    assert {"slow", "quick"} == set(texts(axes))
    save_figure(figure, tmp_path / "pareto.png")


def test_bars_are_as_long_as_the_change_and_hatched_where_the_choice_changes(tmp_path: Path) -> None:
    bars = [Bar("trainer.mfu", "0.3", "0.5", about(1.2, 0.05), about(0.9, 0.02), True, False)]
    figure = tornado(bars, "step time", "title", "note")
    (axes,) = figure.axes
    low, high = axes.patches
    assert (low.get_width(), high.get_width()) == pytest.approx((20, -10))
    assert (low.get_hatch(), high.get_hatch()) == ("///", "")
    assert axes.get_yticklabels()[0].get_text() == "trainer.mfu\n0.3 to 0.5"
    save_figure(figure, tmp_path / "tornado.png")
