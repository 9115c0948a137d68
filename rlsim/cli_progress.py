"""Runs that have ended and the time left, on stderr: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_SECONDS = 30.0
"""Between two lines."""


@contextmanager
def progress(runs: int | None) -> Iterator[Callable[[int], None]]:
    """Gives what is told how many more runs have ended; the first call counts what was there already."""
    if not sys.stderr.isatty():
        yield _Lines(runs)
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

    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("runs", total=runs)
        yield lambda more: shown.update(task, advance=more)


class _Lines:
    def __init__(self, runs: int | None) -> None:
        self._runs, self._ended = runs, 0
        self._there: int | None = None
        self._began = self._told = time.monotonic()

    def __call__(self, more: int) -> None:
        self._ended += more
        if self._there is None:
            self._there = more
        now = time.monotonic()
        if now - self._told >= EVERY_SECONDS:
            self._told = now
            print(self._line(now - self._began, self._ended - self._there), file=sys.stderr, flush=True)

    def _line(self, seconds: float, made: int) -> str:
        if self._runs is None or not made:
            return f"{self._ended} runs"
        left = seconds / made * (self._runs - self._ended)
        return f"{self._ended} of {self._runs} runs, {left / 60:.1f} min left"
