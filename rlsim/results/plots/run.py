"""Figures of a run and of a comparison: they take tables or metrics and return a matplotlib ``Figure``.

Nothing is shown and no global state is kept; ``save_figure`` writes a PNG. A notebook displays a returned figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlsim.results.curves import (
    Curve,
    Tables,
    end_seconds,
    groups_waiting,
    publications,
    samples_decoding,
    samples_in_flight,
)
from rlsim.results.plots.allotted import allotted_map
from rlsim.results.plots.arms import step_time_bars, utilisation_bars
from rlsim.results.plots.scaling import speedup_over_staleness, throughput_over_gpus
from rlsim.results.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    legend_below,
    mark_versions,
    new_figure,
    save_figure,
    styled,
)
from rlsim.results.plots.timeline import timeline
from rlsim.results.statistics import interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = [
    "allotted_map",
    "length_histogram",
    "running_requests",
    "save_figure",
    "speedup_over_staleness",
    "staleness_histogram",
    "step_time_bars",
    "throughput_over_gpus",
    "timeline",
    "utilisation_bars",
]

LAGS = {
    "start_lag": ("start lag", "v(trained) − v(first token)"),
    "end_lag": ("end lag", "v(trained) − v(last token)"),
    "span": ("span", "v(last token) − v(first token)"),
    "token_weighted_lag": ("token-weighted lag", "v(trained) − mean v over its tokens"),
}


@styled
def running_requests(tables: Tables, title: str = "Samples in flight") -> Figure:
    """Samples in flight and samples that decode, over time; below, complete groups that wait for the trainer."""
    from matplotlib.ticker import MaxNLocator

    note = "One run, not averaged; in flight = begun and not ended (queued, generating, parked or in a tool)"
    figure = new_figure(5.6, title, f"{note}; dashed: weights version published")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2.4, 1])
    end = max(end_seconds(tables), 1e-9)
    _fill(upper, samples_in_flight(tables), end, SKY, "in flight")
    _line(upper, samples_decoding(tables), end, BLUE, "decoding")
    _fill(lower, groups_waiting(tables), end, GREEN, "complete groups waiting")
    upper.set_ylabel("samples")
    lower.set_ylabel("groups waiting")
    lower.set_xlabel("time since the start of the run (s)")
    for axes in (upper, lower):
        mark_versions(axes, publications(tables).tolist(), label=axes is upper)
        axes.set_xlim(0, end)
        axes.set_ylim(bottom=0)
        axes.yaxis.grid(True)
        axes.yaxis.set_major_locator(MaxNLocator(5 if axes is upper else 3, integer=True))
    upper.legend(loc="lower right", bbox_to_anchor=(1, 1.06), ncols=2, borderaxespad=0)
    return figure


def _fill(axes: Axes, curve: Curve, end: float, colour: str, label: str) -> None:
    seconds, values = _until(curve, end)
    axes.fill_between(seconds, values, step="post", color=colour, alpha=0.55, lw=0, label=label)
    axes.step(seconds, values, where="post", color=colour, lw=1)


def _line(axes: Axes, curve: Curve, end: float, colour: str, label: str) -> None:
    axes.step(*_until(curve, end), where="post", color=colour, lw=1, label=label)


def _until(curve: Curve, end: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    last = curve.values[-1] if len(curve.values) else 0
    return np.concatenate([[0.0], curve.seconds, [end]]), np.concatenate([[0], curve.values, [last]])


# -- lengths ----------------------------------------------------------------------------------------------


@styled
def length_histogram(tables: Tables, title: str = "Response lengths", cap_tokens: int | None = None) -> Figure:
    """Response tokens of samples that ended, on a logarithmic axis, with mean, median, cap and truncated share.

    The interval of the mean takes groups, not samples, as independent: members of a group share a prompt.
    Without ``cap_tokens`` the cap is the longest truncated response.
    """
    samples = tables["samples"]
    ended = samples[samples["finish_reason"].isin(["stop", "length"]) & (samples["response_tokens"] > 0)]
    groups = ended["group"].nunique()
    note = f"One run; {len(ended):,} ended samples of {groups:,} groups, later dropped or not; ± is the 95 % interval"
    figure = new_figure(5.0, title, note)
    axes = figure.subplots()
    axes.set_xlabel("response length (tokens, logarithmic)")
    axes.set_ylabel("samples per bin (% of all)")
    if len(ended):
        _lengths(axes, ended, cap_tokens)
    legend_below(figure, axes.get_legend_handles_labels()[0])
    return figure


def _lengths(axes: Axes, ended: DataFrame, cap_tokens: int | None) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    tokens = ended["response_tokens"].to_numpy(float)
    truncated = ended["finish_reason"].to_numpy() == "length"
    cap = cap_tokens or (int(tokens[truncated].max()) if truncated.any() else None)
    low = max(1.0, min(tokens.min(), tokens.max() / 10))
    edges = np.geomspace(low, 1.0001 * max(tokens.max(), 10 * low), 50)
    alone, cut = (_percent(tokens[part], edges, len(tokens)) for part in (~truncated, truncated))
    label = f"truncated at the cap: {100 * truncated.mean():.1f} %"
    axes.stairs(alone, edges, fill=True, color=SKY, label="ended by themselves")
    axes.stairs(alone + cut, edges, baseline=alone, fill=True, color=VERMILLION, label=label)
    mean = interval(ended.groupby("group")["response_tokens"].mean().to_list())
    half_width = "" if mean.high is None else f" ± {mean.high - mean.mean:,.0f}"
    axes.axvline(tokens.mean(), color=BLACK, lw=1.8, label=f"mean {tokens.mean():,.0f}{half_width} tokens")
    axes.axvline(np.median(tokens), color=BLACK, lw=1.8, ls="--", label=f"median {np.median(tokens):,.0f} tokens")
    if cap is not None:
        axes.axvline(cap, color=VERMILLION, lw=1.8, ls=":", label=f"cap {cap:,} tokens")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _percent(values: NDArray[np.float64], edges: NDArray[np.float64], total: int) -> NDArray[np.float64]:
    return 100 * np.histogram(values, edges)[0] / max(total, 1)


# -- staleness --------------------------------------------------------------------------------------------


@styled
def staleness_histogram(tables: Tables, title: str = "Staleness of trained samples", first_step: int = 0) -> Figure:
    """Start lag, end lag, span and token-weighted lag of the samples trained from ``first_step`` on, side by side."""
    from matplotlib.ticker import MaxNLocator

    samples = tables["samples"]
    trained = samples[(samples["outcome"] == "trained") & (samples["trained_step"] >= first_step)]
    note = f"One run; {len(trained):,} samples trained from step {first_step} on; lags count published weights versions"
    figure = new_figure(4.6, title, note)
    axes = figure.subplots(1, len(LAGS), sharey=True)
    top = max([1.0, *(float(trained[name].max()) for name in LAGS if len(trained))])
    for each, (name, (label, meaning)), colour in zip(axes, LAGS.items(), (BLUE, ORANGE, GREEN, PURPLE), strict=True):
        lags = trained[name].to_numpy(float)
        if len(lags):
            width = 0.25 if name == "token_weighted_lag" else 1.0
            edges = np.arange(-width / 2, top + width, width)
            each.bar(edges[:-1] + width / 2, _percent(lags, edges, len(lags)), 0.86 * width, color=colour)
            text = f"mean {lags.mean():.2f}\nmax {lags.max():.3g}"
            each.text(0.97, 0.97, text, transform=each.transAxes, ha="right", va="top")
        each.set_xlim(-0.6, top + 0.6)
        each.set_ylim(0, 128)
        each.set_yticks(range(0, 101, 20))
        each.xaxis.set_major_locator(MaxNLocator(integer=True))
        each.yaxis.grid(True)
        each.set_title(label)
        each.set_xlabel(f"weights versions\n{meaning}", fontsize=10)
    axes[0].set_ylabel("samples (% of trained)")
    return figure
