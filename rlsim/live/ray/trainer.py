"""A trainer in an actor: batches go there, published files stay on its node until an engine elsewhere needs one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlsim.core.commands import Train
from rlsim.live.protocols import Experience, Learnt, TrainerLostError, Weights
from rlsim.live.ray.actor import Actor, ActorGoneError, Hire
from rlsim.live.ray.files import FileTransfer
from rlsim.live.ray.host import Location, TrainerHost, remove
from rlsim.live.site import TrainerSpec

CLOSE_SECONDS = 30.0
"""Time for an actor to stop its trainer."""


class RayTrainer:
    """The trainer; ``hire`` makes its actor, ``work`` is the run's folder where it is driven."""

    def __init__(self, spec: TrainerSpec, work: Path, hire: Hire, transfer: FileTransfer) -> None:
        self._spec, self._work, self._hire, self._transfer = spec, work, hire, transfer
        self._actor: Actor | None = None
        self.location: Location | None = None
        """Where it is, once it has started."""

    async def start(self) -> None:
        """Hire the actor, bring the model where it was made for the run, start the trainer."""
        self._actor = self._hire(TrainerHost, self._spec, self._transfer.porter)
        self.location = await self._ask("location")
        await self._ask("start", await self._transfer.model(self._spec.model, self._work, self.location.node))

    async def _ask(self, method: str, *arguments: Any) -> Any:
        if self._actor is None:
            raise TrainerLostError("the trainer has ended, or has not been started")
        try:
            return await self._actor.ask(method, *arguments)
        except ActorGoneError as error:
            raise TrainerLostError(f"the actor of the trainer is gone: {error}") from error

    async def train(self, command: Train, batch: Sequence[Experience]) -> Learnt:
        learnt: Learnt = await self._ask("train", command, list(batch))
        return learnt

    async def publish(self, version: int) -> Weights:
        """As the trainer's; the file is on the trainer's node."""
        weights: Weights = await self._ask("publish", version)
        if weights.file is not None and self.location is not None:
            self._transfer.lies(weights.file, self.location.node, lambda file: self._ask("pack", file))
        return weights

    async def close(self) -> None:
        """Stop the trainer and end the actor."""
        actor, self._actor = self._actor, None
        if actor is None:
            return
        with contextlib.suppress(ActorGoneError, TimeoutError):
            await asyncio.wait_for(actor.ask("close"), CLOSE_SECONDS)
        actor.end()
        if self.location is not None:
            with contextlib.suppress(ActorGoneError, TimeoutError):
                await asyncio.wait_for(actor.after(remove, self.location.folder), CLOSE_SECONDS)
