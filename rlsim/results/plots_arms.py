"""Arms of a comparison side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rlsim.results.style import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
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

Shares = Mapping[str, float]
"""Share of GPU time by cause; the shares of a pool add up to 1."""


class HasUtilisation(Protocol):
    """Metrics of one run, as far as the bars need them."""

    @property
    def utilisation(self) -> Mapping[str, Shares]:
        """Shares by cause for each pool: rollout, trainer, all."""
        ...


class Interval(Protocol):
    """A mean with its confidence interval; no bounds for a single run."""

    @property
    def mean(self) -> float:
        """Mean over replications."""
        ...

    @property
    def low(self) -> float | None:
        """Lower bound."""
        ...

    @property
    def high(self) -> float | None:
        """Upper bound."""
        ...

    @property
    def n(self) -> int:
        """Replications."""
        ...


@styled
def utilisation_bars(
    metrics_by_arm: Mapping[str, Sequence[HasUtilisation]], title: str = "What the GPUs spend their time on"
) -> Figure:
    """A stacked bar of GPU-time shares by cause for the rollout GPUs, the trainer GPUs and all, for each arm.

    Means over the replications of an arm; the figure beside a bar is its share of time not idle, with the
    standard deviation over replications.
    """
    counts = sorted({len(metrics) for metrics in metrics_by_arm.values()})
    n = "–".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    note = f"Mean over n = {n} replications, measured steps only; right: share of time not idle ± standard deviation"
    figure = new_figure(2.2 + 1.15 * len(metrics_by_arm), title, note)
    axes, shown, ticks = figure.subplots(), set[str](), dict[float, str]()
    for place, (arm, metrics) in enumerate(metrics_by_arm.items()):
        axes.annotate(
            _wrapped(arm), (0, place * 4 + 1), xycoords=("axes fraction", "data"), xytext=(-72, 0),
            textcoords="offset points", ha="right", va="center", fontweight="bold",
        )  # fmt: skip
        for row, pool in enumerate(metrics[0].utilisation):
            ticks[place * 4 + row] = pool
            shown |= _stacked(axes, place * 4 + row, [run.utilisation[pool] for run in metrics])
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set_ylim(len(metrics_by_arm) * 4 - 1.3, -0.7)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of GPU time (%)")
    legend_below(figure, cause_patches(shown, hatched=True), columns=5)
    return figure


def _wrapped(name: str, width: int = 22) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(name, width))


def _stacked(axes: Axes, place: float, runs: Sequence[Shares]) -> set[str]:
    whats = ordered(what for run in runs for what in run)
    left, shown = 0.0, set[str]()
    for what in whats:
        share = 100 * float(np.mean([run.get(what, 0.0) for run in runs]))
        drawn = cause(what)
        if share > 0:
            axes.barh(place, share, left=left, height=0.82, fc=drawn.colour, ec=GREY, lw=0.5, hatch=drawn.hatch)
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
    estimates_by_arm: Mapping[str, Interval],
    published: Mapping[str, Sequence[float]],
    title: str = "Step time",
    confidence: float = 0.95,
) -> Figure:
    """Mean step time of each arm with its t interval; published seconds as diamonds with the error in per cent.

    ``published`` has the measured step times of an arm, in seconds, where there are any; the error is that of the
    prediction: (predicted - published) / published. ``confidence`` is the level the intervals were made with.
    """
    figure = new_figure(2.2 + 0.75 * len(estimates_by_arm), title, _note(estimates_by_arm, confidence))
    axes = figure.subplots()
    for place, (arm, found) in enumerate(estimates_by_arm.items()):
        _estimate(axes, place, found, published.get(arm, ()))
    axes.set_yticks(range(len(estimates_by_arm)), [_wrapped(arm, 28) for arm in estimates_by_arm])
    axes.set_ylim(len(estimates_by_arm) - 0.4, -0.6)
    axes.set_xlim(0, _longest(estimates_by_arm, published) * 1.3)
    axes.set_xlabel("step time (s)")
    axes.xaxis.grid(True)
    _step_time_legend(figure, confidence, any(published.get(arm) for arm in estimates_by_arm))
    return figure


def _note(estimates: Mapping[str, Interval], confidence: float) -> str:
    alone = any(found.low is None for found in estimates.values())
    counts = ", ".join(dict.fromkeys(str(found.n) for found in estimates.values()))
    single = "; a single run has no interval" if alone else ""
    return f"Mean over n = {counts} replications, {100 * confidence:g} % t interval (n − 1 degrees of freedom){single}"


def _longest(estimates: Mapping[str, Interval], published: Mapping[str, Sequence[float]]) -> float:
    predicted = [found.mean if found.high is None else found.high for found in estimates.values()]
    return max([*predicted, *(seconds for arm in estimates for seconds in published.get(arm, ()))])


def _estimate(axes: Axes, place: int, found: Interval, published: Sequence[float]) -> None:
    axes.barh(place, found.mean, height=0.6, fc=BLUE, zorder=2)
    reach = found.mean
    text = f"{found.mean:.1f} s"
    if found.low is not None and found.high is not None:
        error = [[found.mean - found.low], [found.high - found.mean]]
        axes.errorbar(found.mean, place, xerr=error, fmt="none", ecolor=BLACK, elinewidth=1.6, capsize=5, zorder=3)
        reach, text = found.high, f"{text} ± {(found.high - found.low) / 2:.1f}"
    for seconds in published:
        axes.plot(seconds, place, marker="D", ms=9, mfc=ORANGE, mec=BLACK, ls="none", zorder=4)
        text += f"   ({(found.mean / seconds - 1) * 100:+.1f} % of {seconds:g} s)"
    axes.annotate(
        text, (max([reach, *published]), place), xytext=(10, 0), textcoords="offset points", va="center", fontsize=11
    )


def _step_time_legend(figure: Figure, confidence: float, any_published: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = [Patch(fc=BLUE, label=f"predicted, {100 * confidence:g} % interval")]
    if any_published:
        label = "published; in brackets the error of the prediction"
        handles.append(Line2D([], [], marker="D", ms=9, mfc=ORANGE, mec=BLACK, ls="none", label=label))
    legend_below(figure, handles)
