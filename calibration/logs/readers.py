"""Logs that are data files: JSON lines, the CSV export of Weights & Biases, Hugging Face's ``trainer_state.json``.

Scalars of TensorBoard event files, read by the ``tensorboard`` package (the ``logs`` extra).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from calibration.logs.records import TrainingLog, gather, json_object, read_text
from rlsim.core.errors import ParameterError

STEP_NAMES = ("step", "_step", "Step", "global_step", "train/global_step", "trainer/global_step")
"""Where a row without ``{"step", "data"}`` says which step it is, in order of preference."""


def read_jsonl(file: Path) -> TrainingLog:
    """One object a line: verl's ``{"step": n, "data": {...}}``, or flat with a step among its values."""
    rows = []
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if line.strip():
            place = f"{file.name}:{number}"
            row = json_object(line, place)
            data = row.get("data")
            rows.append((_step(row, place), data if isinstance(data, dict) else row))
    return gather(file.name, "JSON lines", rows, ())


def _step(row: Mapping[str, object], where: str) -> int:
    for name in STEP_NAMES:
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return int(value)
    raise ParameterError(where, sorted(row)[:8], f"the step of the row: one of {', '.join(STEP_NAMES)}")


def read_wandb_csv(file: Path) -> TrainingLog:
    """A table with ``Step`` and a column a metric, named ``metric`` or, exported from a chart, ``run - metric``.

    Raises ``ParameterError`` for the charts of several runs in one file.
    """
    reader = csv.DictReader(read_text(file).splitlines())
    header = [name for name in reader.fieldnames or () if name and not name.endswith(("__MIN", "__MAX"))]
    runs = {name.split(" - ", 1)[0] for name in header if " - " in name}
    if len(runs) > 1:
        raise ParameterError(file.name, sorted(runs), "the export of one run")
    rows = []
    for number, row in enumerate(reader, start=2):
        values: dict[str, object] = {name.split(" - ", 1)[-1]: _number(row[name]) for name in header}
        rows.append((_step(values, f"{file.name}:{number}"), values))
    return gather(file.name, "W&B CSV", rows, ())


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def read_trainer_state(file: Path) -> TrainingLog:
    """``log_history`` of the Hugging Face trainer: a list of dicts, several of which may belong to a step."""
    history = json_object(read_text(file), file.name).get("log_history")
    if not isinstance(history, list):
        raise ParameterError(file.name, type(history).__name__, "log_history: a list of the trainer's logs")
    entries = [(f"{file.name}: log_history[{n}]", entry) for n, entry in enumerate(history) if isinstance(entry, dict)]
    return gather(file.name, "trainer_state.json", ((_step(entry, where), entry) for where, entry in entries), ())


EVENTS = "events.out.tfevents"


def read_tensorboard(path: Path) -> TrainingLog:
    """All scalars of an event file, or of the event files in a folder and below, one row a step.

    Raises ``ParameterError`` without the ``logs`` extra.
    """
    files = [path] if path.is_file() else sorted(path.rglob(f"*{EVENTS}*"))
    if not files:
        raise ParameterError(path.name, str(path), f"a file {EVENTS}..., or a folder with some")
    parts = (part for file in files for part in _scalars(file))
    return gather(path.name, "tensorboard events", parts, [f"{len(files)} event files"] if len(files) > 1 else [])


def _scalars(file: Path) -> Iterator[tuple[int, dict[str, object]]]:
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError as error:
        raise ParameterError("logs", "tensorboard is not installed", "pip install 'rlsim[logs]'") from error
    events = EventAccumulator(str(file), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    for tag in tags["scalars"]:
        for event in events.Scalars(tag):
            yield int(event.step), {tag: float(event.value)}
    for tag in tags["tensors"]:
        for event in events.Tensors(tag):
            values = make_ndarray(event.tensor_proto)
            yield int(event.step), {tag: (float(values) if values.size == 1 and values.dtype.kind in "fiu" else None)}
