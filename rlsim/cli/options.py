"""Arguments and options that several commands have, said once.

Standard output whose reader may leave early (``rlsim ... | head``): what it no longer reads is no fault.

Runs that have ended and the time left, on stderr: a bar on a terminal, else a line now and then.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


ScenarioFile = Annotated[Path, typer.Argument(help="Scenario file (YAML).", show_default=False)]
Sets = Annotated[list[str], typer.Option("--set", help="Override one key: path.to.key=value.", show_default=False)]
Overlays = Annotated[list[Path], typer.Option("--overlay", help="File merged over the scenario.", show_default=False)]
ArmName = Annotated[str | None, typer.Option("--arm", help="Which arm of the scenario.", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Directory for results; it keeps finished runs: the same command goes on."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes; default: one a core.", show_default=False)
]
Cluster = Annotated[
    str | None, typer.Option(help="Runs as tasks of a cluster (ray) instead of processes.", show_default=False)
]
RayAddress = Annotated[
    str | None, typer.Option(help="Of an existing Ray cluster; RAY_ADDRESS, or a local one.", show_default=False)
]


class _Pipe(io.RawIOBase):
    """A file descriptor that takes everything, also once nobody reads it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return os.write(self._descriptor, data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def let_readers_leave() -> None:
    """From here on a closed pipe behind standard output ends nothing; a terminal is left as it is."""
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:
        return  # somebody collects it in memory
    if sys.stdout.isatty():
        return
    sys.stdout.flush()
    raw = io.BufferedWriter(_Pipe(descriptor))
    sys.stdout = io.TextIOWrapper(raw, encoding=sys.stdout.encoding, errors=sys.stdout.errors)


EVERY_SECONDS = 30.0
"""Between two lines."""


@contextmanager
def progress(total: int | None, unit: str = "runs") -> Iterator[Callable[[int], None]]:
    """Report on stderr how many of ``total`` have ended: a bar on a terminal, else a line now and then.

    The yielded function takes how many more have ended; its first call counts what was there already.
    """
    if not sys.stderr.isatty():
        yield _Lines(total, unit)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(unit, total=total)
        yield lambda more: shown.update(task, advance=more)


class _Lines:
    """The count and the time left, printed at most once in ``EVERY_SECONDS``."""

    def __init__(self, total: int | None, unit: str) -> None:
        self._total, self._unit, self._ended = total, unit, 0
        self._there: int | None = None
        self._start = self._last_line = time.monotonic()

    def __call__(self, more: int) -> None:
        self._ended += more
        if self._there is None:
            self._there = more
        now = time.monotonic()
        if now - self._last_line >= EVERY_SECONDS:
            self._last_line = now
            print(self._line(now - self._start, self._ended - self._there), file=sys.stderr, flush=True)

    def _line(self, seconds: float, ended: int) -> str:
        if self._total is None or not ended:
            return f"{self._ended} {self._unit}"
        left = seconds / ended * (self._total - self._ended)
        return f"{self._ended} of {self._total} {self._unit}, {left / 60:.1f} min left"
