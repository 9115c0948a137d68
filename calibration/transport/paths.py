"""Ways of bringing weights from one process to another on this machine, timed until the receiver has them.

Shared memory and files carry bytes; broadcasts carry torch tensors (NCCL between two GPUs, gloo between two processes
without). All of it stays on loopback: it says what the software and this machine's memory cost, not a network.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from calibration.measure.host import require
from calibration.trainer.ranks import free_port, join

PATHS = ("shared-memory", "filesystem", "filesystem-uncached", "broadcast")


@dataclass(frozen=True, slots=True)
class WeightPayload:
    """Weights of ``size_bytes`` in ``tensors`` equal pieces that are sent one by one."""

    size_bytes: int
    tensors: int = 1

    @property
    def piece_bytes(self) -> int:
        """Bytes of one piece."""
        return self.size_bytes // self.tensors

    def part(self, piece: int) -> slice:
        """Bytes of the whole that the piece is."""
        return slice(piece * self.piece_bytes, (piece + 1) * self.piece_bytes)

    def __str__(self) -> str:
        return f"{self.size_bytes / 1e6:.1f} MB in {self.tensors} tensors"


@dataclass(frozen=True, slots=True)
class PathSetup:
    """What both ends are told of a path."""

    path: str
    most_bytes: int
    folder: str
    """Where files go."""
    memory: str
    """Name of the shared segment."""
    port: int
    device: str


End = Callable[[WeightPayload], None]
"""Does one end's part for a payload; the sender's returns when the receiver has all of it."""


@contextmanager
def open_path(
    path: str, most_bytes: int, folder: Path, device: str = "cpu"
) -> Iterator[Callable[[WeightPayload], float]]:
    """A path with a receiver in a process of its own: call it with a payload for its seconds."""
    segment = SharedMemory(create=True, size=most_bytes)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".rlsim-weights-") as files:
        setup = PathSetup(path, most_bytes, files, segment.name, free_port(), device)
        receiver = context.Process(target=_receive, args=(setup, there), daemon=True)
        receiver.start()
        try:
            there.close()
            send = _end(setup, here, sends=True)
            yield lambda payload: _timed(send, here, payload)
            here.send(None)
            receiver.join()
        finally:
            receiver.terminate()
            segment.close()
            segment.unlink()
            _leave()


def transport_name(path: str, device: str) -> str:
    """As the profile calls it: a broadcast by its library."""
    return path if path != "broadcast" else f"{'nccl' if device == 'cuda' else 'gloo'}-broadcast"


def _timed(send: End, connection: Connection, payload: WeightPayload) -> float:
    connection.send(payload)
    connection.recv()
    start = time.perf_counter()
    send(payload)
    return time.perf_counter() - start


def _receive(setup: PathSetup, connection: Connection) -> None:
    """The receiver's process: be ready for a payload, take it, until told that there are no more."""
    take = _end(setup, connection, sends=False)
    while (payload := connection.recv()) is not None:
        connection.send("ready")
        take(payload)
    _leave()


def _end(setup: PathSetup, connection: Connection, sends: bool) -> End:
    """The sender's end of a path, or the receiver's; they tell each other which piece is there."""
    if setup.path == "broadcast":
        return _broadcaster(setup, rank=0 if sends else 1)
    data: Any = np.ones(setup.most_bytes, dtype=np.uint8)
    if sends:
        data = np.random.default_rng(0).integers(0, 255, setup.most_bytes, dtype=np.uint8)
    copy = _memory_copy(setup, data, sends) if setup.path == "shared-memory" else _file_copy(setup, data, sends)

    def send(payload: WeightPayload) -> None:
        for piece in range(payload.tensors):
            copy(payload, piece)
            connection.send(piece)
        connection.recv()

    def take(payload: WeightPayload) -> None:
        for _ in range(payload.tensors):
            copy(payload, connection.recv())
        connection.send("done")

    return send if sends else take


def _memory_copy(setup: PathSetup, data: Any, sends: bool) -> Callable[[WeightPayload, int], None]:
    """Copies a piece of ``data`` into the shared segment, or out of it."""
    segment = SharedMemory(setup.memory)

    def copy(payload: WeightPayload, piece: int) -> None:
        part = payload.part(piece)
        shared: Any = segment.buf
        if sends:
            shared[part] = data[part].data
        else:
            data[part].data[:] = shared[part]

    return copy


def _file_copy(setup: PathSetup, data: Any, sends: bool) -> Callable[[WeightPayload, int], None]:
    """Writes a piece of ``data`` to its file and flushes it to the device, or reads it.

    Without the page cache the reader must fetch it from the device.
    """

    def write(payload: WeightPayload, piece: int) -> None:
        with Path(setup.folder, str(piece)).open("wb", buffering=0) as file:
            file.write(data[payload.part(piece)].data)
            os.fsync(file.fileno())
            if setup.path == "filesystem-uncached":
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def load(payload: WeightPayload, piece: int) -> None:
        with Path(setup.folder, str(piece)).open("rb", buffering=0) as file:
            view = data[payload.part(piece)].data
            while (count := file.readinto(view)) and count < len(view):
                view = view[count:]

    return write if sends else load


def _broadcaster(setup: PathSetup, rank: int) -> End:
    """Either end of a broadcast: the pieces, then a word back that they are there."""
    torch, distributed = require("torch", "calibrate"), join(setup.device, rank, 2, setup.port)
    place = torch.device("cuda", rank) if setup.device == "cuda" else torch.device("cpu")
    whole = torch.ones(setup.most_bytes, dtype=torch.uint8, device=place)
    word = torch.zeros(1, device=place)

    def both(payload: WeightPayload) -> None:
        for piece in range(payload.tensors):
            distributed.broadcast(whole[payload.part(piece)], src=0)
        distributed.broadcast(word, src=1)
        word.item()

    return both


def _leave() -> None:
    """End this process's membership in a broadcast's group."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def available() -> tuple[str, ...]:
    """Paths that can be measured here: broadcasts need torch."""
    return PATHS if find_spec("torch") else PATHS[:-1]
