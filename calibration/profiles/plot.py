"""A figure of a profile: measured against fitted step times at points that were not fitted, and the residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibration.fitting.step_model import predicted_seconds, samples_of
from rlsim.core.errors import ParameterError
from rlsim.costs.profile import Profile
from rlsim.costs.sections import StepFit
from rlsim.results.plots.style import BLUE, GREY, ORANGE, PALE, VERMILLION, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = {"decode": BLUE, "prefill": ORANGE, "mixed": VERMILLION}
TITLES = {"decode": "Decode steps", "prefill": "Prefill chunks", "mixed": "Mixed steps"}
SIZES = {
    "decode": "sequences in the step",
    "prefill": "new tokens of the chunk",
    "mixed": "tokens in the step (decodes and prefill)",
}
BAND = 0.1


@styled
def fit_figure(profile: Profile) -> Figure:
    """Above, measured against fitted step times (ms); below, the residuals (%) over the size of the step.

    Raises ``ParameterError`` for a profile without held-out points of an engine step.
    """
    step = profile.step
    if step is None or not step.held_out_points:
        raise ParameterError("profile", profile.name, "a profile with held-out points of an engine step")
    samples = samples_of(step.held_out_points)
    kinds = [kind for kind in KINDS if any(sample.kind == kind for sample in samples)]
    figure = new_figure(8.0, f"Fit of {profile.name}", _note(step, len(samples)))
    rows = figure.subplots(2, len(kinds), squeeze=False, height_ratios=[1.4, 1])
    for kind, upper, lower in zip(kinds, *rows, strict=True):
        of_kind = [sample for sample in samples if sample.kind == kind]
        measured = 1e3 * np.array([sample.seconds for sample in of_kind])
        fitted = 1e3 * np.array([predicted_seconds(step.law, sample) for sample in of_kind])
        _agreement(upper, kind, step, measured, fitted)
        percent = 100 * (fitted / measured - 1)
        limit = 1.15 * max(100 * BAND, float(np.abs(percent).max()))
        lower.axhspan(-100 * BAND, 100 * BAND, color=PALE, lw=0)
        lower.axhline(0, color=GREY, lw=1)
        sizes = [sample.decodes + sample.prefill_tokens for sample in of_kind]
        lower.scatter(sizes, percent, s=16, color=KINDS[kind], alpha=0.8, lw=0)
        lower.set(xscale="log", ylim=(-limit, limit), xlabel=SIZES[kind])
        lower.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    rows[0][0].set_ylabel("fitted step time (ms)")
    rows[1][0].set_ylabel(f"fitted over {_measured(step)} (%)")
    return figure


def _note(step: StepFit, points: int) -> str:
    kind = step.evidence.provenance.kind
    return f"{points} held-out points, none of them fitted; {kind}; grey: within {BAND:.0%}; overhead knobs not applied"


def _agreement(axes: Axes, kind: str, step: StepFit, measured: np.ndarray, fitted: np.ndarray) -> None:
    ends = np.array([min(measured.min(), fitted.min()) / 1.2, max(measured.max(), fitted.max()) * 1.2])
    axes.fill_between(ends, ends * (1 - BAND), ends * (1 + BAND), color=PALE, lw=0)
    axes.plot(ends, ends, color=GREY, lw=1)
    axes.scatter(measured, fitted, s=16, color=KINDS[kind], alpha=0.8, lw=0)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel=f"{_measured(step)} step time (ms)")
    error = step.evidence.hold_out_by_kind.get(kind)
    shown = "" if error is None else f"median {error.median:.1%}, p95 {error.p95:.1%}"
    axes.set_title(f"{TITLES[kind]}: {shown}", fontsize=11)
    # Numbers instead of powers of ten, a few on each axis.
    from matplotlib.ticker import LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())


def _measured(step: StepFit) -> str:
    """What the fit is held against: tables are interpolations, not timed steps."""
    return "tabulated" if step.evidence.provenance.kind == "silicon-table" else "measured"
