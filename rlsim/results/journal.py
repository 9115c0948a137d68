"""Decisions on disk as they are taken, so that a run that breaks off can be replayed as far as it came.

A reserve of disk space is kept beside the journal: when the disk is full it is given up, so that the run can stop in
good order and everything it knows is written.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

from rlsim.core.errors import RlsimError
from rlsim.core.log import Decision
from rlsim.results.record import to_json

RESERVE_BYTES = 16 * 2**20


class JournalError(RlsimError, OSError):
    """The journal cannot be written any more; what it holds is whole lines."""


class FileJournal:
    """One JSON value a line, each written before its commands are carried out."""

    def __init__(self, path: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._path, self._reserve = path, path.with_name(".reserve")
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
        self._full = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._reserve, "wb") as reserve:
                os.posix_fallocate(reserve.fileno(), 0, reserve_bytes)
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}") from error

    def note(self, decision: Decision) -> None:
        """Write one; the first that finds the disk full is still written, from the reserve, and stops the run."""
        line = (self._encode(to_json(decision)) + "\n").encode()
        at = self._file.tell()
        try:
            self._write(line)
        except OSError as error:
            if self._full or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise JournalError(f"{self._path}: {error.strerror}") from error
            self._full = True
            self.release()
            self._file.seek(at)
            self._file.truncate(at)
            self._write(line)
            raise JournalError(f"{self._path}: {error.strerror}; the run has stopped, its log is whole") from error

    def _write(self, line: bytes) -> None:
        written = 0
        while written < len(line):
            written += self._file.write(line[written:])

    def release(self) -> None:
        """Give the reserve to whatever is still to be written."""
        self._reserve.unlink(missing_ok=True)

    def close(self) -> None:
        """The run is over."""
        self.release()
        self._file.close()


class NoJournal:
    """For runs that nobody keeps."""

    def note(self, decision: Decision) -> None:
        """Forget it."""
