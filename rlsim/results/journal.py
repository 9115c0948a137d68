"""Decisions on disk as they are taken, so that a run that breaks off can be replayed as far as it came.

A reserve of disk space is kept beside the journal: when the disk is full it is given up, so that the run can stop in
good order and everything it knows is written.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rlsim.core.errors import RlsimError
from rlsim.core.log import Decision
from rlsim.results.record import to_json

RESERVE_BYTES = 16 * 2**20


class JournalError(RlsimError, OSError):
    """The journal cannot be written any more; what it holds is whole lines."""


class FileJournal:
    """One JSON value a line, each written before its commands are carried out.

    Lines reach the operating system at once: they outlive the process, not a power cut.
    """

    def __init__(self, path: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._path = path
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._reserve: BinaryIO | None = _reserved(path.with_name(".reserve"), reserve_bytes)
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}") from error

    def note(self, decision: Decision) -> None:
        """Write one; the first that finds the disk full is still written, from the reserve, and stops the run.

        ``JournalError`` then, and for every line that cannot be kept; what is in the file stays whole lines.
        """
        line = (self._encode(to_json(decision)) + "\n").encode()
        at = self._file.tell()
        full = self._refused(line, at)
        if full is not None and self._reserve is not None and full.errno in (errno.ENOSPC, errno.EDQUOT):
            self.release()
            kept = self._refused(line, at) is None
            said = "the run has stopped, its log is whole" if kept else "the run has stopped"
            raise JournalError(f"{self._path}: {full.strerror}; {said}") from full
        if full is not None:
            raise JournalError(f"{self._path}: {full.strerror}; the run has stopped") from full

    def _refused(self, line: bytes, at: int) -> OSError | None:
        """Write a line at a place, in full or not at all; why not."""
        try:
            self._write(line)
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(at)
                self._file.seek(at)
            return error
        return None

    def _write(self, line: bytes) -> None:
        written = 0
        while written < len(line):
            written += self._file.write(line[written:])

    def release(self) -> None:
        """Give the reserve to whatever is still to be written."""
        if self._reserve is not None:
            self._reserve.close()
            self._reserve = None

    def close(self) -> None:
        """The run is over."""
        self.release()
        self._file.close()


def _reserved(path: Path, size_bytes: int) -> BinaryIO:
    """Disk space that is free again when the file is closed, however the process ends: it has no name."""
    reserve = open(path, "wb")  # noqa: SIM115
    try:
        os.posix_fallocate(reserve.fileno(), 0, size_bytes)
    except OSError:
        reserve.close()
        raise
    finally:
        path.unlink()
    return reserve


class NoJournal:
    """For runs that nobody keeps."""

    def note(self, decision: Decision) -> None:
        """Forget it."""
