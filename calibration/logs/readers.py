"""Logs that are data files: JSON lines, tables, the exports of Weights & Biases, Hugging Face's ``trainer_state.json``.

Scalars of TensorBoard event files, read by the ``tensorboard`` package (the ``logs`` extra).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration.logs.records import STEP_NAMES, TrainingLog, gather, json_object, step_number
from calibration.logs.texts import CUT, Line, LogText, read_text
from rlsim.core.errors import ParameterError

NOT_OBJECTS = "lines that are no JSON object"
NESTED = ("data", "metrics")
"""Where a row has its values, if not beside its step."""
Entry = tuple[Line, Mapping[str, Any]]


def read_jsonl(path: Path) -> TrainingLog:
    """One object a line, or a list of objects: ``{"step": n, "data": {...}}``, or flat with a step among its values."""
    log = LogText(path, (".jsonl",))
    return gather(log.origin, "JSON lines", _by_step(log, list(_objects(log))), log.notes())


def _objects(log: LogText) -> Iterator[Entry]:
    trees = [(line, _parsed(line.text)) for line in log if line.text.strip()]
    if trees and trees[0][1] is None and trees[0][0].text.lstrip().startswith("["):
        whole = _parsed("\n".join(line.text for line, _ in trees))
        trees = [(trees[0][0], whole)] if isinstance(whole, list) else trees
    for line, tree in trees:
        for entry in tree if isinstance(tree, list) else [tree]:
            if isinstance(entry, dict):
                inner = next((entry[name] for name in NESTED if isinstance(entry.get(name), dict)), dict[str, Any]())
                yield line, {**entry, **inner, **{name: entry[name] for name in STEP_NAMES if name in entry}}
            else:
                log.lose(NOT_OBJECTS, line)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _by_step(log: LogText, entries: Sequence[Entry]) -> Iterator[tuple[int, dict[str, object]]]:
    """Entries under the first of the steps' names that any of them has."""
    named = (name for name in STEP_NAMES if any(step_number(entry.get(name)) is not None for _, entry in entries))
    name = next(named, None)
    for line, entry in entries:
        step = None if name is None else step_number(entry.get(name))
        if step is None:
            log.lose(f"rows without {name or 'a step, one of ' + ', '.join(STEP_NAMES)}", line)
        else:
            yield step, {key: value for key, value in entry.items() if key not in (name, *NESTED)}


def read_wandb_csv(path: Path) -> TrainingLog:
    """Tables with a step and a column a metric, named ``metric`` or, exported from a chart, ``run - metric``.

    Raises ``ParameterError`` for several runs.
    """
    log = LogText(path, (".csv", ".tsv"))
    entries, runs = list[Entry](), set[str]()
    for file in log.files:
        rows = list(_table_rows(log, file))
        runs |= {name.rpartition(" - ")[0] for _, row in rows[:1] for name in row if " - " in name}
        entries += [(line, {name.rpartition(" - ")[2]: value for name, value in row.items()}) for line, row in rows]
    if len(runs) > 1:
        raise ParameterError(log.origin, sorted(runs), "the export of one run")
    return gather(log.origin, "CSV", _by_step(log, entries), log.notes())


def _table_rows(log: LogText, file: Path) -> Iterator[Entry]:
    """Rows by the names of the header, without the ranges of W&B's charts."""
    text = read_text(file).replace("\x00", "")
    lines = text.split("\n")
    separator = max(",;\t", key=lines[0].count)
    header: list[str] | None = None
    reader = csv.reader((line.rstrip("\r") + "\n" for line in lines), delimiter=separator)
    place = "line " if len(log.files) == 1 else f"{file.name}:"
    while True:
        try:
            cells, broken = next(reader, None), False
        except csv.Error:
            cells, broken = [], True
        if cells is None:
            return
        line = Line(f"{place}{reader.line_num}", "", lines[min(reader.line_num, len(lines)) - 1])
        if broken:
            log.lose("rows that are no CSV", line)
        if header is None and cells:
            header = [name.strip() for name in cells]
        elif header is not None and any(cells):
            if reader.line_num >= len(lines) and not line.text.endswith('"'):
                log.lose(CUT, line)
                cells = cells[:-1]
            names = (name if not name.endswith(("__MIN", "__MAX")) else "" for name in header)
            yield line, {name: cell for name, cell in zip(names, cells, strict=False) if name}


def read_trainer_state(path: Path) -> TrainingLog:
    """``log_history`` of the Hugging Face trainer: a list of dicts, several of which may belong to a step."""
    log = LogText(path, (".json",))
    history = json_object("\n".join(map(read_text, log.files)), log.origin).get("log_history")
    if not isinstance(history, list):
        raise ParameterError(log.origin, type(history).__name__, "log_history: a list of the trainer's logs")
    entries = [
        (Line(f"log_history[{number}]", "", str(entry)), entry)
        for number, entry in enumerate(history)
        if isinstance(entry, dict)
    ]
    return gather(log.origin, "trainer_state.json", _by_step(log, entries), log.notes())


EVENTS = "events.out.tfevents"


def read_tensorboard(path: Path) -> TrainingLog:
    """All scalars of an event file, or of the event files in a folder and below, one row a step.

    Raises ``ParameterError`` without the ``logs`` extra.
    """
    files = [path] if path.is_file() else sorted(path.rglob(f"*{EVENTS}*"), key=lambda file: file.name)
    if not files:
        raise ParameterError(path.name, str(path), f"a file {EVENTS}..., or a folder with some")
    parts = (part for file in files for part in _scalars(file).items())
    return gather(path.name, "tensorboard events", parts, [f"{len(files)} event files"] if len(files) > 1 else [])


def _scalars(file: Path) -> dict[int, dict[str, object]]:
    """Values by step and tag."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError as error:
        raise ParameterError("logs", "tensorboard is not installed", "pip install 'rlsim[logs]'") from error
    events = EventAccumulator(str(file), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    tags, steps = events.Tags(), dict[int, dict[str, object]]()
    for tag in tags["scalars"]:
        for event in events.Scalars(tag):
            steps.setdefault(int(event.step), {})[tag] = float(event.value)
    for tag in tags["tensors"]:
        for event in events.Tensors(tag):
            values = make_ndarray(event.tensor_proto)
            if values.size == 1 and values.dtype.kind in "fiu":
                steps.setdefault(int(event.step), {})[tag] = float(values)
    return steps
