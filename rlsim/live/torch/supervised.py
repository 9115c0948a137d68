"""Supervised steps on the answers of a task: random weights become a checkpoint that succeeds at times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rlsim.live.extras import require_live
from rlsim.live.tasks.verifiable import Verifiable
from rlsim.live.torch.batches import TrainingSample
from rlsim.live.torch.model import Network
from rlsim.live.torch.recipe import Recipe

BATCH = 64
"""Prompts of a step."""
LEARNING_RATE = 1e-3
MOST_GRADIENT_NORM = 1.0


def supervise(model: Path, task: Verifiable, steps: int) -> None:
    """Train the weights in folder ``model`` on questions of the task and their answers, and write them back.

    The same folder, task and steps give the same weights, whatever the task's seed: they are older than a run.
    """
    torch, task = require_live("torch"), replace(task, seed=0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    network = Network(Recipe(model, model))
    optimizer = torch.optim.AdamW(network.model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    for step in range(steps):
        _update(torch, network, optimizer, [_pair(task, step * BATCH + i) for i in range(BATCH)])
    network.save(next(model.glob("*.safetensors")))
    torch.set_num_threads(threads)


def _update(torch: Any, network: Network, optimizer: Any, pairs: list[TrainingSample]) -> None:
    optimizer.zero_grad(set_to_none=True)
    (-network.log_probs(pairs).mean()).backward()
    torch.nn.utils.clip_grad_norm_(network.model.parameters(), MOST_GRADIENT_NORM)
    optimizer.step()


def _pair(task: Verifiable, number: int) -> TrainingSample:
    prompt, answer = tuple(task.prompt(number)), tuple(task.answer(number))
    return TrainingSample(0, prompt + answer, tuple(range(len(prompt), len(prompt) + len(answer))), (), 0.0)
