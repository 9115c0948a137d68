"""Standard output whose reader may leave early (``rlsim ... | head``): what it no longer reads is no fault."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


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
