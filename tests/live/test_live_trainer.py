"""A real trainer in torch: however a batch is cut, streamed or spread over processes, the same weights come out."""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rlsim.core.commands import Train
from rlsim.core.errors import ParameterError
from rlsim.live.protocols import Experience, Learnt, TrainerLostError
from rlsim.live.torch.grpo import Objective, advantages, effective_share
from rlsim.live.torch.rank import Rank
from rlsim.live.torch.recipe import Recipe, TrainRequest
from rlsim.live.torch.small_llama import LlamaShape, write_model
from rlsim.live.torch.trainer import TorchTrainer

VOCABULARY = 14


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough weights that samples differ in their gradients."""
    return write_model(LlamaShape(VOCABULARY), tmp_path_factory.mktemp("live") / "model", spread=0.2)


def recipe(model: Path, **changes: Any) -> Recipe:
    return replace(Recipe(model, model.parent / "weights", learning_rate=1e-3), **changes)


def batch(samples: int, seed: int = 0) -> tuple[Experience, ...]:
    """Samples of unequal length in groups of 2, some tokens of each made by a tool."""
    draw = torch.Generator().manual_seed(seed)

    def one(at: int) -> Experience:
        length = 3 + int(torch.randint(9, (1,), generator=draw))
        made = [place % 4 != 2 for place in range(length)]
        tokens = torch.randint(3, VOCABULARY, (length + 4,), generator=draw).tolist()
        log_probs = (-2.5 - 0.5 * torch.rand(length, generator=draw)).tolist()
        told = [value if by_model else 0.0 for value, by_model in zip(log_probs, made, strict=True)]
        reward = float(torch.rand(1, generator=draw))
        return Experience(at, at // 2, tokens[:4], tokens[4:], made, told, ((0, sum(made)),), reward)

    return tuple(one(at) for at in range(samples))


def weights(rank: Rank) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in rank.network.model.state_dict().items()}


def trained(recipe: Recipe, *orders: TrainRequest) -> dict[str, torch.Tensor]:
    rank = Rank(recipe)
    for order in orders:
        rank.train(order)
    return weights(rank)


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert set(one) == set(other)
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def reference_gradients(model: Path, samples: Sequence[Experience], objective: Objective) -> dict[str, torch.Tensor]:
    """Written out: one sample at a time by the library's own attention, the mean over all tokens of the model."""
    network = AutoModelForCausalLM.from_pretrained(model, attn_implementation="eager", dtype=torch.float32)
    gains = advantages([one.group for one in samples], [one.reward for one in samples])
    total, tokens = torch.zeros(()), 0
    for sample, gain in zip(samples, gains, strict=True):
        ids = torch.tensor([[*sample.prompt, *sample.response]])
        law = network(input_ids=ids).logits[0].log_softmax(1)
        for at, by_model in enumerate(sample.made_by_model):
            if by_model:
                place = len(sample.prompt) + at
                log_prob = law[place - 1, ids[0, place]]
                weight = min(
                    math.exp(float(log_prob.detach()) - sample.log_probs[at]), float(objective.most_weight or 1)
                )
                total = total - weight * gain * (log_prob - log_prob.detach()).exp()
                tokens += 1
    (total / tokens).backward()
    return {name: parameter.grad for name, parameter in network.named_parameters()}


def test_the_gradient_is_that_of_the_loss_written_out(model: Path) -> None:
    samples, objective = batch(6), Objective(most_weight=1.5)
    rank = Rank(recipe(model, objective=objective, micro_batch_tokens=30))
    rank.train(TrainRequest(samples, step=False))
    tokens = sum(sum(sample.made_by_model) for sample in samples)
    expected = reference_gradients(model, samples, objective)
    for name, parameter in rank.network.model.named_parameters():
        assert torch.allclose(parameter.grad / tokens, expected[name], rtol=1e-4, atol=1e-6), name


def test_streamed_parts_and_micro_batches_make_the_update_of_one_batch(model: Path) -> None:
    whole, small = recipe(model), recipe(model, micro_batch_tokens=16)
    samples, later = batch(10), batch(6, seed=1)
    once = trained(whole, TrainRequest(samples), TrainRequest(later))
    cut = trained(small, TrainRequest(samples), TrainRequest(later))
    streamed = trained(small, TrainRequest(samples[:4], step=False), TrainRequest(samples[4:]), TrainRequest(later))
    moved = difference(once, trained(whole, TrainRequest(samples)))
    assert difference(once, cut) < 0.01 * moved
    assert difference(once, streamed) < 0.01 * moved


def test_mini_batches_and_epochs_are_updates_of_their_own(model: Path) -> None:
    part = Rank(recipe(model)).train(TrainRequest(batch(10), updates=5, epochs=3))
    assert len(part.gradient_norms) == 15
    assert [name for name, _ in part.phases] == ["old_log_prob", "update_actor"]
    assert part.sums["tokens"] == 3 * sum(sum(sample.made_by_model) for sample in batch(10))


def test_without_variance_of_rewards_nothing_is_learnt(model: Path) -> None:
    samples = tuple(replace(sample, reward=0.3) for sample in batch(6))
    assert difference(trained(recipe(model), TrainRequest(samples)), trained(recipe(model))) == 0.0


def test_the_effective_share_is_that_of_sequence_weights(model: Path) -> None:
    samples = batch(6)
    rank = Rank(recipe(model))
    rows = rank.log_probs([[*sample.prompt, *sample.response] for sample in samples])
    logs = []
    for sample, row in zip(samples, rows, strict=True):
        own = row[len(sample.prompt) - 1 :]
        told = zip(own, sample.log_probs, sample.made_by_model, strict=True)
        logs.append(sum(mine - theirs for mine, theirs, by_model in told if by_model))
    with_pass = rank.train(TrainRequest(samples, step=False)).log_weights
    assert [with_pass[at] for at in range(6)] == pytest.approx(logs, abs=1e-4)
    without = Rank(recipe(model, old_log_prob=False)).train(TrainRequest(samples, step=False)).log_weights
    assert [without[at] for at in range(6)] == pytest.approx(logs, abs=1e-4)
    assert 1 / 6 < effective_share(logs) < 1


def test_a_tied_model_in_bf16_keeps_float32_masters_and_publishes_what_it_was_loaded_from(
    model: Path, tmp_path: Path
) -> None:
    """The masters move by less than bf16 can show; files have the names and the precision of the folder."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config |= {"dtype": "bfloat16", "tie_word_embeddings": True}
    stored = load_file(model / "model.safetensors")
    stored = {name: value.bfloat16() for name, value in stored.items() if name != "lm_head.weight"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    rank = Rank(recipe(tmp_path, learning_rate=1e-6))
    before = weights(rank)
    rank.train(TrainRequest(batch(6)))
    assert 1e-8 < difference(before, weights(rank)) < 1e-5
    rank.network.save(tmp_path / "published.safetensors")
    published = load_file(tmp_path / "published.safetensors")
    assert {name: value.dtype for name, value in published.items()} == dict.fromkeys(stored, torch.bfloat16)
    assert difference(published, stored) < 0.01


def lives(recipe: Recipe, life: Callable[[TorchTrainer], Coroutine[Any, Any, Any]]) -> Any:
    """What the life of a trainer comes to; it is closed at the end."""

    async def whole() -> Any:
        trainer = TorchTrainer(recipe)
        await trainer.start()
        try:
            return await life(trainer)
        finally:
            await trainer.close()

    return asyncio.run(whole())


async def two_steps(trainer: TorchTrainer) -> tuple[list[Learnt], dict[str, torch.Tensor], list[list[float]]]:
    """A step in two parts, then one of two updates; samples do not divide over two ranks."""
    first, second = batch(10), batch(7, seed=1)
    learnt = [
        await trainer.train(Train(1, (0, 1), last=False), first[:4]),
        await trainer.train(Train(1, (2, 3), last=True), first[4:]),
        await trainer.train(Train(2, (4, 5)), second),
    ]
    published = await trainer.publish(1)
    assert published.file is not None
    return learnt, load_file(published.file), await trainer.log_probs([[1, 4, 5, 6], [3, 3]])


def test_two_processes_learn_what_one_does(model: Path) -> None:
    plain = recipe(model, updates_per_step=2, micro_batch_tokens=32, weights_folder=model.parent / "one")
    one, one_weights, one_probs = lives(plain, two_steps)
    two, two_weights, two_probs = lives(replace(plain, processes=2, weights_folder=model.parent / "two"), two_steps)
    moved = difference(one_weights, load_file(model / "model.safetensors"))
    assert moved > 1e-3
    assert difference(one_weights, two_weights) < 0.01 * moved
    for row, other in zip(one_probs, two_probs, strict=True):
        assert row == pytest.approx(other, abs=1e-4)
    for learnt, other in zip(one, two, strict=True):
        assert learnt.metrics == pytest.approx(other.metrics, rel=1e-3, abs=1e-5)
        assert learnt.ess == pytest.approx(other.ess, rel=1e-4)
    assert [learnt.metrics["updates"] for learnt in one] == [0, 1, 2]
    assert all([name for name, _ in learnt.phases] == ["old_log_prob", "update_actor", "overhead"] for learnt in two)


def test_published_weights_are_the_trainers_own(model: Path, tmp_path: Path) -> None:
    rows = [[1, 5, 6, 7, 2], [4, 4, 9]]

    async def life(trainer: TorchTrainer) -> Any:
        await trainer.train(Train(1, (0,)), batch(4))
        for version in range(1, 5):
            weights = await trainer.publish(version)
        return weights, await trainer.log_probs(rows)

    published, said = lives(recipe(model, weights_folder=tmp_path / "weights"), life)
    assert sorted(file.name for file in (tmp_path / "weights").iterdir()) == [
        "version-3.safetensors",
        "version-4.safetensors",
    ]
    assert (published.version, published.file.name) == (4, "version-4.safetensors")
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    network.load_state_dict(load_file(published.file), strict=True)
    for row, found in zip(rows, said, strict=True):
        law = network(input_ids=torch.tensor([row])).logits[0].detach().log_softmax(1)
        assert found == pytest.approx([float(law[at, token]) for at, token in enumerate(row[1:])], abs=1e-5)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_process_is_a_lost_trainer_and_takes_the_others_with_it(
    model: Path, tmp_path: Path, processes: int
) -> None:
    async def life(trainer: TorchTrainer) -> None:
        pids = trainer.pids
        await trainer.train(Train(1, (0,)), batch(4))
        os.kill(max(pids), signal.SIGKILL)
        with pytest.raises(TrainerLostError):
            await trainer.train(Train(2, (0,)), batch(4))
        with pytest.raises(TrainerLostError):
            await trainer.publish(2)
        assert not {child.pid for child in multiprocessing.active_children()} & pids

    lives(recipe(model, weights_folder=tmp_path, processes=processes), life)


def test_closing_ends_the_processes_in_the_middle_of_work(model: Path, tmp_path: Path) -> None:
    async def life(trainer: TorchTrainer) -> frozenset[int]:
        work = asyncio.create_task(trainer.train(Train(1, (0,), updates=500), batch(500)))
        await asyncio.sleep(0.2)
        await trainer.close()
        with pytest.raises(TrainerLostError):
            await work
        return trainer.pids

    pids = lives(recipe(model, weights_folder=tmp_path), life)
    assert not {child.pid for child in multiprocessing.active_children()} & pids


def test_a_faulty_batch_is_refused_and_the_trainer_lives_on(model: Path, tmp_path: Path) -> None:
    async def life(trainer: TorchTrainer) -> Learnt:
        with pytest.raises(ParameterError, match=r"batch\.0\.prompt"):
            await trainer.train(Train(1, (0,)), [replace(batch(1)[0], prompt=())])
        return await trainer.train(Train(1, (0,)), batch(4))

    assert lives(recipe(model, weights_folder=tmp_path), life).metrics["updates"] == 1


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"live\.model.*a folder with a config\.json"):
        asyncio.run(TorchTrainer(Recipe(tmp_path, tmp_path)).start())
