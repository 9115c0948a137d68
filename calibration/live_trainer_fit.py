"""The trainer of live runs as keys of the scenario's trainer section.

The cost model is linear in what is unknown: inverse utilisations, seconds an update, seconds a micro-batch, seconds a
step. It is asked for the columns itself, so how a batch is cut and who is the slowest rank is its own affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calibration.robust_line import robust
from rlsim.core.commands import Train
from rlsim.core.ticks import to_seconds
from rlsim.costs.training import TrainingCost
from rlsim.results.history import read_history
from rlsim.results.recording import recording_of
from rlsim.world.making import Run
from rlsim.world.phases import Phases

FORWARD = ("old_log_prob", "reference", "values")
Timed = dict[str, float]


def fit_trainer_phases(runs: Sequence[Run]) -> tuple[dict[str, Any], str]:
    """Keys of the trainer section, and a line that says them; without trainings, nothing."""
    rows = [row for run in runs for row in _trainings(run)]
    if not rows:
        return {}, "calibrated: no training in the runs, the trainer is as in the scenario"
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
    return keys, f"calibrated: trainer {said} (on {len(rows)} training commands)"


def _trainings(run: Run) -> Iterator[Timed]:
    """What each training command took, and what the cost model makes of it with units for unknowns."""
    history, recording = read_history(run.log), recording_of(run.log, run.plan)
    lives, cost = history.lives, run.plan.training
    bare = replace(
        cost,
        mfu=1.0,
        logprob_mfu=1.0,
        attention_mfu=None,
        seconds_per_update=0.0,
        seconds_per_micro_batch=0.0,
        logprob_seconds_per_micro_batch=0.0,
        fixed_seconds_per_step=0.0,
    )
    models = [Phases(variant) for variant in _variants(bare)]
    commands = [command for decision in run.log.decisions for command in decision.commands if type(command) is Train]
    for command, phases in zip(commands, recording.trainings, strict=False):
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
        }


def _variants(bare: TrainingCost) -> tuple[TrainingCost, ...]:
    return bare, replace(bare, seconds_per_update=1.0), replace(bare, logprob_seconds_per_micro_batch=1.0)


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
    slope, unit = robust(table[:, :2], seconds, np.ones(len(table)))
    return float(min(1.0, 1.0 / max(slope, 1.0))), float(unit)
