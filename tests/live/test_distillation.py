"""A teacher in the place of rewards: its gradients written out, and that the student comes to resemble it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from learning_loop import sampled
from policy_runs import scenario
from transformers import AutoModelForCausalLM

from rlsim.core.errors import ParameterError
from rlsim.live.protocols import Experience
from rlsim.live.tasks.registry import make_task
from rlsim.live.torch.checkpoints import Model, teacher_of
from rlsim.live.torch.rank import Rank
from rlsim.live.torch.recipe import Recipe, TrainRequest
from rlsim.live.torch.small_llama import LlamaShape, write_model
from rlsim.live.torch.supervised import supervise

TASK = make_task("counting", {"symbols": 6, "length": 3, "partial_credit": False})
PROMPTS, GROUP = 8, 4


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of a student with random weights, and of a teacher that knows the task."""
    torch.set_num_threads(1)
    work = tmp_path_factory.mktemp("distilled")
    student, teacher = (write_model(LlamaShape(TASK.vocabulary.size), work / name) for name in ("student", "teacher"))
    supervise(teacher, TASK, 80)
    return student, teacher


def ranked(folders: tuple[Path, Path], **changes: Any) -> Rank:
    student, teacher = folders
    return Rank(replace(Recipe(student, student.parent, teacher=teacher, learning_rate=1e-3), **changes))


def drawn(rank: Rank, step: int = 0) -> tuple[Experience, ...]:
    draw = torch.Generator().manual_seed(step)
    numbers = range(step * PROMPTS, (step + 1) * PROMPTS)
    return tuple(sampled(rank.network.model, TASK, numbers, GROUP, draw))


def log_probs(model: Path, batch: Sequence[Experience]) -> list[torch.Tensor]:
    """Of the response tokens, by the library's own attention, a sample at a time."""
    network, found = AutoModelForCausalLM.from_pretrained(model, attn_implementation="eager"), []
    for one in batch:
        ids = torch.tensor([[*one.prompt, *one.response]])
        law = network(input_ids=ids).logits[0].log_softmax(1)
        start = len(one.prompt)
        found.append(law[start - 1 : -1].gather(1, ids[0, start:, None])[:, 0])
    return found


def test_the_gradient_is_that_of_the_divergence_written_out(folders: tuple[Path, Path]) -> None:
    """Every token is worth how much likelier the teacher finds it than the weights that the step began with."""
    student, teacher = folders
    rank = ranked(folders)
    batch = drawn(rank)
    told = rank.train(TrainRequest(batch, step=False))
    tokens = sum(len(one.response) for one in batch)
    network = AutoModelForCausalLM.from_pretrained(student, attn_implementation="eager")
    pairs = zip(log_probs(teacher, batch), log_probs(student, batch), strict=True)
    gaps = [(theirs - own).detach() for theirs, own in pairs]
    total = torch.zeros(())
    for one, gains in zip(batch, gaps, strict=True):
        ids = torch.tensor([[*one.prompt, *one.response]])
        law = network(input_ids=ids).logits[0].log_softmax(1)
        start = len(one.prompt)
        total = total - (gains * law[start - 1 : -1].gather(1, ids[0, start:, None])[:, 0]).sum()
    (total / tokens).backward()
    expected = dict(network.named_parameters())
    for name, parameter in rank.network.model.named_parameters():
        assert torch.allclose(parameter.grad / tokens, expected[name].grad, rtol=1e-3, atol=1e-5), name
    assert told.sums["teacher"] / tokens == pytest.approx(-float(torch.cat(gaps).mean()), rel=1e-4)
    assert [name for name, _ in told.phases] == ["old_log_prob", "reference", "update_actor"]


def test_a_teacher_that_agrees_teaches_nothing(folders: tuple[Path, Path]) -> None:
    rank = ranked((folders[0], folders[0]))
    told = rank.train(TrainRequest(drawn(rank)))
    assert told.gradient_norms == pytest.approx((0.0,), abs=1e-5)


def test_rewards_do_not_count(folders: tuple[Path, Path]) -> None:
    ranks = [ranked(folders) for _ in range(2)]
    batch = drawn(ranks[0])
    other = tuple(replace(one, reward=float(at % 2)) for at, one in enumerate(batch))
    norms = [rank.train(TrainRequest(given)).gradient_norms for rank, given in zip(ranks, (batch, other), strict=True)]
    assert norms[0] == norms[1]
    assert norms[0][0] > 0


def test_the_student_comes_to_resemble_its_teacher(folders: tuple[Path, Path]) -> None:
    rank, gaps, rewards = ranked(folders), [], []
    for step in range(60):
        batch = drawn(rank, step)
        told = rank.train(TrainRequest(batch))
        gaps.append(told.sums["teacher"] / told.sums["tokens"])
        rewards.append(fmean(one.reward for one in batch))
    print(f"divergence {gaps[0]:.2f} to {fmean(gaps[-5:]):.2f}, reward {rewards[0]:.2f} to {fmean(rewards[-5:]):.2f}")
    assert fmean(gaps[-5:]) < gaps[0] / 4
    assert fmean(rewards[-5:]) > rewards[0] + 0.3, "nobody told it the rewards"


def asked(student: Path, **teacher: Any) -> Any:
    named = {"task": {"name": "counting", "symbols": 6, "length": 3}, "teacher": teacher}
    given = scenario({"preset": "one-step-off"}, live=named)
    return teacher_of(given, student.parent / "work", TASK, Model(student, TASK.vocabulary.size))


def test_a_teacher_is_made_or_found(folders: tuple[Path, Path]) -> None:
    student, teacher = folders
    assert asked(student, model=str(teacher)) == teacher
    made = asked(student, supervised_steps=80)
    assert (made / "model.safetensors").read_bytes() == (teacher / "model.safetensors").read_bytes()


def test_a_teacher_with_another_vocabulary_or_none_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    other = write_model(LlamaShape(TASK.vocabulary.size + 1), tmp_path / "other")
    for folder, said in ((other, "as the one that is taught"), (tmp_path, "a folder with a config.json and weights")):
        with pytest.raises(ParameterError, match=said) as caught:
            asked(folders[0], model=str(folder))
        assert caught.value.path == "live.teacher.model"


@pytest.mark.parametrize(
    ("live", "said"),
    [
        ({"teacher": {}}, "either a folder in model, or above 0"),
        ({"teacher": {"model": "m", "supervised_steps": 3}}, "either a folder in model, or above 0"),
        ({"teacher": {"supervised_steps": 3}}, "only the small model of a task"),
        ({"teacher": {"model": "m"}, "trainer": "paced"}, "torch: a teacher teaches a real trainer"),
    ],
)
def test_teachers_that_cannot_be_are_refused(live: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        scenario({"preset": "one-step-off"}, live=live)
