"""One command in a process of its own, with limits of time and memory, and how it ended."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from evidence.fuzz.server import URL, serve

MEMORY_BYTES = 1 << 30
"""Resident, beyond which a process is a fault."""
ADDRESS_BYTES = 8 << 30
"""Of address space, at which allocation fails: threads and mapped libraries take some that is never resident."""
PRINTED_BYTES = 1 << 20
"""Kept of what a command prints."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How one command ended."""

    code: int
    """Exit code; negative: the signal that ended the process."""
    stdout: str
    stderr: str
    seconds: float
    peak_bytes: int


def run_alone(folder: Path, command: Sequence[str], seconds: float = 10.0) -> Trial:
    """Run ``rlsim`` with a command's words in a folder, by a fork of this process, for at most ``seconds``."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        begun = time.monotonic()
        child = os.fork()
        if child == 0:
            _limit(seconds, out.fileno(), errors.fileno())
            _end(lambda: _command(folder, command))
        _, status, usage = os.wait4(child, 0)
        took = time.monotonic() - begun
        texts = []
        for stream in (out, errors):
            stream.seek(0)
            texts.append(stream.read(PRINTED_BYTES).decode(errors="replace"))
        return Trial(os.waitstatus_to_exitcode(status), texts[0], texts[1], took, usage.ru_maxrss * 1024)


def import_what_it_imports(folder: Path, command: Sequence[str]) -> None:
    """Import here what a command imports, so that its forks need not."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _limit(60.0, os.open(os.devnull, os.O_WRONLY), os.open(os.devnull, os.O_WRONLY))
        _end(lambda: _command(folder, command), lambda: os.write(writer, "\n".join(sys.modules).encode()))
    os.close(writer)
    with os.fdopen(reader) as lines:
        names = lines.read().split()
    os.waitpid(child, 0)
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _limit(seconds: float, out: int, errors: int) -> None:
    for descriptor, place in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (errors, 2)):
        os.dup2(descriptor, place)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    os.environ.update(COLUMNS="200", NO_COLOR="1", TERM="dumb", MPLBACKEND="agg")


def _end(work: Callable[[], int], last: Callable[[], object] = lambda: None) -> NoReturn:
    """End this process with the code that ``work`` gives; 70 where even printing what went wrong fails."""
    code = 70
    try:
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
        last()
    finally:
        os._exit(code)


def _command(folder: Path, words: Sequence[str]) -> int:
    from rlsim.cli.main import main

    os.chdir(folder)
    sys.argv = ["rlsim", *(serve(folder) if word == URL else word for word in words)]
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
