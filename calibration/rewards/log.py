"""Rewards that runs logged, one row a sample, as successes by group and as what each step was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rlsim.core.errors import ParameterError

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("prompt", "group", "reward")
FILES = ("rewards.parquet", "rewards.csv")
LEAST_GROUPS = 50

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batches:
    """What the steps of a run were trained on, in order: shapes (steps,)."""

    variance: npt.NDArray[np.float64]
    """Advantage variance of successes (``rlsim.learning.information``)."""
    samples: Ints
    group_size: int
    """Samples of most groups."""


@dataclass(frozen=True, slots=True)
class RewardLog:
    """Groups of prompts, by run, prompt and version: shapes (groups,). A prompt of another run is another prompt."""

    prompt: Ints
    version: Ints
    successes: Ints
    samples: Ints
    run: Ints
    batches: tuple[Batches, ...] = ()
    """Batches of each run; none where the log does not say what was trained on."""
    tokens: Ints | None = None
    """Response tokens of failures and of successes: shape (groups, 2); None where the log does not say."""

    def of(self, chosen: npt.NDArray[np.bool_]) -> RewardLog:
        """The chosen groups."""
        of_prompt = self.prompt[chosen], self.version[chosen], self.successes[chosen], self.samples[chosen]
        tokens = None if self.tokens is None else self.tokens[chosen]
        return RewardLog(*of_prompt, self.run[chosen], self.batches, tokens)

    @property
    def rate(self) -> float:
        """Successes over samples."""
        return float(self.successes.sum() / self.samples.sum())


def read_rewards(path: Path, success_at: float = 1.0) -> RewardLog:
    """The table ``rewards`` in a folder, or a Parquet or CSV file: prompt, group, reward, and version or step.

    With a column tokens lengths are told too. A sample succeeds with a reward of at least ``success_at``. Raises
    ``ParameterError`` for a table that cannot be read, lacks a column, or cannot support a fit.
    """
    rows = _rows(path)
    clock = next((name for name in ("version", "step") if name in rows), None)
    missing = [name for name in NEEDED if name not in rows] + ([] if clock else ["version (or step)"])
    if missing:
        raise ParameterError("columns", ", ".join(map(str, rows.columns)), f"also {', '.join(missing)}")
    rows = rows.assign(won=rows["reward"] >= success_at - 1e-9, at=rows[clock])
    rows = rows.assign(tokens=rows.get("tokens", 0))
    rows = rows.assign(tokens_won=rows["tokens"] * rows["won"])
    keys = [name for name in ("prompt", "group", "step") if name in rows]
    groups = rows.groupby(keys, sort=False).agg(
        version=("at", "min"),
        successes=("won", "sum"),
        samples=("won", "size"),
        tokens=("tokens", "sum"),
        tokens_won=("tokens_won", "sum"),
    )
    groups = groups.reset_index().sort_values(["prompt", "version"], kind="stable")
    prompt, version, successes, samples = (
        groups[name].to_numpy(np.int64) for name in ("prompt", "version", "successes", "samples")
    )
    batches = (_batches(rows),) if {"version", "step"} <= set(rows) else ()
    total, won = (groups[name].to_numpy(np.int64) for name in ("tokens", "tokens_won"))
    tokens = np.stack([total - won, won], axis=1) if total.any() else None
    return _checked(RewardLog(prompt, version, successes, samples, np.zeros(len(groups), np.int64), batches, tokens))


def read_runs(paths: Sequence[Path], success_at: float = 1.0, are_alike: bool = False) -> RewardLog:
    """Several runs as one log; ``ParameterError`` also for one that does not say what its steps were trained on.

    Runs that ``are_alike``, uniform ones of one task, are one run of all their prompts.
    """
    logs = [read_rewards(path, success_at) for path in paths]
    if len(logs) == 1:
        return logs[0]
    for path, log in zip(paths, logs, strict=True):
        if not log.batches and not are_alike:
            raise ParameterError("columns", str(path), "version and step, which say what each step was trained on")
    apart = 1 + max(int(log.prompt.max()) for log in logs)
    prompt = np.concatenate([log.prompt + apart * number for number, log in enumerate(logs)])
    version, successes, samples = (
        np.concatenate([getattr(log, name) for log in logs]) for name in ("version", "successes", "samples")
    )
    logged = [log.tokens for log in logs if log.tokens is not None]
    tokens = np.concatenate(logged) if len(logged) == len(logs) else None
    if are_alike:
        return RewardLog(prompt, version, successes, samples, np.zeros_like(version), tokens=tokens)
    run = np.repeat(np.arange(len(logs)), [len(log.prompt) for log in logs])
    return RewardLog(prompt, version, successes, samples, run, tuple(log.batches[0] for log in logs), tokens)


def _batches(rows: pd.DataFrame) -> Batches:
    trained = rows[rows["step"] >= 0]
    groups = trained.groupby(["step", "group"]).agg(rate=("won", "mean"), size=("won", "size")).reset_index()
    groups["squares"] = groups["size"] * groups["rate"] * (1 - groups["rate"])
    steps = groups.groupby("step").agg(squares=("squares", "sum"), samples=("size", "sum"))
    steps = steps.reindex(range(int(trained["step"].max()) + 1), fill_value=0)
    samples = steps["samples"].to_numpy(np.int64)
    variance = steps["squares"].to_numpy(np.float64) / np.maximum(samples, 1)
    return Batches(variance, samples, int(groups["size"].median()))


def _rows(path: Path) -> pd.DataFrame:
    import pandas as pd

    file = path
    if path.is_dir():
        file = next((path / name for name in FILES if (path / name).exists()), path)
    if not file.is_file():
        raise ParameterError("path", str(path), f"a Parquet or CSV file, or a folder with {' or '.join(FILES)}")
    try:
        return pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file)
    except (ValueError, OSError) as error:
        raise ParameterError("path", str(file), f"a table ({error})") from error


def _checked(log: RewardLog) -> RewardLog:
    if len(log.prompt) < LEAST_GROUPS:
        raise ParameterError("groups", len(log.prompt), f"at least {LEAST_GROUPS}")
    if log.samples.max() < 2:
        raise ParameterError("group size", 1, "groups of two or more, which tell spread from chance")
    if not 0 < log.rate < 1:
        raise ParameterError("mean success", log.rate, "successes and failures")
    return log
