"""Scalars of TensorBoard event files, read by the ``tensorboard`` package (the ``logs`` extra)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibration.runlogs.records import RunLog, gather
from rlsim.core.errors import ParameterError

EVENTS = "events.out.tfevents"


def read_tensorboard(path: Path) -> RunLog:
    """All scalars of an event file, or of the event files in a folder and below, one row a step.

    Raises ``ParameterError`` without the ``logs`` extra.
    """
    files = [path] if path.is_file() else sorted(path.rglob(f"*{EVENTS}*"))
    if not files:
        raise ParameterError(path.name, str(path), f"a file {EVENTS}..., or a folder with some")
    parts = (part for file in files for part in _scalars(file))
    return gather(path.name, "tensorboard events", parts, [f"{len(files)} event files"] if len(files) > 1 else [])


def _scalars(file: Path) -> Iterator[tuple[int, dict[str, object]]]:
    events = _accumulator(file)
    events.Reload()
    tags = events.Tags()
    for tag in tags["scalars"]:
        for event in events.Scalars(tag):
            yield int(event.step), {tag: float(event.value)}
    for tag in tags["tensors"]:
        for event in events.Tensors(tag):
            yield int(event.step), {tag: _single(event.tensor_proto)}


def _single(tensor: Any) -> float | None:
    """The number of a scalar summary of the second kind; None for what is no single number."""
    from tensorboard.util.tensor_util import make_ndarray

    values = make_ndarray(tensor)
    return float(values) if values.size == 1 and values.dtype.kind in "fiu" else None


def _accumulator(file: Path) -> Any:
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as error:
        raise ParameterError("logs", "tensorboard is not installed", "pip install 'rlsim[logs]'") from error
    return EventAccumulator(str(file), size_guidance={"scalars": 0, "tensors": 0})
