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
        """Of one piece."""
        return self.size_bytes // self.tensors

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
"""Does one end's part for a parcel; the sender's returns when the receiver has all of it."""


@contextmanager
def open_path(
    path: str, most_bytes: int, folder: Path, device: str = "cpu"
) -> Iterator[Callable[[WeightPayload], float]]:
    """A path with a receiver in a process of its own: call it with a parcel for its seconds."""
    segment = SharedMemory(create=True, size=most_bytes)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".rlsim-weights-") as files:
        way = PathSetup(path, most_bytes, files, segment.name, free_port(), device)
        receiver = context.Process(target=_receive, args=(way, there), daemon=True)
        receiver.start()
        try:
            there.close()
            send = _sender(way, here)
            yield lambda parcel: _timed(send, here, parcel)
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


def _timed(send: End, connection: Connection, parcel: WeightPayload) -> float:
    connection.send(parcel)
    connection.recv()
    start = time.perf_counter()
    send(parcel)
    return time.perf_counter() - start


def _receive(way: PathSetup, connection: Connection) -> None:
    """The receiver's process: be ready for a parcel, take it, until told that there are no more."""
    take = _taker(way, connection)
    while (parcel := connection.recv()) is not None:
        connection.send("ready")
        take(parcel)
    _leave()


def _sender(way: PathSetup, connection: Connection) -> End:
    if way.path == "broadcast":
        return _broadcaster(way, rank=0)
    source = np.random.default_rng(0).integers(0, 255, way.most_bytes, dtype=np.uint8)
    put = _into_memory(way, source) if way.path == "shared-memory" else _into_files(way, source)

    def send(parcel: WeightPayload) -> None:
        for piece in range(parcel.tensors):
            put(parcel, piece)
            connection.send(piece)
        connection.recv()

    return send


def _taker(way: PathSetup, connection: Connection) -> End:
    if way.path == "broadcast":
        return _broadcaster(way, rank=1)
    target = np.ones(way.most_bytes, dtype=np.uint8)
    get = _out_of_memory(way, target) if way.path == "shared-memory" else _out_of_files(way, target)

    def take(parcel: WeightPayload) -> None:
        for _ in range(parcel.tensors):
            get(parcel, connection.recv())
        connection.send("done")

    return take


def _into_memory(way: PathSetup, source: Any) -> Callable[[WeightPayload, int], None]:
    segment = SharedMemory(way.memory)

    def put(parcel: WeightPayload, piece: int) -> None:
        part = _part(parcel, piece)
        shared: Any = segment.buf
        shared[part] = source[part].data

    return put


def _out_of_memory(way: PathSetup, target: Any) -> Callable[[WeightPayload, int], None]:
    segment = SharedMemory(way.memory)

    def get(parcel: WeightPayload, piece: int) -> None:
        part = _part(parcel, piece)
        shared: Any = segment.buf
        target[part].data[:] = shared[part]

    return get


def _into_files(way: PathSetup, source: Any) -> Callable[[WeightPayload, int], None]:
    """Written and flushed to the device; without the page cache the reader must fetch them from it."""

    def put(parcel: WeightPayload, piece: int) -> None:
        with Path(way.folder, str(piece)).open("wb", buffering=0) as file:
            file.write(source[_part(parcel, piece)].data)
            os.fsync(file.fileno())
            if way.path == "filesystem-uncached":
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    return put


def _out_of_files(way: PathSetup, target: Any) -> Callable[[WeightPayload, int], None]:
    def get(parcel: WeightPayload, piece: int) -> None:
        with Path(way.folder, str(piece)).open("rb", buffering=0) as file:
            view = target[_part(parcel, piece)].data
            while (read := file.readinto(view)) and read < len(view):
                view = view[read:]

    return get


def _part(parcel: WeightPayload, piece: int) -> slice:
    return slice(piece * parcel.piece_bytes, (piece + 1) * parcel.piece_bytes)


def _broadcaster(way: PathSetup, rank: int) -> End:
    """Either end of a broadcast: the pieces, then a word back that they are there."""
    torch, distributed = require("torch", "calibrate"), join(way.device, rank, 2, way.port)
    place = torch.device("cuda", rank) if way.device == "cuda" else torch.device("cpu")
    whole = torch.ones(way.most_bytes, dtype=torch.uint8, device=place)
    word = torch.zeros(1, device=place)

    def both(parcel: WeightPayload) -> None:
        for piece in range(parcel.tensors):
            distributed.broadcast(whole[_part(parcel, piece)], src=0)
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
