"""The figures of a report: those that ``--out`` left, or drawn again from its tables, inside the page."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.results.allocation import allotted
from rlsim.results.plots.allotted import WHAT, allotted_map
from rlsim.results.plots.scaling import progress_curves
from rlsim.results.plots.style import png
from rlsim.results.plots.timeline import timelines
from rlsim.results.store import read_table
from rlsim.studies.report.saved import Saved, SavedArm
from rlsim.studies.save import load_tables

if TYPE_CHECKING:
    from pandas import DataFrame

    from rlsim.results.columns import Columns

MOST_ARMS = 8
"""Arms whose timelines stand above each other in one figure; further ones have their own below."""
MAX_BYTES = 8 * 1024**2
SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the page."""

    caption: str
    data_uri: str


OF_RUN = {
    "timeline": "What every replica and the trainer did",
    "running_requests": "Samples in flight, and groups that wait",
    "lengths": "Response lengths",
    "staleness": "Staleness of trained samples",
}


def shared(saved: Saved) -> list[Picture]:
    """Of all arms together."""
    pictures = [
        *_read(saved.directory / "step_time.png", "Step time of the arms, and what was published"),
        *_read(saved.directory / "utilisation.png", "What the GPUs spend their time on"),
    ]
    runs = {arm.name: tables for arm in saved.arms[:MOST_ARMS] if (tables := _tables(arm)) is not None}
    if len(runs) > 1:
        note = "First replication of each arm, one time axis; dashed: weights version published"
        drawn = timelines(runs, "Timelines of the arms", note)
        pictures.append(_picture("Timelines of the arms on one axis", png(drawn)))
    return [*pictures, *_progress(saved), *_allotted(saved)]


def of_arm(arm: SavedArm) -> list[Picture]:
    """Of its first replication; none where no tables were saved."""
    return [
        picture
        for name, caption in OF_RUN.items()
        for picture in _read(arm.replication / f"{name}.png", f"{caption}: {arm.name}")
    ]


def _read(path: Path, caption: str) -> Iterator[Picture]:
    """A picture file as it is; nothing where there is none, or something else of that name."""
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        return
    data = path.read_bytes()
    if data.startswith(SIGNATURE):
        yield _picture(caption, data)


def _picture(caption: str, data: bytes) -> Picture:
    return Picture(caption, "data:image/png;base64," + b64encode(data).decode("ascii"))


def _tables(arm: SavedArm) -> dict[str, DataFrame] | None:
    from rlsim.results.tables import TABLES

    if not all((arm.replication / f"{name}.parquet").is_file() for name in TABLES):
        return None
    return load_tables(arm.replication)


def _progress(saved: Saved) -> Iterator[Picture]:
    """Success against what was used, where every arm has a learning section."""
    runs = {arm.name: _columns(arm, "progress") for arm in saved.arms}
    if all(runs.values()):
        caption = "Success against rollouts, time and money (a statistical model: an ESTIMATE)"
        yield _picture(caption, png(progress_curves(runs, None, "Progress of the arms")))


def _allotted(saved: Saved) -> Iterator[Picture]:
    """Which prompts got what, where every arm was told rewards."""
    runs = {arm.name: _columns(arm, "allotted") for arm in saved.arms}
    if not all(runs.values()):
        return
    allocations = iter(allotted([columns for columns_by_run in runs.values() for columns in columns_by_run]))
    maps = {arm: [next(allocations) for _ in columns_by_run] for arm, columns_by_run in runs.items()}
    for unit, counted in WHAT.items():
        title = f"Which prompts got the {counted.name}"
        yield _picture(f"{title}, by success probability", png(allotted_map(maps, unit, title)))


def _columns(arm: SavedArm, table: str) -> list[Columns]:
    """A table of every replication that has it."""
    places = (arm.folder / f"replication-{int(run['replication'])}" / f"{table}.parquet" for run in arm.metrics)
    frames = (read_table(path) for path in places if path.is_file())
    return [{str(name): frame[name].to_numpy() for name in frame} for frame in frames]
