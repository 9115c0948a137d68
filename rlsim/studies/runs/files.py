"""Files of one run: tables, decisions, trace and figures, written where it was made and carried where it is wanted."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.executor.run import FinishedRun
from rlsim.results.store import replacing, write_run

if TYPE_CHECKING:
    import pandas as pd


def save_run(directory: Path, run: FinishedRun) -> None:
    """Write one replication: tables and decisions, and of the first also the trace and the figures."""
    write_run(directory, run)
    if run.replication == 0:
        from rlsim.results.tables import tables
        from rlsim.results.trace import write_trace

        frames = tables(run)
        write_trace(directory / "trace.json.gz", frames)
        save_run_figures(directory, frames, directory.parent.name)


def save_run_figures(directory: Path, frames: dict[str, pd.DataFrame], title: str) -> list[Path]:
    """Draw timeline, running requests, lengths and staleness of one run from its tables; paths of the PNG files."""
    from rlsim.results.plots.run import length_histogram, running_requests, staleness_histogram
    from rlsim.results.plots.style import save_figure
    from rlsim.results.plots.timeline import timeline

    figures = {
        "timeline": timeline(frames, f"Timeline, {title}"),
        "running_requests": running_requests(frames, f"Samples in flight, {title}"),
        "lengths": length_histogram(frames, f"Response lengths, {title}"),
        "staleness": staleness_histogram(frames, f"Staleness of trained samples, {title}"),
    }
    paths = []
    for name, figure in figures.items():
        paths.append(directory / f"{name}.png")
        save_figure(figure, paths[-1])
    return paths


def packed_run(directory: Path, run: FinishedRun) -> dict[str, bytes]:
    """Files that ``save_run`` would write to the directory, by name: for a host that cannot write there."""
    with tempfile.TemporaryDirectory(prefix="rlsim-run-") as folder:
        here = Path(folder) / directory.parent.name / directory.name
        save_run(here, run)
        return {path.name: path.read_bytes() for path in sorted(here.iterdir())}


def unpack_run(directory: Path, files: dict[str, bytes]) -> None:
    """Write packed files to the directory; each is there in full or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in set(os.listdir(directory)) - set(files):
        (directory / name).unlink()
    for name, content in files.items():
        with replacing(directory / name) as part:
            part.write_bytes(content)
