"""Records of finished runs on disk, so that an interrupted study goes on where it was.

One SQLite database a directory, ``runs/runs.sqlite3``, with a row a run. A record is on disk when ``add`` returns: a
killed process loses no finished run, and a record that it was writing is left out. One command at a time has it open.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from rlsim.core.errors import RlsimError
from rlsim.results.allocation import Allotted
from rlsim.results.columns import Columns
from rlsim.results.latency import Latency
from rlsim.results.metrics import Metrics
from rlsim.results.utilisation import PoolMetrics, Utilisation
from rlsim.studies.runs.record import RunRecord

FOLDER, FILE = "runs", "runs.sqlite3"
_PLAIN = ("identity", "replication", "label", "code", "verdict", "error", "error_kind", "cpu_seconds")
_NESTED = ("measured", "latency", "progress", "allotted")
"""Columns that hold JSON, or NULL."""
_SCHEMA = f"""
create table if not exists runs ({", ".join((*_PLAIN, *_NESTED))}, primary key (identity, replication));
create table if not exists files (directory primary key, identity, replication, sizes);
"""


class RunStoreError(RlsimError, OSError):
    """A store that cannot be used; the message says which file, why, and what to do."""


class RunStore:
    """The records of a directory (None: of this process alone), as a context that no other command can enter."""

    def __init__(self, directory: Path | None = None) -> None:
        self._folder = None if directory is None else directory / FOLDER
        self._database: sqlite3.Connection

    @property
    def path(self) -> Path:
        """The database file."""
        return Path(":memory:") if self._folder is None else self._folder / FILE

    def __enter__(self) -> RunStore:
        with self._explained():
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        try:
            with self._explained():
                # An exclusive lock needs no shared memory, which network file systems lack, and keeps others out.
                for pragma in ("locking_mode = exclusive", "journal_mode = wal", "synchronous = normal"):
                    self._database.execute(f"pragma {pragma}")
                self._database.execute("begin immediate")
                for statement in _SCHEMA.strip().splitlines():
                    self._database.execute(statement)
                self._database.execute("commit")
        except BaseException:
            self._database.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._database.close()

    def __len__(self) -> int:
        with self._explained():
            return int(self._database.execute("select count(*) from runs").fetchone()[0])

    def find(self, identity: str, replication: int) -> RunRecord | None:
        """The record of a run; None where it has not been made."""
        query = f"select {', '.join((*_PLAIN, *_NESTED))} from runs where identity = ? and replication = ?"
        with self._explained():
            row = self._database.execute(query, (identity, replication)).fetchone()
            return None if row is None else _record(dict(zip((*_PLAIN, *_NESTED), row, strict=True)))

    def add(self, record: RunRecord, directory: Path | None = None) -> None:
        """Keep a record, and that the files of its run lie in a directory; it is on disk when this returns."""
        columns = _columns(record)
        marks = ", ".join("?" * len(columns))
        with self._explained():
            self._database.execute("begin immediate")
            self._database.execute(
                f"insert or replace into runs ({', '.join(columns)}) values ({marks})", list(columns.values())
            )
            if directory is not None and not record.error:
                row = (str(directory.absolute()), *record.key, json.dumps(_sizes(directory)))
                self._database.execute("insert or replace into files values (?, ?, ?, ?)", row)
            self._database.execute("commit")

    def has_files(self, record: RunRecord, directory: Path) -> bool:
        """Whether the directory holds the files of that run, all of them whole."""
        query = "select identity, replication, sizes from files where directory = ?"
        with self._explained():
            row = self._database.execute(query, (str(directory.absolute()),)).fetchone()
            return row is not None and row[:2] == record.key and json.loads(row[2]).items() <= _sizes(directory).items()

    def forget_files(self, directory: Path) -> None:
        """From now on the directory holds the files of no run: another is about to be written there."""
        with self._explained():
            self._database.execute("delete from files where directory = ?", (str(directory.absolute()),))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What SQLite and damaged JSON raise as one ``RunStoreError``."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                message = "another command writes to this directory (or use another --out)"
            else:
                message = f"{error}; finished runs are kept"
            raise RunStoreError(f"{self.path}: {message}") from error
        except (sqlite3.DatabaseError, ValueError, TypeError, KeyError) as error:
            advice = "delete or move this file and give the command again: its runs are made anew"
            raise RunStoreError(f"{self.path}: holds no runs that rlsim can read ({error}); {advice}") from error
        except OSError as error:
            raise RunStoreError(f"{self.path}: {error.strerror or error}") from error


def _sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir()} if directory.is_dir() else {}


def _columns(record: RunRecord) -> dict[str, Any]:
    """The record as a row of the table."""
    allotted, progress = record.allotted, record.progress
    trees: dict[str, Any] = {
        "measured": None if record.measured is None else asdict(record.measured),
        "latency": None if record.latency is None else asdict(record.latency),
        "progress": progress and {name: [str(column.dtype), column.tolist()] for name, column in progress.items()},
        "allotted": allotted
        and {name: np.asarray(getattr(allotted, name)).tolist() for name in ("samples", "tokens", "measured")},
    }
    nested = {name: None if tree is None else json.dumps(tree, separators=(",", ":")) for name, tree in trees.items()}
    return {name: getattr(record, name) for name in _PLAIN} | nested


def _record(row: Mapping[str, Any]) -> RunRecord:
    """The record of a row; equal to the one that was added."""
    plain: dict[str, Any] = {name: row[name] for name in _PLAIN}
    measured, latency, progress, allotted = (row[name] and json.loads(row[name]) for name in _NESTED)
    return RunRecord(
        **plain,
        measured=measured and _metrics(measured),
        latency=latency and Latency(**latency),
        progress=progress and _progress(progress),
        allotted=allotted
        and Allotted(
            np.array(allotted["samples"], np.int64), np.array(allotted["tokens"], np.int64), allotted["measured"]
        ),
    )


def _metrics(tree: dict[str, Any]) -> Metrics:
    pools = {name: PoolMetrics(**pool) for name, pool in tree["pools"].items()}
    return Metrics(**{**tree, "utilisation": Utilisation(**tree["utilisation"]), "pools": pools})


def _progress(tree: dict[str, Any]) -> Columns:
    return {name: np.array(values, dtype) for name, (dtype, values) in tree.items()}
