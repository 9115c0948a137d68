from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from small_tables import activity, run_tables, samples

from rlsim.core.errors import ParameterError
from rlsim.results.allocation import ROWS, Allotted
from rlsim.results.plots import run as plots
from rlsim.results.plots import style
from rlsim.results.plots.scaling import StalePoint
from rlsim.results.statistics import Estimate

OWN = {"rollout": {"decode": 0.75, "idle:staleness": 0.25}, "trainer": {"update_actor": 0.9, "idle:data": 0.1}}
OWN["all"] = {"decode": 0.375, "idle:staleness": 0.125, "update_actor": 0.45, "idle:data": 0.05}
SHARED = {key: {"decode": 0.6, "update_actor": 0.35, "idle:tail": 0.05} for key in ("rollout", "trainer", "all")}


def metrics(shares):
    return SimpleNamespace(utilisation=SimpleNamespace(**shares))


def texts(figure):
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text().strip()]


def wide_tables(replicas):
    """A run of many replicas in which every cause occurs."""
    whats = list(style.CAUSES)
    rows = [(who, what, 10.0 * i, 10.0 * (i + 1)) for who in range(-1, replicas) for i, what in enumerate(whats)]
    return run_tables() | {"activity": activity(rows)}


def four_arms():
    names = ["on-policy, colocated on all GPUs", "one-off 8+8", "bounded staleness 8+8 η = 2", "over-sample + partial"]
    return {name: [metrics(SHARED if i % 3 == 0 else OWN)] * 3 for i, name in enumerate(names)}


def estimates():
    given = [Estimate(60.2, 57.9, 62.5, 4), Estimate(49.1, 48.8, 49.4, 4), Estimate(5.0, None, None, 1)]
    return dict(zip(four_arms(), [*given, Estimate(100.0, 90.0, 110.0, 4)], strict=False))


THROUGHPUT = {
    "synchronous, colocated": {8: Estimate(2000.0, 1900.0, 2100.0, 3), 64: Estimate(900.0, -50.0, 1850.0, 3)},
    "one step off-policy": {16: Estimate(2500.0, None, None, 1)},
}
STALE = {
    "bounded staleness": [
        StalePoint("at most 1", Estimate(0.9, 0.8, 1.0, 3), 1.0, Estimate(1.5, 1.4, 1.6, 3)),
        StalePoint("at most 4", Estimate(2.5, 2.0, 3.0, 3), 4.0, Estimate(1.7, 1.5, 1.9, 3)),
    ],
    "one step off": [StalePoint("one", Estimate(1.0, None, None, 1), 1.0, Estimate(1.4, None, None, 1))],
}


def allotments(measured):
    counts = np.random.default_rng(5).integers(0, 90, (ROWS + 1, 60))
    return [Allotted(counts, counts * 1000, measured)] * 2


FIGURES = {
    "timeline": lambda: plots.timeline(wide_tables(16)),
    "bands": lambda: plots.timeline(wide_tables(96)),
    "running": lambda: plots.running_requests(run_tables()),
    "lengths": lambda: plots.length_histogram(run_tables()),
    "staleness": lambda: plots.staleness_histogram(run_tables()),
    "utilisation": lambda: plots.utilisation_bars(four_arms()),
    "step times": lambda: plots.step_time_bars(estimates(), {"one-off 8+8": [64.8, 52.0]}),
    "throughput": lambda: plots.throughput_over_gpus(THROUGHPUT),
    "samples allotted": lambda: plots.allotted_map(dict.fromkeys(four_arms(), allotments(False))),
    "tokens allotted": lambda: plots.allotted_map({"live": allotments(True)}, "tokens"),
    "speed-up": lambda: plots.speedup_over_staleness(STALE, "on-policy, colocated on all GPUs"),
}


@pytest.fixture(scope="module", params=FIGURES)
def figure(request):
    made = FIGURES[request.param]()
    made.draw_without_rendering()
    return made


# -- every figure -----------------------------------------------------------------------------------------


def test_axes_say_what_and_in_which_unit(figure):
    units = ("(s)", "(%)", "tokens", "versions", "samples", "groups", "replica", "% of", "GPUs", "(×)")
    for axes in figure.axes:
        assert axes.get_xlabel() or axes.get_shared_x_axes().get_siblings(axes) != [axes]
        for label in filter(None, (axes.get_xlabel(), axes.get_ylabel())):
            assert any(unit in label for unit in units), label


def test_the_note_says_of_how_much(figure):
    assert any("One run" in text or "replications" in text for text in texts(figure))


def test_nothing_is_cut_off_at_1200_pixels(figure):
    frame = figure.bbox
    assert frame.width == 1200
    undrawn = set(_not_drawn(figure))
    for text in figure.findobj(matplotlib.text.Text):
        if text.get_text().strip() and text.get_visible() and text not in undrawn:
            box = text.get_window_extent()
            assert box.x0 >= frame.x0 - 1, text
            assert box.x1 <= frame.x1 + 1, text
            assert box.y0 >= frame.y0 - 1, text
            assert box.y1 <= frame.y1 + 1, text


def _not_drawn(figure):
    """Labels of ticks outside the limits: they exist all the same."""
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not low <= tick.get_loc() <= high:
                yield from (tick.label1, tick.label2)


def test_legend_lies_below_the_axes_and_the_note_above(figure):
    for legend in figure.legends:
        bottom = min(axes.get_tightbbox().y0 for axes in figure.axes)
        assert legend.get_window_extent().y1 <= bottom + 1
    note = next(text for text in figure.texts if "One run" in text.get_text() or "repl" in text.get_text())
    assert note.get_window_extent().y0 >= max(axes.get_window_extent().y1 for axes in figure.axes)


# -- timeline ---------------------------------------------------------------------------------------------


def bars(axes, what):
    colour = style.cause(what).colour
    for collection in axes.collections:
        if to_hex(collection.get_facecolor()[0]).upper() == colour.upper():
            yield from (path.get_extents() for path in collection.get_paths())


def test_a_replica_has_a_bar_for_what_it_did():
    upper, lower = plots.timeline(run_tables()).axes
    assert [(b.x0, b.x1) for b in bars(upper, "decode")] == [
        pytest.approx((10, 50), abs=0.1),
        pytest.approx((10, 60), abs=0.1),
    ]
    assert [(b.x0, b.x1) for b in bars(lower, "update_actor")] == [pytest.approx((60, 90), abs=0.1)]


def test_published_versions_are_marked():
    upper, _ = plots.timeline(run_tables(), seconds=(0, 200)).axes
    assert [line.get_xdata()[0] for line in upper.lines] == [100]
    assert "v1" in texts(upper.figure)


def test_many_replicas_become_bands_that_count_them():
    upper, _ = plots.timeline(wide_tables(65)).axes
    assert upper.get_ylabel() == "replicas"
    tops = [collection.get_datalim(upper.transData).y1 for collection in upper.collections]
    assert max(tops) == pytest.approx(65)


def test_a_band_shows_the_largest_cause_of_each_bin():
    rows = [(0, "decode", i * 1.0, i + 0.9) for i in range(10_000)]
    rows += [(0, "prefill", i + 0.9, i + 1.0) for i in range(10_000)]
    upper, _ = plots.timeline(run_tables() | {"activity": activity(rows)}).axes
    assert [(bar.x0, bar.x1) for bar in bars(upper, "decode")] == [pytest.approx((0, 10_000))]
    assert list(bars(upper, "prefill")) == []


# -- histograms -------------------------------------------------------------------------------------------


def test_lengths_state_mean_median_cap_and_truncated_share():
    made = [{"group": g, "response_tokens": tokens} for g, tokens in enumerate((10, 100, 200))]
    cut = {"group": 3, "response_tokens": 1000, "finish_reason": "length"}
    running = {"group": 4, "response_tokens": 7, "finish_reason": ""}
    found = texts(plots.length_histogram({"samples": samples([*made, cut, running])}))
    assert "median 150 tokens" in found
    assert any(text.startswith("mean 328 ± ") for text in found)
    assert "cap 1,000 tokens" in found
    assert "truncated at the cap: 25.0 %" in found


def test_all_ended_samples_are_in_a_bin_of_the_lengths():
    rng = np.random.default_rng(3)
    made = [{"response_tokens": int(tokens)} for tokens in np.minimum(rng.lognormal(6, 1, 500) + 1, 2000)]
    [axes] = plots.length_histogram({"samples": samples(made)}).axes
    assert sum(axes.patches[-1].get_data().values) == pytest.approx(100)


def test_lags_are_shares_of_trained_samples():
    made = [{"start_lag": 2.0, "token_weighted_lag": 1.4, "span": 1.0}] * 3 + [{}]
    dropped = {"outcome": "dropped_stale", "start_lag": np.nan, "trained_step": -1}
    axes = plots.staleness_histogram({"samples": samples([*made, dropped])}).axes
    heights = [
        {round(bar.get_x() + bar.get_width() / 2, 2): bar.get_height() for bar in a.patches if bar.get_height()}
        for a in axes
    ]
    assert heights == [{0: 25, 2: 75}, {0: 100}, {0: 25, 1: 75}, {0: 25, 1.5: 75}]
    assert "mean 1.50\nmax 2" in texts(axes[0])


def test_warm_up_steps_can_be_left_out():
    made = [{"trained_step": 0}, {"trained_step": 1, "start_lag": 1.0}]
    first = plots.staleness_histogram({"samples": samples(made)}, first_step=1).axes[0]
    assert "mean 1.00\nmax 1" in texts(first)


@pytest.mark.parametrize(
    "draw", [plots.timeline, plots.running_requests, plots.length_histogram, plots.staleness_histogram]
)
def test_an_empty_run_still_draws(draw):
    with warnings.catch_warnings(action="error"):
        draw({name: table.iloc[:0] for name, table in run_tables().items()}).draw_without_rendering()


# -- arms -------------------------------------------------------------------------------------------------


def rows_of(axes):
    rows = {}
    for bar in axes.patches:
        rows.setdefault(round(bar.get_y(), 3), []).append(bar.get_width())
    return rows


def test_shares_of_a_pool_fill_its_bar():
    [axes] = plots.utilisation_bars({"own": [metrics(OWN)], "shared": [metrics(SHARED)] * 2}).axes
    assert [sum(widths) for widths in rows_of(axes).values()] == pytest.approx([100] * 4)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rollout", "trainer", "all", "shared"]


def test_shares_are_means_over_replications_and_the_spread_is_stated():
    other = {key: {"decode": 0.4, "update_actor": 0.35, "idle:tail": 0.25} for key in ("rollout", "trainer", "all")}
    made = plots.utilisation_bars({"arm": [metrics(SHARED), metrics(other)]})
    assert next(iter(rows_of(made.axes[0]).values())) == pytest.approx([50, 35, 15])
    assert "85.0 ± 14.1" in texts(made)
    assert any("n = 2 replications" in text for text in texts(made))


def test_step_times_state_interval_and_error():
    found = texts(
        plots.step_time_bars({"a": Estimate(100.0, 98.0, 102.0, 4), "b": Estimate(60.0, None, None, 1)}, {"a": [80.0]})
    )
    assert "100.0 ± 2.0 s" in found
    assert "60.0 s" in found
    assert "+25.0 % of 80 s" in found
    assert any("n = 1 to 4 replications" in text and "a single run has no interval" in text for text in found)


def test_a_single_run_has_no_interval_drawn():
    [axes] = plots.step_time_bars({"b": Estimate(60.0, None, None, 1)}, {}).axes
    assert [
        container for container in axes.containers if isinstance(container, matplotlib.container.ErrorbarContainer)
    ] == []


# -- style and files --------------------------------------------------------------------------------------


# Machado, Oliveira, Fernandes 2009, severity 1; linear RGB.
EYES = {
    "normal": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
}


def lab(linear):
    """CIE L*a*b* of linear sRGB, D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = to_xyz @ linear / to_xyz.sum(axis=1)
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", EYES)
def test_causes_differ_in_colour_for(eyes):
    seen = {}
    for what, cause in style.CAUSES.items():
        srgb = np.array(to_rgb(cause.colour))
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        seen[what] = lab(np.clip(EYES[eyes] @ linear, 0, 1))
    close = [(a, b) for a, b in itertools.combinations(seen, 2) if np.linalg.norm(seen[a] - seen[b]) < 10]
    assert close == []


def test_a_cause_of_a_users_own_part_is_drawn_under_its_name():
    assert style.cause("idle:my_gate").label == "idle: my gate"
    assert style.ordered(["idle:my_gate", "idle:tail", "decode"]) == ["decode", "idle:tail", "idle:my_gate"]


def test_the_same_figure_gives_the_same_bytes_whatever_the_users_settings(tmp_path):
    plots.save_figure(plots.timeline(run_tables()), tmp_path / "a.png")
    with matplotlib.rc_context({"font.size": 30, "savefig.dpi": 7, "axes.facecolor": "red", "savefig.bbox": "tight"}):
        plots.save_figure(plots.timeline(run_tables()), tmp_path / "b.png")
    png = (tmp_path / "a.png").read_bytes()
    assert png == (tmp_path / "b.png").read_bytes()
    assert b"Software" not in png
    assert int.from_bytes(png[16:20], "big") == 1200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]


def test_only_png_is_written(tmp_path):
    with pytest.raises(ParameterError, match="png"):
        plots.save_figure(plots.timeline(run_tables()), tmp_path / "a.jpg")


def test_matplotlib_is_imported_late_and_without_pyplot():
    code = (
        "import sys; from rlsim.results.plots import run as plots; assert 'matplotlib' not in sys.modules;"
        "from rlsim.results.statistics import Estimate; plots.step_time_bars({'a': Estimate(1, 0, 2, 2)}, {});"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- scaling ----------------------------------------------------------------------------------------------


def test_throughput_is_of_all_gpus_beside_that_of_one():
    whole, one = plots.throughput_over_gpus(THROUGHPUT).axes
    (line,) = (line for line in whole.lines if list(line.get_xdata()) == [8, 64] and line.get_marker() == "o")
    assert list(line.get_ydata()) == [16_000, 57_600]
    (line,) = (line for line in one.lines if list(line.get_xdata()) == [8, 64] and line.get_marker() == "o")
    assert list(line.get_ydata()) == [2000, 900]


def test_linear_scaling_goes_through_the_smallest_size():
    whole, _ = plots.throughput_over_gpus(THROUGHPUT).axes
    dashed = [list(line.get_ydata()) for line in whole.lines if line.get_linestyle() == "--"]
    assert [16_000, 128_000] in dashed


def test_speed_up_is_drawn_at_the_mean_lag_with_its_bound():
    (axes,) = plots.speedup_over_staleness(STALE, "synchronous").axes
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in marks] == [([0.9, 2.5], [1.5, 1.7])]
    assert {"at most 1", "at most 4", "one"} <= set(texts(axes.figure))
    reaches = [list(line.get_xdata()) for line in axes.lines if line.get_linewidth() == 0.6]
    assert [2.5, 4.0] in reaches


@pytest.mark.parametrize("draw", [plots.throughput_over_gpus, lambda none: plots.speedup_over_staleness(none, "x")])
def test_nothing_to_draw_is_refused(draw):
    with pytest.raises(ParameterError, match="at least one"):
        draw({})
