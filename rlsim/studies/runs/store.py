"""Finished runs on disk, so that an interrupted command goes on where it was.

::

    runs/.journal.jsonl         runs since the last part, a line each, written as each run ends
    runs/part-000000.parquet    batches of runs, each written under a temporary name and renamed
    runs/.lock                  held while a command writes

A run is known by the hash of what it is made from and its replication. Every run is written twice, whatever their
number: once to the journal, once to a part. Lines reach the operating system at once: a killed process loses no
finished run, and a line that it was writing is left out.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from rlsim.core.errors import RlsimError
from rlsim.results.store import replacing

PART_RUNS = 256
"""Runs in a full part."""
FOLDER, JOURNAL, LOCK = "runs", ".journal.jsonl", ".lock"

Number = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Made:
    """A run that has ended."""

    run: str
    """Hash of what it is made from."""
    replication: int
    label: str
    """Of the variant that asked for it first; no part of what it is."""
    rlsim: str
    """Version and digest of the code."""
    fault: str
    """Why it has no metrics; empty where it has."""
    cpu_seconds: float
    metrics: dict[str, Number]
    """Flat, as ``Metrics.as_dict`` names them; empty with a fault."""

    @property
    def key(self) -> tuple[str, int]:
        """What it is known by."""
        return self.run, self.replication


_OWN = tuple(field.name for field in fields(Made) if field.name != "metrics")


class StoreError(RlsimError, OSError):
    """A store that cannot be used; the message says which file and why."""


class RunStore:
    """The runs of a directory; a context that holds its lock."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER
        self._runs: dict[tuple[str, int], Made] = {}
        self._fresh: list[Made] = []
        """In the journal and in no part."""
        self._parts = 0
        self._lock: BinaryIO
        self._journal: BinaryIO

    def __enter__(self) -> RunStore:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self._folder / LOCK)
            self._read()
        except OSError as error:
            raise error if isinstance(error, StoreError) else StoreError(f"{self._folder}: {error}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._write_part()
        finally:
            self._journal.close()
            self._lock.close()

    def __len__(self) -> int:
        return len(self._runs)

    def find(self, run: str, replication: int) -> Made | None:
        """The run, if it has been made."""
        return self._runs.get((run, replication))

    def add(self, made: Made) -> None:
        """Keep a run; it is on disk when this returns."""
        self._runs[made.key] = made
        self._fresh.append(made)
        line = (json.dumps(asdict(made), separators=(",", ":")) + "\n").encode()
        try:
            self._journal.write(line)
            if len(self._fresh) >= PART_RUNS:
                self._write_part()
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}; finished runs are kept") from error

    def _read(self) -> None:
        parts = sorted(self._folder.glob("part-*.parquet"))
        self._parts = 1 + max((int(path.stem.partition("-")[2]) for path in parts), default=-1)
        for path in parts:
            self._runs |= {made.key: made for made in read_part(path)}
        journal = self._folder / JOURNAL
        told = list(_lines(journal)) if journal.exists() else []
        self._fresh = [made for made in told if made.key not in self._runs]
        self._runs |= {made.key: made for made in self._fresh}
        with replacing(journal) as part:
            part.write_text("".join(json.dumps(asdict(made)) + "\n" for made in self._fresh), encoding="utf-8")
        self._journal = open(journal, "ab", buffering=0)  # noqa: SIM115

    def _write_part(self) -> None:
        """Move the journal's runs to a part; between the two writes they are in both, which loses nothing."""
        if not self._fresh:
            return
        write_part(self._folder / f"part-{self._parts:06d}.parquet", self._fresh)
        self._parts += 1
        self._journal.truncate(0)
        self._fresh = []


@contextmanager
def opened(directory: Path | None) -> Iterator[RunStore]:
    """The store of a directory; one that is gone afterwards where there is none."""
    if directory is not None:
        with RunStore(directory) as store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="rlsim-runs-") as folder, RunStore(Path(folder)) as store:
        yield store


def write_part(path: Path, runs: Iterable[Made]) -> None:
    """Runs as a Parquet table, in full or not at all: one row a run, metrics as columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = list(runs)
    names = dict.fromkeys(name for made in rows for name in made.metrics)
    columns: dict[str, Any] = {name: [getattr(made, name) for made in rows] for name in _OWN}
    columns |= {name: [made.metrics.get(name) for made in rows] for name in names}
    with replacing(path) as part:
        pq.write_table(pa.table(columns), part, compression="zstd", compression_level=3)


def read_part(path: Path) -> Iterator[Made]:
    """The runs of a part; ``StoreError`` for a file that is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path}: {error}") from error
    for row in rows:
        own = {name: row.pop(name) for name in _OWN}
        found = {name: value for name, value in row.items() if value is not None}
        yield Made(**own, metrics={} if own["fault"] else found)


def _lines(path: Path) -> Iterator[Made]:
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                yield Made(**json.loads(line))
            except (ValueError, TypeError):
                if line.endswith("\n"):
                    raise StoreError(f"{path}: found a line that holds no run; allowed: what rlsim wrote") from None


def _locked(path: Path) -> BinaryIO:
    """``StoreError`` where another command holds it; a process that ends, however, lets it go."""
    file = open(path, "ab")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StoreError(f"{path}: another command writes to this directory (or use another --out)") from None
    os.set_inheritable(file.fileno(), False)
    return file
