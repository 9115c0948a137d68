"""Files that engines need on their own node: where they lie, and how they get there."""

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
class Parcel:
    """A file on its way to a node."""

    path: Path
    """On the node it comes from."""
    packed: Any = None
    """What its bytes are fetched by; None: it lies on the node that gets it."""


@dataclass(slots=True)
class _Origin:
    node: str
    pack: Pack
    packed: asyncio.Future[Any] | None = None


@dataclass(slots=True)
class Freight:
    """Kept where the run is driven; a file of another node is packed there, once, when an engine elsewhere needs it."""

    porter: Porter
    _origins: dict[Path, _Origin] = field(default_factory=dict)
    _own: dict[Path, Any] = field(default_factory=dict)

    def lies(self, file: Path, node: str, pack: Pack) -> None:
        """A published file lies on a node; the oldest ones are forgotten."""
        self._origins[file] = _Origin(node, pack)
        for old in list(self._origins)[:-KEPT]:
            del self._origins[old]

    async def parcel(self, file: Path, node: str) -> Parcel:
        """A file for a node."""
        origin = self._origins.get(file)
        if origin is None:
            return self._of_own(file, node)
        if origin.node == node:
            return Parcel(file)
        if origin.packed is None:
            origin.packed = asyncio.ensure_future(origin.pack(file))
        return Parcel(file, await asyncio.shield(origin.packed))

    def _of_own(self, file: Path, node: str) -> Parcel:
        if self.porter.node() == node:
            return Parcel(file)
        if file not in self._own:
            self._own[file] = self.porter.pack(file)
        return Parcel(file, self._own[file])

    async def model(self, folder: Path, work: Path, node: str) -> tuple[Parcel, ...]:
        """A model's files, if they were made for the run (below ``work``); others must lie on the node already."""
        if not folder.is_relative_to(work):
            return ()
        return tuple([await self.parcel(file, node) for file in sorted(folder.iterdir()) if file.is_file()])


async def unpack(porter: Porter, parcel: Parcel, folder: Path) -> Path:
    """Where the file is on this node; what comes from another one is written to ``folder``."""
    if parcel.packed is None:
        return parcel.path
    here = folder / parcel.path.name
    folder.mkdir(parents=True, exist_ok=True)
    data = await porter.fetch(parcel.packed)
    await asyncio.to_thread(here.write_bytes, data)
    return here


async def unpack_model(porter: Porter, folder: Path, parcels: tuple[Parcel, ...], work: Path) -> Path:
    """Where the model is on this node."""
    for parcel in parcels:
        folder = (await unpack(porter, parcel, work)).parent
    return folder
