"""Transfer of files that engines need to their own node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlsim.live.ray.actor import Porter

Pack = Callable[[Path], Awaitable[Any]]
KEPT = 2
"""Origins of published files that are remembered: as many as a trainer keeps."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A file on its way to a node."""

    path: Path
    """Path on the node it comes from."""
    packed: Any = None
    """Handle by which its bytes are fetched; None: it lies on the node that gets it."""


@dataclass(slots=True)
class _Origin:
    node: str
    pack: Pack
    packed: asyncio.Future[Any] | None = None


@dataclass(slots=True)
class FileTransfer:
    """Kept where the run is driven; a file of another node is packed there, once, when an engine elsewhere needs it."""

    porter: Porter
    _origins: dict[Path, _Origin] = field(default_factory=dict)
    _own: dict[Path, Any] = field(default_factory=dict)

    def lies(self, file: Path, node: str, pack: Pack) -> None:
        """A published file lies on a node; the oldest ones are forgotten."""
        self._origins[file] = _Origin(node, pack)
        for old in list(self._origins)[:-KEPT]:
            del self._origins[old]

    async def payload(self, file: Path, node: str) -> Payload:
        """A file for a node: a published one, or one of the node where the run is driven."""
        origin = self._origins.get(file)
        if node == (self.porter.node() if origin is None else origin.node):
            return Payload(file)
        if origin is None:
            if file not in self._own:
                self._own[file] = self.porter.pack(file)
            return Payload(file, self._own[file])
        if origin.packed is None:
            origin.packed = asyncio.ensure_future(origin.pack(file))
        return Payload(file, await asyncio.shield(origin.packed))

    async def model(self, folder: Path, work: Path, node: str) -> tuple[Payload, ...]:
        """A model's files, if they were made for the run (below ``work``); others must lie on the node already."""
        if not folder.is_relative_to(work):
            return ()
        return tuple([await self.payload(file, node) for file in sorted(folder.iterdir()) if file.is_file()])


async def unpack(porter: Porter, payload: Payload, folder: Path) -> Path:
    """Path of the file on this node; what comes from another one is written to ``folder``."""
    if payload.packed is None:
        return payload.path
    here = folder / payload.path.name
    folder.mkdir(parents=True, exist_ok=True)
    data = await porter.fetch(payload.packed)
    await asyncio.to_thread(here.write_bytes, data)
    return here


async def unpack_model(porter: Porter, folder: Path, payloads: tuple[Payload, ...], work: Path) -> Path:
    """Folder of the model on this node."""
    for payload in payloads:
        folder = (await unpack(porter, payload, work)).parent
    return folder
