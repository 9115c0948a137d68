"""The tables of a run as data frames; every one is derived from the log, in a fixed order of rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlsim.core.ticks import to_seconds
from rlsim.executor.run import FinishedRun
from rlsim.results.activity import Activity, activity
from rlsim.results.columns import (
    Columns,
    integers,
    sample_columns,
    seconds,
    segment_columns,
    trained_uses,
    update_columns,
)
from rlsim.results.history import History, read_history

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("samples", "segments", "updates", "activity", "services", "gates")


@dataclass(frozen=True, slots=True)
class Digest:
    """A run read once: what tables and metrics are made from."""

    run: FinishedRun
    history: History
    samples: Columns
    updates: Columns
    uses: Columns
    """Every time that a sample was trained on."""
    activity: Activity


def digest(run: FinishedRun) -> Digest:
    """Read a run; ``ParameterError`` when it did not keep its decisions."""
    history = read_history(run.log)
    samples = sample_columns(run.log, history)
    updates = update_columns(run.log, run.plan, history, samples)
    uses = trained_uses(history, samples, len(run.log.iterations))
    done = activity(run.log, run.plan.colocated, run.plan.shape.replicas, history, run.plan.lent)
    return Digest(run, history, samples, updates, uses, done)


def tables(run: FinishedRun) -> dict[str, pd.DataFrame]:
    """Data frames by name (``TABLES``).

    ``samples``: one row a sample that entered generation. ``segments``: tokens by sample, replica and version.
    ``updates``: one row a training iteration. ``activity``: what every replica and the trainer (-1) did, in
    tiles. ``services``: tool calls and scorings. ``gates``: from when admission was held by what. Seconds since
    the start of the run; NaN and -1 where there is no answer. Raises ``ParameterError`` when the run did not
    keep its decisions.
    """
    import pandas as pd

    frames = {}
    for table, columns in table_columns(digest(run)).items():
        texts = {name: pd.Series(values, dtype="str") for name, values in columns.items() if values.dtype == object}
        frames[table] = pd.DataFrame({**columns, **texts})
    return frames


def table_columns(read: Digest) -> dict[str, Columns]:
    """Every table as columns, by name."""
    log = read.run.log
    times = integers(((row.requested, row.start, row.end) for row in log.services), 3)
    services = {
        "sample": np.array([row.sample for row in log.services], np.int64),
        "what": np.array([row.what for row in log.services], object),
        "asked_seconds": seconds(times[:, 0]),
        "start_seconds": seconds(times[:, 1]),
        "end_seconds": seconds(times[:, 2]),
    }
    gates = {
        "start_seconds": np.array([to_seconds(row.now) for row in log.gates], np.float64),
        "gate": np.array([row.gate for row in log.gates], object),
    }
    return {
        "samples": read.samples,
        "segments": segment_columns(read.history),
        "updates": read.updates,
        "activity": read.activity.columns(),
        "services": services,
        "gates": gates,
    }
