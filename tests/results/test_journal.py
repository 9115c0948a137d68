"""Decisions on disk as they are taken: whole lines, whatever the disk does."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlsim.core.commands import Abort
from rlsim.core.events import Started, Woke
from rlsim.core.log import Decision
from rlsim.results.replay.decisions import FileJournal, JournalError, RecordError
from rlsim.results.store import load_decisions


def decision(number: int, samples: int = 50) -> Decision:
    return Decision(number, Woke(number), (Abort(tuple(range(number, number + samples))),))


class Disk:
    """Holds so many bytes; a write that does not fit is cut short, and the next one refused."""

    def __init__(self, room_bytes: int, error: int = errno.ENOSPC) -> None:
        self.room_bytes, self.error = room_bytes, error

    def write(self, real: Callable[[bytes], int], line: bytes) -> int:
        if not self.room_bytes:
            raise OSError(self.error, os.strerror(self.error))
        written = real(line[: self.room_bytes])
        self.room_bytes -= written
        return written


class OnDisk:
    """A file on such a disk."""

    def __init__(self, file: object, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def write(self, line: bytes) -> int:
        return self._disk.write(self._file.write, line)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def on(disk: Disk, path: Path) -> FileJournal:
    """A journal on a disk; giving up the reserve gives a kilobyte back."""
    journal = FileJournal(path, 4096)
    journal._file = OnDisk(journal._file, disk)  # type: ignore[assignment]
    release = journal.release

    def released() -> None:
        if journal._reserve is not None:
            disk.room_bytes += 1024
        release()

    journal.release = released  # type: ignore[method-assign]
    return journal


def noted(journal: FileJournal) -> int:
    """Notes until it is refused; how many were taken, the refused one not counted."""
    for number in range(10_000):
        try:
            journal.note(decision(number))
        except JournalError:
            return number
    raise AssertionError("never refused")


@pytest.mark.parametrize("room_bytes", range(3000, 3400, 25))
def test_a_full_disk_stops_the_run_after_a_whole_line_from_the_reserve(tmp_path: Path, room_bytes: int) -> None:
    path = tmp_path / "decisions.jsonl"
    refused = noted(on(Disk(room_bytes), path))
    assert load_decisions(path) == [decision(number) for number in range(refused + 1)]
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("error", [errno.EIO, errno.EFBIG])
def test_another_fault_of_the_disk_leaves_whole_lines(tmp_path: Path, error: int) -> None:
    path = tmp_path / "decisions.jsonl"
    journal = on(Disk(3210, error), path)
    refused = noted(journal)
    assert load_decisions(path) == [decision(number) for number in range(refused)]
    assert path.read_bytes().endswith(b"\n")
    assert journal._reserve is not None
    journal.close()


def test_a_line_larger_than_the_reserve_is_not_half_written(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    journal = on(Disk(10), path)
    with pytest.raises(JournalError, match=r"the run has stopped$"):
        journal.note(decision(0, samples=5000))
    assert path.read_bytes() == b""


def test_the_reserve_has_no_name_and_holds_its_space(tmp_path: Path) -> None:
    before = os.statvfs(tmp_path).f_bavail
    journal = FileJournal(tmp_path / "decisions.jsonl", 1 << 20)
    assert [path.name for path in tmp_path.iterdir()] == ["decisions.jsonl"]
    assert journal._reserve is not None
    assert os.fstat(journal._reserve.fileno()).st_blocks * 512 >= 1 << 20
    assert os.fstat(journal._reserve.fileno()).st_nlink == 0
    journal.close()
    assert before  # the file system answered at all


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte, where this process may mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("may not mount a file system here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="tmpfs is of Linux")
def test_a_real_full_disk(small_disk: Path) -> None:
    path = small_disk / "decisions.jsonl"
    journal = FileJournal(path, 100_000)
    refused = noted(journal)
    journal.close()
    assert load_decisions(path) == [decision(number) for number in range(refused + 1)]
    (small_disk / "facts").write_bytes(bytes(50_000))


# -- broken off ---------------------------------------------------------------------------------------


def test_a_last_line_that_was_cut_is_left_out_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    journal = FileJournal(path, 4096)
    journal.note(Decision(0, Started(), ()))
    whole = path.stat().st_size
    journal.note(decision(7, samples=3))
    journal.close()
    text = path.read_bytes()
    for size in range(whole, len(text) - 1):
        path.write_bytes(text[:size])
        assert load_decisions(path) == [Decision(0, Started(), ())]
    path.write_bytes(text[:-1])
    assert len(load_decisions(path)) == 2


def test_a_line_that_was_cut_before_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_text('{"now": 1\n{"now":0,"event":{"type":"Started"},"commands":[]}\n')
    with pytest.raises(RecordError, match=r"decisions.jsonl:1: not a line of JSON"):
        load_decisions(path)
