"""Data-parallel ranks under FSDP, one process each, on this machine: the first leads and times, the others follow."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from calibration.measure.host import require
from calibration.trainer.bench import TrainerBench, TrainerRecipe
from calibration.trainer.points import TrainerPoint

PATIENCE = timedelta(minutes=10)
"""How long a rank waits for the others before it gives up: a step of a large model, and no more."""


class RankGroup:
    """All ranks as one trainer: a point is done when the slowest rank has done it."""

    def __init__(self, recipe: TrainerRecipe) -> None:
        self._ranks = recipe.ranks
        self._trainer = TrainerBench(recipe)
        self._trainer.prepare()

    @property
    def trainer(self) -> TrainerBench:
        """Trainer of the leading rank."""
        return self._trainer

    def run(self, point: TrainerPoint) -> float:
        """Seconds of the point on the slowest rank."""
        self._say(point)
        return self._trainer.run(point)

    def dismiss(self) -> None:
        """Let the followers end."""
        self._say(None)

    def _say(self, point: TrainerPoint | None) -> None:
        if self._ranks > 1:
            require("torch", "calibrate").distributed.broadcast_object_list([point], src=0)


@contextmanager
def trainer_group(recipe: TrainerRecipe) -> Iterator[RankGroup]:
    """The ranks of a recipe, ended when the block is left; one rank is this process alone."""
    if recipe.ranks == 1:
        yield RankGroup(recipe)
        return
    torch, port = require("torch", "calibrate"), free_port()
    context = torch.multiprocessing.get_context("spawn")
    followers = [context.Process(target=_follow, args=(recipe, r, port), daemon=True) for r in range(1, recipe.ranks)]
    for follower in followers:
        follower.start()
    try:
        join(recipe.device, 0, recipe.ranks, port)
        group = RankGroup(recipe)
        yield group
        group.dismiss()
        leave(torch.distributed)
        for follower in followers:
            follower.join()
    finally:
        for follower in followers:
            follower.terminate()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def join(device: str, rank: int, ranks: int, port: int) -> Any:
    """Enter the group on loopback: NCCL on GPUs, gloo on a CPU; gives ``torch.distributed``."""
    torch = require("torch", "calibrate")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if device == "cuda":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=ranks,
        timeout=PATIENCE,
    )
    return torch.distributed


def leave(distributed: Any) -> None:
    """Wait for the others and end the membership: one that leaves early breaks the connections of the rest."""
    distributed.barrier()
    distributed.destroy_process_group()


def free_port() -> int:
    """A loopback port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _follow(recipe: TrainerRecipe, rank: int, port: int) -> None:
    distributed = join(recipe.device, rank, recipe.ranks, port)
    trainer = TrainerBench(recipe, rank)
    trainer.prepare()
    said: list[TrainerPoint | None] = [None]
    while True:
        distributed.broadcast_object_list(said, src=0)
        if said[0] is None:
            leave(distributed)
            return
        trainer.run(said[0])
