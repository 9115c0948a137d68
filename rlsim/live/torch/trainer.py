"""A real trainer in torch, in processes of its own so that the event loop of a run never waits for it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import TypeVar
from uuid import uuid4

from rlsim.core.commands import Train
from rlsim.core.errors import ParameterError, RlsimError
from rlsim.live.extras import need_live
from rlsim.live.protocols import Experience, Learnt, TrainerLostError, Weights
from rlsim.live.torch import worker
from rlsim.live.torch.grpo import effective_share
from rlsim.live.torch.recipe import RankResult, Recipe, TrainRequest

KEPT = 2
"""Publications that stay on disk: engines may still be reading the one before the last."""
T = TypeVar("T")


class TorchTrainer:
    """One process a rank; every rank gets every command and does its share."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._pools: list[ProcessPoolExecutor] = []
        self._pids: frozenset[int] = frozenset()
        self._streaming = False
        self._published: list[Path] = []

    @property
    def pids(self) -> frozenset[int]:
        """Ids of the processes that were started last."""
        return self._pids

    async def start(self) -> None:
        """Start the processes and load the model.

        Raises ``ParameterError`` without torch or the model's folder, ``TrainerLostError`` where a process dies.
        """
        need_live("torch", "transformers", "safetensors")
        recipe = self._recipe
        for key, folder in (("model", recipe.model), ("teacher.model", recipe.teacher)):
            if folder is not None and not (folder / "config.json").is_file():
                raise ParameterError(f"live.{key}", str(folder), "a folder with a config.json and weights")
        recipe.weights_folder.mkdir(parents=True, exist_ok=True)
        meeting_point = recipe.weights_folder.resolve() / f".ranks-{uuid4().hex}"
        spawn = multiprocessing.get_context("spawn")
        self._pools = [ProcessPoolExecutor(1, mp_context=spawn) for _ in range(recipe.processes)]
        self._pids = frozenset(await self._each(os.getpid, ()))
        try:
            await self._all(worker.begin, *((recipe, rank, meeting_point) for rank in range(recipe.processes)))
        finally:
            meeting_point.unlink(missing_ok=True)

    async def train(self, command: Train, batch: Sequence[Experience]) -> Learnt:
        """Train on a batch, or on the part of it that has come; phases are measured, on the slowest rank.

        ``overhead`` is the rest of the time that the call took: advantages, cutting, and the way to the process.
        """
        start = perf_counter()
        results = await self._each(worker.train, (self._request(command, tuple(batch)),))
        seconds = perf_counter() - start
        slowest = [(name, max(dict(one.phases)[name] for one in results)) for name, _ in results[0].phases]
        rest = max(0.0, seconds - sum(taken for _, taken in slowest))
        log_weights = [weight for one in results for weight in one.log_weights.values()]
        share = effective_share(log_weights) if len(log_weights) == len(batch) else None
        return Learnt([*slowest, ("overhead", rest)], share, _metrics(results, batch))

    async def publish(self, version: int) -> Weights:
        """Write the weights; whoever lists the folder sees whole files only, and the last two of them."""
        file = self._recipe.weights_folder / f"version-{version}.safetensors"
        await self._each(worker.save, (file,))
        self._published = [*(old for old in self._published if old != file), file]
        for old in self._published[:-KEPT]:
            old.unlink(missing_ok=True)
        self._published = self._published[-KEPT:]
        return Weights(version, file)

    async def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability of every token but the first of each sequence, by the trainer's own weights."""
        return (await self._each(worker.log_probs, (sequences,)))[0]

    async def close(self) -> None:
        """End the processes, whatever they are doing; published files stay."""
        self._kill()

    def _request(self, command: Train, batch: tuple[Experience, ...]) -> TrainRequest:
        """Request as in the simulated trainer: the updates asked for, those of a whole step, or one after all parts."""
        recipe = self._recipe
        if command.updates is not None:
            return TrainRequest(batch, command.updates, recipe.epochs)
        if command.last and not self._streaming:
            return TrainRequest(batch, recipe.updates_per_step, recipe.epochs)
        self._streaming = not command.last
        return TrainRequest(batch, step=command.last)

    async def _each(self, work: Callable[..., T], arguments: tuple[object, ...]) -> list[T]:
        """One call with the same arguments on every rank."""
        return await self._all(work, *(arguments for _ in range(self._recipe.processes)))

    async def _all(self, work: Callable[..., T], *arguments: tuple[object, ...]) -> list[T]:
        """One call a rank. When a rank is lost the others would wait for it: all are ended."""
        if not self._pools:
            raise TrainerLostError("the trainer has ended, or has not been started")
        loop = asyncio.get_running_loop()
        try:
            calls = zip(self._pools, arguments, strict=True)
            return await asyncio.gather(*(loop.run_in_executor(pool, work, *values) for pool, values in calls))
        except RlsimError:
            raise
        except BrokenProcessPool as error:
            self._kill()
            raise TrainerLostError(f"a process of the trainer died: {error}") from error
        except Exception as error:
            self._kill()
            raise TrainerLostError(f"the trainer failed: {type(error).__name__}: {error}") from error

    def _kill(self) -> None:
        for child in multiprocessing.active_children():
            if child.pid in self._pids:
                with suppress(OSError):
                    child.kill()
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)
        self._pools = []


def _metrics(results: Sequence[RankResult], batch: Sequence[Experience]) -> dict[str, float]:
    """Means over tokens of all passes, or over samples."""
    tokens = max(1.0, sum(one.sums.get("tokens", 0.0) for one in results))
    names = [name for name in _BY_TOKEN if any(name in one.sums for one in results)]
    shares = {name: sum(one.sums.get(name, 0.0) for one in results) / tokens for name in names}
    norms = results[0].gradient_norms
    return {
        **{_BY_TOKEN[name]: share for name, share in shares.items()},
        "reward_mean": sum(sample.reward for sample in batch) / len(batch),
        "response_tokens_mean": sum(len(sample.response) for sample in batch) / len(batch),
        "updates": float(len(norms)),
        **({"gradient_norm": sum(norms) / len(norms)} if norms else {}),
    }


_BY_TOKEN = {
    "loss": "loss",
    "clips": "clipped_share",
    "capped": "truncated_share",
    "divergence": "kl",
    "teacher": "teacher_kl",
}
