"""Costs of a scenario from live runs of it: engine steps, trainer, publication and role switch, as the scenario's keys.

Fitted to what the prediction is held against elsewhere, so never to the same runs. Engine steps: non-negative robust
least squares on relative errors over the windows of all runs, then scaled so that all steps together last as long as
they did (a run feels the mean of the noise, not its median). A gap between two steps, if shorter than the step, counts
with the later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.fitting.robust_regression import fit_contention, overlap_shares
from calibration.live_runs.trainer_fit import fit_trainer_phases
from rlsim.core.commands import Sync
from rlsim.core.errors import ParameterError
from rlsim.core.log import RunLog, WindowRow
from rlsim.core.ticks import to_seconds, to_ticks
from rlsim.engine.steptime import attention_pairs
from rlsim.executor.run import FinishedRun
from rlsim.results.replay.recording import BETWEEN, TRAINER, recording_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNKNOWNS = ("base", "per_sequence", "per_kv_token", "per_prefill_token", "per_pair")
LEAST_POINTS = 20
FAST_LINK = 1e18
"""Bytes a second: all of a measured publication is in its fixed time."""


@dataclass(frozen=True, slots=True)
class LiveFit:
    """What was found."""

    overrides: dict[str, Any]
    """Keys of a scenario, nested as there."""
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LiveStepFit:
    """Coefficients of an engine step, seconds."""

    coefficients: dict[str, float]
    factor: float
    """Factor on steps while the trainer computes."""
    scale: float
    """Factor by which they were stretched to the sum of the steps."""
    median_error: float
    """Relative, over the fitted points."""
    points: int


def fit_live(runs: Sequence[FinishedRun]) -> LiveFit:
    """Costs of the machines behind some runs, which are alike in all but their policy.

    Raises ``ParameterError`` for replicas that differ, and for engines that do not tell their steps.
    """
    scenario = runs[0].plan.scenario
    if scenario.rollout.pools:
        raise ParameterError("rollout.pools", len(scenario.rollout.pools), "none, or --no-calibrate")
    windows = [row for run in runs for row in run.log.windows]
    steps = fit_steps(windows, [share for run in runs for share in training_shares(run.log)])
    trainer, training_factor, trained = fit_trainer_phases(runs)
    published, switched = _publications(runs), _switches(runs)
    coefficients = {f"{name}_seconds": value for name, value in steps.coefficients.items()}
    clean = {"source": "coefficients", "profile": None, "scale": 1.0, "offset_seconds": 0.0}
    overrides: dict[str, Any] = {"rollout": {"step_time": clean | coefficients}, "trainer": trainer}
    overrides["contention"] = {
        "step_factor_while_training": steps.factor,
        "training_factor_while_generating": training_factor,
    }
    if published is not None:
        overrides["sync"] = {"link_bytes_per_second": FAST_LINK, "base_seconds": published, "per_tensor_seconds": 0.0}
    if switched:
        overrides["switching"] = {"host_link_bytes_per_second": None, **switched}
    lines = [] if published is None else [f"calibrated: a publication takes {published:.3g} s"]
    lines += [f"calibrated: switching.{name} {seconds:.3g}" for name, seconds in switched.items()]
    values = ", ".join(f"{name} {value:.3g} s" for name, value in steps.coefficients.items())
    step_line = (
        f"calibrated on {len(runs)} live runs that are not scored: engine step {values} (median error "
        f"{steps.median_error:.1%} on the {steps.points} windows fitted; stretched by {steps.scale:.3f} to their sum), "
        f"times {steps.factor:.3f} while the trainer computes"
    )
    return LiveFit(overrides, (step_line, trained, *lines))


# -- engine steps ---------------------------------------------------------------------------------------


def fit_steps(windows: Sequence[WindowRow], beside: Sequence[float] = ()) -> LiveStepFit:
    """The affine law of :meth:`rlsim.costs.step_model.StepTimeModel.affine`; ``ParameterError`` with too few points.

    ``beside`` is of each window the share of its time in which the trainer computed; without it, none is.
    """
    kept = [
        (row, share)
        for row, share in zip(windows, beside or [0.0] * len(windows), strict=True)
        if row.steps and row.end > row.start
    ]
    rows = [row for row, _ in kept]
    if len(rows) < LEAST_POINTS:
        allowed = f"engines that tell their steps, at least {LEAST_POINTS} windows of them, or --no-calibrate"
        raise ParameterError("windows", len(rows), allowed)
    seconds = _seconds_per_step(rows)
    regressors = []
    for row in rows:
        # of the mean step of a window; pairs as if its chunks were equal and began with their context
        kv_tokens = row.kv_tokens + row.decodes * (row.steps - 1) / 2
        pairs = row.chunks * attention_pairs(row.prefill_tokens // row.chunks if row.chunks else 0, 0)
        regressors.append([1.0, row.decodes + row.chunks, kv_tokens, row.prefill_tokens - row.chunks, pairs])
    design, steps = np.array(regressors), np.array([row.steps for row in rows], float)
    shares = np.array([share for _, share in kept])
    solution, factor = fit_contention(design, seconds, steps, shares)
    predicted = design @ solution * (1 + (factor - 1) * shares)
    scale = float((seconds * steps).sum() / (predicted * steps).sum())
    solution[0] = max(solution[0], 1e-9)
    return LiveStepFit(
        {name: float(f"{value * scale:.6g}") for name, value in zip(UNKNOWNS, solution, strict=True)},
        factor,
        scale,
        float(np.median(np.abs(predicted / seconds - 1))),
        len(rows),
    )


def training_shares(log: RunLog) -> list[float]:
    """Share of each window in which the trainer computed."""
    phases = [(row.start, row.end) for row in log.spans if row.who == TRAINER and row.what not in BETWEEN]
    return overlap_shares([(row.start, row.end) for row in log.windows], phases)


def _seconds_per_step(rows: Sequence[WindowRow]) -> NDArray[np.float64]:
    """Seconds a step of each window, with the gap before it where that is shorter than a step of it."""
    order = sorted(range(len(rows)), key=lambda place: (rows[place].replica, rows[place].start))
    ticks = [row.end - row.start for row in rows]
    for before, after in pairwise(order):
        row = rows[after]
        gap = row.start - rows[before].end
        if rows[before].replica == row.replica and 0 < gap < ticks[after] // row.steps:
            ticks[after] += gap
    return np.array([to_seconds(length) / row.steps for length, row in zip(ticks, rows, strict=True)])


# -- publication and switch -----------------------------------------------------------------------------


def _publications(runs: Sequence[FinishedRun]) -> float | None:
    """Seconds from the command to the reply, less what was left of the engine steps under way and what clients wait."""
    per_replica, ticks = runs[0].plan.sync.scope == "per_replica", list[int]()
    for run in runs:
        recording = recording_of(run.log, run.plan)
        if per_replica:
            ticks += [load for loads in recording.loads for load in loads]
            continue
        ends = sorted(row.end for row in run.log.spans if row.who == TRAINER and row.what in ("sync", "rejected"))
        commands = [command for decision in run.log.decisions for command in decision.commands if type(command) is Sync]
        for command, end, took in zip(commands, ends, recording.publications, strict=False):
            instant = end - took
            rows = [row for row in run.log.windows if row.steps and row.start < instant < row.end]
            # the steps under way go on, never longer than one of their window's
            left = max((min(row.end - instant, (row.end - row.start) // row.steps) for row in rows), default=0)
            ticks.append(took - left - to_ticks(command.resume_seconds))
    return max(0.0, to_seconds(int(np.median(ticks)))) if ticks else None


def _switches(runs: Sequence[FinishedRun]) -> dict[str, float]:
    """Seconds by direction; switches go to training first."""
    sleeps, wakes = list[float](), list[float]()
    for run in runs:
        switches = [to_seconds(ticks) for ticks in recording_of(run.log, run.plan).switches]
        first, second = (wakes, sleeps) if run.plan.lent else (sleeps, wakes)
        first += switches[0::2]
        second += switches[1::2]
    named = {"sleep_seconds": sleeps, "wake_seconds": wakes}
    return {name: float(np.median(values)) for name, values in named.items() if values}
