"""Functions that run in a process of the trainer: one rank, built once and called many times."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.live.child_processes import end_with_parent
from rlsim.live.extras import require_live
from rlsim.live.torch.recipe import RankResult, Recipe, TrainRequest

if TYPE_CHECKING:
    from rlsim.live.torch.rank import Rank

PATIENCE = timedelta(minutes=10)
"""How long a rank waits for the others before it gives up."""


@dataclass(slots=True)
class _Own:
    """State of this process."""

    rank: Rank | None = None
    number: int = 0


_OWN = _Own()


def begin(recipe: Recipe, number: int, meeting_point: Path) -> None:
    """Pin the process, meet the other ranks, load the model."""
    end_with_parent()
    if recipe.cores:
        os.sched_setaffinity(0, {recipe.cores[number % len(recipe.cores)]})
    os.environ["OMP_NUM_THREADS"] = str(recipe.threads)
    os.environ["HF_HUB_OFFLINE"] = "1"
    require_live("torch").set_num_threads(recipe.threads)
    if recipe.processes > 1:
        # Meet the other ranks over loopback: NCCL on GPUs, gloo on a CPU.
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
        torch = require_live("torch")
        if recipe.device == "cuda":
            torch.cuda.set_device(number)
        torch.distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if recipe.device == "cuda" else "gloo",
            init_method=meeting_point.as_uri(),
            rank=number,
            world_size=recipe.processes,
            timeout=PATIENCE,
        )
    from rlsim.live.torch.rank import Rank

    _OWN.rank, _OWN.number = Rank(recipe, number), number
    _OWN.rank.warm_up()


def train(request: TrainRequest) -> RankResult:
    """Train on the rank's share of a batch."""
    return _rank().train(request)


def save(file: Path) -> None:
    """Publish the weights as a file; every rank takes part."""
    _rank().network.save(file, _OWN.number)


def log_probs(sequences: Sequence[Sequence[int]]) -> list[list[float]]:
    """Log-probability of every token but the first of each sequence."""
    return _rank().log_probs(sequences)


def _rank() -> Rank:
    assert _OWN.rank is not None, "begin comes first"
    return _OWN.rank
