"""Rewards that a run logged, one row a sample, as successes by group."""

from __future__ import annotations

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
class RewardLog:
    """Visits of prompts, by prompt and then by version: shapes (visits,)."""

    prompt: Ints
    version: Ints
    successes: Ints
    samples: Ints

    def of(self, chosen: npt.NDArray[np.bool_]) -> RewardLog:
        """The chosen visits."""
        return RewardLog(self.prompt[chosen], self.version[chosen], self.successes[chosen], self.samples[chosen])

    @property
    def rate(self) -> float:
        """Successes over samples."""
        return float(self.successes.sum() / self.samples.sum())


def read_rewards(path: Path, success_at: float = 1.0) -> RewardLog:
    """The table ``rewards`` in a folder, or a Parquet or CSV file: prompt, group, reward, and version or step.

    A sample succeeds with a reward of at least ``success_at``. Raises ``ParameterError`` for a table that cannot
    be read, lacks a column, or cannot support a fit.
    """
    rows = _rows(path)
    clock = next((name for name in ("version", "step") if name in rows), None)
    missing = [name for name in NEEDED if name not in rows] + ([] if clock else ["version (or step)"])
    if missing:
        raise ParameterError("columns", ", ".join(map(str, rows.columns)), f"also {', '.join(missing)}")
    rows = rows.assign(won=rows["reward"] >= success_at - 1e-9, at=rows[clock])
    keys = [name for name in ("prompt", "group", "step") if name in rows]
    groups = rows.groupby(keys, sort=False).agg(
        version=("at", "min"), successes=("won", "sum"), samples=("won", "size")
    )
    groups = groups.reset_index()[["prompt", "version", "successes", "samples"]]
    groups = groups.sort_values(["prompt", "version"], kind="stable")
    columns = (groups[name].to_numpy(np.int64) for name in ("prompt", "version", "successes", "samples"))
    return _checked(RewardLog(*columns))


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
