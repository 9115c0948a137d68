"""A few supervised steps make a checkpoint that succeeds at times; it is the same whatever the seed of a run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from policy_runs import scenario

from rlsim.core.errors import ParameterError
from rlsim.live.tasks.registry import make_task
from rlsim.live.torch.checkpoints import Model, model_of
from rlsim.live.torch.rank import Rank
from rlsim.live.torch.recipe import Recipe
from rlsim.live.torch.small_llama import LlamaShape, write_model

SYMBOLS = 16
TASK = make_task("successor", {"symbols": SYMBOLS, "partial_credit": False})


def made(work: Path, seed: int = 0, **live: Any) -> Model:
    named = {"task": {"name": "successor", "symbols": SYMBOLS}, **live}
    return model_of(scenario({"preset": "one-step-off"}, live=named), work, replace(TASK, seed=seed))


def success(model: Path) -> float:
    """Probability of the right answer, over some prompts."""
    rank = Rank(Recipe(model, model))
    rows = [(*TASK.prompt(number), *TASK.answer(number)) for number in range(64)]
    return sum(math.exp(sum(found[-2:])) for found in rank.log_probs(rows)) / len(rows)


def test_supervised_steps_lie_between_chance_and_mastery(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    raw, few, many = (success(made(tmp_path / str(steps), supervised_steps=steps).folder) for steps in (0, 10, 60))
    assert raw < 1 / SYMBOLS
    assert 0.05 < few < 0.2, "what scenarios/live/allocation.yaml begins with"
    assert many > 0.8


def test_the_checkpoint_is_the_same_for_every_seed(tmp_path: Path) -> None:
    files = [made(tmp_path / str(seed), seed, supervised_steps=3).folder / "model.safetensors" for seed in (0, 1)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_given_weights_are_never_written_to(tmp_path: Path) -> None:
    given = write_model(LlamaShape(TASK.vocabulary.size), tmp_path / "given")
    before = (given / "model.safetensors").read_bytes()
    with pytest.raises(ParameterError, match=r"live\.supervised_steps"):
        made(tmp_path / "work", supervised_steps=3, model=str(given))
    assert (given / "model.safetensors").read_bytes() == before


def test_without_a_task_there_are_no_answers() -> None:
    with pytest.raises(ValueError, match="supervised_steps: found 3; allowed: 0 without"):
        scenario({"preset": "one-step-off"}, live={"supervised_steps": 3})
