"""Arms of a comparison side by side.

Step times of policies, live and simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rlsim.results.plots.style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    PALE,
    VERMILLION,
    cause,
    cause_patches,
    legend_below,
    new_figure,
    ordered,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rlsim.results.metrics import Metrics
    from rlsim.results.statistics import Estimate
    from rlsim.results.utilisation import Shares


POOLS = ("rollout", "trainer", "all")
_ROW, _GAP = 1.0, 0.9
"""Heights of a bar and of the space between arms."""


@styled
def utilisation_bars(
    metrics_by_arm: Mapping[str, Sequence[Metrics]], title: str = "What the GPUs spend their time on"
) -> Figure:
    """A stacked bar of GPU-time shares by cause for the rollout GPUs, the trainer GPUs and all, for each arm.

    Means over the replications of an arm; the figure beside a bar is its share of time not idle, with the
    standard deviation over replications. Arms whose trainer shares the GPUs have one bar.
    """
    n = _range(len(metrics) for metrics in metrics_by_arm.values())
    note = f"Mean over n = {n} replications, measured steps only; right: % of time not idle ± standard deviation"
    pools = {arm: _pools(metrics) for arm, metrics in metrics_by_arm.items()}
    height = sum(len(by_pool) * _ROW + _GAP for by_pool in pools.values())
    figure = new_figure(2.2 + 0.29 * height, title, note)
    axes, shown, ticks, top = figure.subplots(), set[str](), dict[float, str](), 0.0
    for arm, by_pool in pools.items():
        axes.annotate(
            _wrapped(arm), (0, top + (len(by_pool) - 1) * _ROW / 2), xycoords=("axes fraction", "data"),
            xytext=(-72, 0), textcoords="offset points", ha="right", va="center", fontweight="bold",
        )  # fmt: skip
        for row, (pool, runs) in enumerate(by_pool.items()):
            ticks[top + row * _ROW] = pool
            shown |= _stacked(axes, top + row * _ROW, runs)
        top += len(by_pool) * _ROW + _GAP
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set_ylim(top - _GAP - 0.3, -0.7)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of GPU time (%)")
    legend_below(figure, cause_patches(shown, hatched=True))
    return figure


def _pools(metrics: Sequence[Metrics]) -> dict[str, list[Shares]]:
    shares = {pool: [getattr(run.utilisation, pool) for run in metrics] for pool in POOLS}
    return {"shared": shares["all"]} if shares["rollout"] == shares["trainer"] else shares


def _range(counts: Iterable[int]) -> str:
    ascending = sorted(counts)
    return " to ".join(dict.fromkeys(str(count) for count in (ascending[:1] + ascending[-1:])))


def _wrapped(name: str, width: int = 22) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(name, width))


def _stacked(axes: Axes, place: float, runs: Sequence[Shares]) -> set[str]:
    whats = ordered(what for run in runs for what in run)
    left, shown = 0.0, set[str]()
    for what in whats:
        share = 100 * float(np.mean([run.get(what, 0.0) for run in runs]))
        drawn = cause(what)
        axes.barh(place, share, left=left, height=0.82, fc=drawn.colour, ec=GREY, lw=0.5, hatch=drawn.hatch)
        if share >= 0.05:
            shown.add(what)
        if share >= 4:
            _number(axes, left + share / 2, place, share, what)
        left += share
    busy = [100 * sum(share for what, share in run.items() if not what.startswith("idle")) for run in runs]
    spread = f" ± {np.std(busy, ddof=1):.1f}" if len(busy) > 1 else ""
    axes.annotate(
        f"{np.mean(busy):.1f}{spread}", (1, place), xycoords=("axes fraction", "data"), xytext=(6, 0),
        textcoords="offset points", va="center",
    )  # fmt: skip
    return shown


def _number(axes: Axes, x: float, place: float, share: float, what: str) -> None:
    dark = what in ("decode", "update_actor", "sync", "overhead")
    text = axes.text(x, place, f"{share:.0f}", ha="center", va="center", color="white" if dark else BLACK)
    if cause(what).hatch:
        text.set_bbox({"boxstyle": "round,pad=0.15", "fc": "white", "lw": 0, "alpha": 0.85})


@styled
def step_time_bars(
    estimates_by_arm: Mapping[str, Estimate],
    published: Mapping[str, Sequence[float]],
    title: str = "Step time",
    confidence: float = 0.95,
    measured: str = "published",
) -> Figure:
    """Mean step time of each arm with its t interval; published seconds as diamonds with the error in per cent.

    ``published`` has the measured step times of an arm, in seconds, where there are any; the error is that of the
    prediction: (predicted - published) / published. ``confidence`` is the level the intervals were made with,
    ``measured`` what the diamonds are called.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = new_figure(2.2 + 0.75 * len(estimates_by_arm), title, _note(estimates_by_arm, confidence))
    axes, longest = figure.subplots(), _longest(estimates_by_arm, published)
    for place, (arm, estimate) in enumerate(estimates_by_arm.items()):
        _estimate(axes, place, estimate, published.get(arm, ()), longest)
    axes.set_yticks(range(len(estimates_by_arm)), [_wrapped(arm, 28) for arm in estimates_by_arm])
    axes.set_ylim(len(estimates_by_arm) - 0.4, -0.6)
    axes.set_xlim(0, 1.22 * longest)
    axes.set_xlabel("step time (s)")
    axes.xaxis.grid(True)
    handles: list[Patch | Line2D] = [Patch(fc=BLUE, label=f"predicted, {100 * confidence:g} % interval")]
    if measured and any(published.get(arm) for arm in estimates_by_arm):
        label = f"{measured}; beside it the error of the prediction"
        handles.append(Line2D([], [], marker="D", ms=9, mfc=ORANGE, mec=BLACK, ls="none", label=label))
    legend_below(figure, handles)
    return figure


def _note(estimates: Mapping[str, Estimate], confidence: float) -> str:
    alone = any(estimate.low is None for estimate in estimates.values())
    counts = _range(estimate.n for estimate in estimates.values())
    single = "; a single run has no interval" if alone else ""
    return f"Mean over n = {counts} replications, {100 * confidence:g} % t interval (n − 1 degrees of freedom){single}"


def _longest(estimates: Mapping[str, Estimate], published: Mapping[str, Sequence[float]]) -> float:
    predicted = [estimate.mean if estimate.high is None else estimate.high for estimate in estimates.values()]
    return max([*predicted, *(seconds for arm in estimates for seconds in published.get(arm, ()))])


def _estimate(axes: Axes, place: int, estimate: Estimate, published: Sequence[float], longest: float) -> None:
    axes.barh(place, estimate.mean, height=0.6, fc=BLUE, zorder=2)
    reach, text = estimate.mean, f"{estimate.mean:.1f} s"
    if estimate.low is not None and estimate.high is not None:
        error = [[estimate.mean - estimate.low], [estimate.high - estimate.mean]]
        axes.errorbar(estimate.mean, place, xerr=error, fmt="none", ecolor=BLACK, elinewidth=1.6, capsize=5, zorder=3)
        reach, text = estimate.high, f"{estimate.mean:.1f} ± {(estimate.high - estimate.low) / 2:.1f} s"
    axes.plot(published, [place] * len(published), marker="D", ms=9, mfc=ORANGE, mec=BLACK, ls="none", zorder=4)
    errors = ", ".join(f"{(estimate.mean / seconds - 1) * 100:+.1f} % of {seconds:.4g} s" for seconds in published)
    errors = errors.replace("-", "−")
    inside = estimate.mean > 0.25 * longest
    if inside:
        _beside(axes, 0.0, place, text, "white")
    _beside(axes, max([reach, *published]), place, errors if inside else f"{text}   {errors}", BLACK)


def _beside(axes: Axes, x: float, place: int, text: str, colour: str) -> None:
    axes.annotate(text, (x, place), xytext=(10, 0), textcoords="offset points", va="center", color=colour, zorder=5)


class StepTimeRange(NamedTuple):
    """Step times of one policy, seconds: median, least and most of its live runs, and the prediction."""

    live: float
    low: float
    high: float
    simulated: float


@styled
def live_and_simulated(steps: Mapping[str, StepTimeRange], title: str, note: str) -> Figure:
    """One line a policy: the live runs from least to most, their median, and the prediction."""
    figure = new_figure(2.2 + 0.42 * len(steps), title, note)
    axes = figure.subplots()
    for place, step in enumerate(steps.values()):
        axes.plot([step.low, step.high], [place, place], color=GREY, lw=3, solid_capstyle="round", zorder=2)
    places = range(len(steps))
    live, simulated = [step.live for step in steps.values()], [step.simulated for step in steps.values()]
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
