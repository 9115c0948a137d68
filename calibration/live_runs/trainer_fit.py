"""The trainer of live runs as keys of the scenario's trainer section.

The cost model is linear in what is unknown: inverse utilisations, seconds an update, seconds a micro-batch, seconds a
step. It is asked for the columns itself, so how a batch is cut and who is the slowest rank is its own affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from calibration.fitting.robust_regression import fit_contention, overlap_shares, solve
from rlsim.core.commands import Train
from rlsim.core.log import RunLog
from rlsim.core.ticks import to_seconds
from rlsim.executor.run import FinishedRun
from rlsim.executor.system import Phases
from rlsim.results.history import read_history
from rlsim.results.replay.recording import Interval, phases_of, recording_of

FORWARD = ("old_log_prob", "reference", "values")
Timed = dict[str, float]
LEAST_TRAININGS = 2.0
"""Beside running engines, and alone, for a factor to be told."""


def fit_trainer_phases(runs: Sequence[FinishedRun]) -> tuple[dict[str, Any], float, str]:
    """Keys of the trainer section, the factor while engines run, and a line that says both; without trainings, none."""
    rows = [row for run in runs for row in _trainings(run)]
    if not rows:
        return {}, 1.0, "calibrated: no training in the runs, the trainer is as in the scenario"
    factor = _factor(rows)
    for row in rows:
        slowed = 1 + (factor - 1) * row["beside"]
        row.update({name: row[name] / slowed for name in ("update", "forward", "overhead")})
    updates = [(row["pass"], row["updates"], row["update"] - row["traffic"]) for row in rows if row["update"] > 0]
    forwards = [(row["forward_pass"], row["micro_batches"], row["forward"]) for row in rows if row["forward_pass"] > 0]
    mfu, update_seconds = _line(updates)
    logprob_mfu, micro_batch_seconds = _line(forwards)
    overhead = sum(row["overhead"] for row in rows) / max(1.0, sum(row["last"] for row in rows))
    keys = {
        "profile": None,
        "mfu": mfu,
        "logprob_mfu": logprob_mfu,
        "attention_mfu": None,
        "seconds_per_update": update_seconds,
        "seconds_per_micro_batch": 0.0,
        "logprob_seconds_per_micro_batch": micro_batch_seconds,
        "fixed_seconds_per_step": overhead,
    }
    said = ", ".join(f"{key} {value:.3g}" for key, value in keys.items() if isinstance(value, float))
    beside = f"times {factor:.3f} while engines run"
    return keys, factor, f"calibrated: trainer {said}, {beside} (on {len(rows)} training commands)"


def _factor(rows: Sequence[Timed]) -> float:
    """Factor on the passes of all trainings while engines run."""
    design = np.array([(row["pass"] + row["traffic"], row["forward_pass"], row["micro_batches"]) for row in rows])
    seconds = np.array([row["update"] + row["forward"] for row in rows])
    shares = np.array([row["beside"] for row in rows])
    return fit_contention(design, np.maximum(seconds, 1e-12), np.ones(len(rows)), shares, LEAST_TRAININGS)[1]


def _trainings(run: FinishedRun) -> Iterator[Timed]:
    """What each training command took, and what the cost model makes of it with units for unknowns."""
    history, recording = read_history(run.log), recording_of(run.log, run.plan)
    lives, cost = history.lives, run.plan.training
    bare = cost.replace(
        mfu=1.0,
        logprob_mfu=1.0,
        attention_mfu=None,
        seconds_per_update=0.0,
        seconds_per_micro_batch=0.0,
        logprob_seconds_per_micro_batch=0.0,
        fixed_seconds_per_step=0.0,
    )
    variants = (bare, bare.replace(seconds_per_update=1.0), bare.replace(logprob_seconds_per_micro_batch=1.0))
    models = [Phases(variant) for variant in variants]
    commands = [command for decision in run.log.decisions for command in decision.commands if type(command) is Train]
    for command, phases, beside in zip(commands, recording.trainings, _engine_shares(run.log), strict=False):
        samples = [
            (lives[sample].prompt_tokens + lives[sample].tool_tokens, lives[sample].ended_tokens)
            for sample in command.samples
        ]
        plain, by_update, by_batch = (_sums(dict(model.of(command, samples))) for model in models)
        count = by_update["update"] - plain["update"]
        traffic = count * bare.optimizer_seconds()
        measured = _sums({name: to_seconds(ticks) for name, ticks in phases})
        unmodelled = measured["forward"] if not plain["forward"] else 0.0
        yield {
            "pass": plain["update"] - traffic,
            "updates": count,
            "traffic": traffic,
            "update": measured["update"],
            "forward_pass": plain["forward"],
            "micro_batches": by_batch["forward"] - plain["forward"],
            "forward": measured["forward"],
            "overhead": measured["overhead"] + unmodelled,
            "last": float(command.last),
            "beside": beside,
        }


def _engine_shares(log: RunLog) -> list[float]:
    """Share of each training in which an engine ran."""
    windows = [row for row in log.windows if row.steps]
    spans = [(phases[0].start, phases[-1].end) if phases else (0, 0) for phases in phases_of(log)]
    joined: list[Interval] = []
    for start, end in sorted([(row.start, row.end) for row in windows]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return overlap_shares(spans, joined)


def _sums(phases: Timed) -> Timed:
    update = sum(seconds for name, seconds in phases.items() if name.startswith("update_"))
    forward = sum(phases.get(name, 0.0) for name in FORWARD)
    return {"update": update, "forward": forward, "overhead": sum(phases.values()) - update - forward}


def _line(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """(utilisation, seconds a unit) of (seconds at full speed, units, seconds); at full speed where nothing shows."""
    if not points:
        return 1.0, 0.0
    table = np.array(points)
    seconds = np.maximum(table[:, 2], 1e-12)
    slope, unit = solve(table[:, :2], seconds)
    return float(min(1.0, 1.0 / max(slope, 1.0))), float(unit)
