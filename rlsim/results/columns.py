"""The tables of a run as numpy columns, so that metrics need no data frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlsim.core.log import RunLog
from rlsim.core.ticks import TICKS_PER_SECOND
from rlsim.resolve import ResolvedScenario
from rlsim.results.history import History

Columns = dict[str, NDArray[Any]]
"""Equally long arrays by name, in the order of the table."""
PHASES = ("old_log_prob", "reference", "values", "update_critic", "update_actor", "overhead")
"""Phases of a training step, in the order in which they run."""
_BETWEEN = ("sync", "switch")


def seconds(ticks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Seconds of ticks; NaN for ticks that never came (negative)."""
    return np.where(ticks < 0, np.nan, ticks / TICKS_PER_SECOND)


def integers(rows: Iterable[Sequence[int]], width: int) -> NDArray[np.int64]:
    """Rows of ``width`` integers as an array of shape (rows, width)."""
    return np.fromiter((value for row in rows for value in row), np.int64).reshape(-1, width)


def sample_columns(log: RunLog, history: History) -> Columns:
    """One row a sample that entered generation, in order of sample numbers.

    Where there is no answer (never finished, not trained on): NaN in seconds and lags, -1 in steps and versions,
    an empty string as reason. Response tokens of samples in flight include the call under way.
    """
    lives = list(history.lives.values())
    final = {row.sample: row for row in log.final}

    def column(name: str) -> NDArray[np.int64]:
        return np.fromiter(map(attrgetter(name), lives), np.int64, len(lives))

    columns: Columns = {name: column(name) for name in ("sample", "group", "draw", "member", "prompt_tokens")}
    columns["response_tokens"] = np.array([final[life.sample].tokens for life in lives], np.int64)
    columns |= {name: column(name) for name in ("inherited_tokens", "tool_tokens", "turns", "calls")}
    columns["submitted_seconds"] = seconds(column("submitted"))
    columns["first_token_seconds"] = seconds(column("first_token"))
    columns["finished_seconds"] = seconds(column("finished"))
    outcome = np.array([final[life.sample].outcome for life in lives], object)
    # Step, tick and version of the first training of each sample; -1 where there was none.
    first_training = np.full((3, len(lives)), -1, np.int64)
    for training in reversed(history.trainings):
        rows = np.searchsorted(columns["sample"], np.array(training.samples, np.int64))
        first_training[:, rows] = np.array([[training.step], [training.now], [training.version]])
    first_training[:, outcome != "trained"] = -1
    step, now, version = first_training
    columns |= {"trained_step": step, "trained_seconds": seconds(now), "outcome": outcome}
    columns["finish_reason"] = np.array([life.finish_reason for life in lives], object)
    columns |= {name: column(name) for name in ("version_first", "version_last")}
    columns["version_trained"] = version
    return columns | _lags(columns, column("version_tokens"), column("ended_tokens") + column("reused_tokens"))


def _lags(columns: Columns, version_tokens: NDArray[np.int64], tokens: NDArray[np.int64]) -> Columns:
    """Four of the five lags; the fifth, within the batch, belongs to updates."""
    trained = columns["version_trained"].astype(np.float64)
    trained[columns["trained_step"] < 0] = np.nan
    first, last = columns["version_first"], columns["version_last"]
    mean = version_tokens / np.maximum(tokens, 1)
    return {
        "start_lag": trained - first,
        "end_lag": trained - last,
        "span": np.where(np.isnan(trained), np.nan, last - first),
        "token_weighted_lag": trained - mean,
    }


def segment_columns(history: History) -> Columns:
    """One row a segment, by sample, in order."""
    table = integers(history.segments, 5)
    return dict(zip(("sample", "segment", "replica", "version", "tokens"), table.T.copy(), strict=True))


def update_columns(log: RunLog, plan: ResolvedScenario, history: History, samples: Columns) -> Columns:
    """One row a training iteration that has ended."""
    count = len(log.iterations)
    ends = np.array([row.end for row in log.iterations], np.int64)
    begins = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    durations = _phase_ticks(log, count, ends)
    tokens = np.stack([samples[f"{part}_tokens"] for part in ("prompt", "inherited", "response", "tool")]).sum(axis=0)
    uses, parts = trained_uses(history, samples, count), _parts(history, count)
    columns: Columns = {"step": np.arange(count)}
    # First start and last end of the phases of each step.
    start, end = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    for span in log.spans:
        if span.who < 0 and span.what not in _BETWEEN and span.step < count:
            start[span.step] = span.start if start[span.step] < 0 else start[span.step]
            end[span.step] = span.end
    columns |= {"train_start_seconds": seconds(start), "train_end_seconds": seconds(end)}
    columns["samples"] = np.bincount(uses["step"], minlength=count)
    columns["tokens"] = np.bincount(uses["step"], tokens[uses["row"]], count).astype(np.int64)
    columns |= {f"{name}_seconds": seconds(ticks) for name, ticks in durations.items()}
    columns["wait_seconds"] = seconds(ends - begins - sum(durations.values()))
    columns["version"] = _versions(history, count)
    columns |= {"iteration_end_seconds": seconds(ends), "step_seconds": seconds(ends - begins)}
    own = _own_updates(history, plan, count)
    shared = np.where(parts > 1, 1, _updates(plan))
    columns["intra_batch_lag_max"] = (np.where(own > 0, own, shared) - 1).astype(np.float64)
    columns["intra_batch_lag_mean"] = columns["intra_batch_lag_max"] / 2
    return columns


def trained_uses(history: History, samples: Columns, count: int) -> Columns:
    """One row for every time that a sample was trained on in the first ``count`` steps, with its row and its lags."""
    done = [training for training in history.trainings if training.step < count]
    numbers = np.array([sample for training in done for sample in training.samples], np.int64)
    each = [len(training.samples) for training in done]
    row = np.searchsorted(samples["sample"], numbers)
    version = np.repeat(np.array([training.version for training in done], np.int64), each)
    later = version - samples["version_trained"][row]
    step = np.repeat(np.array([training.step for training in done], np.int64), each)
    lags = {name: samples[name][row] + later for name in ("start_lag", "end_lag", "token_weighted_lag")}
    return {"step": step, "row": row, **lags, "span": samples["span"][row]}


def _updates(plan: ResolvedScenario) -> int:
    """Optimizer updates of a step: mini-batches times passes over the batch."""
    samples = plan.shape.prompts_per_step * plan.shape.group_size
    return min(plan.training.config.updates_per_step, samples) * plan.training.config.epochs


def _own_updates(history: History, plan: ResolvedScenario, count: int) -> NDArray[np.int64]:
    """Updates of each step that its local batches made; 0 where the step makes its updates as a whole."""
    updates = np.zeros(count, np.int64)
    for training in history.trainings:
        if training.updates is not None and training.step < count:
            updates[training.step] += min(training.updates, len(training.samples)) * plan.training.config.epochs
    return updates


def _parts(history: History, count: int) -> NDArray[np.int64]:
    """``Train`` commands of each step; more than one where gradients are accumulated over a stream."""
    steps = np.array([training.step for training in history.trainings], np.int64)
    return np.bincount(steps, minlength=count)[:count]


def _versions(history: History, count: int) -> NDArray[np.int64]:
    versions = np.full(count, -1, np.int64)
    for training in history.trainings:
        if training.step < count:
            versions[training.step] = training.version
    return versions


def _phase_ticks(log: RunLog, count: int, ends: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Ticks of each phase by step; sync and switch belong to the iteration in which they end."""
    ticks = {name: np.zeros(count, np.int64) for name in (*PHASES, "sync", "switch")}
    for span in log.spans:
        if span.who >= 0:
            continue
        step = int(np.searchsorted(ends, span.end)) if span.what in _BETWEEN else span.step
        if step < count:
            ticks.setdefault(span.what, np.zeros(count, np.int64))[step] += span.end - span.start
    return ticks
