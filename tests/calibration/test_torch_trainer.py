"""A real trainer in torch on this machine: packing is exact, the fit holds, the simulated step is the real one."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from calibration.measure.campaign import TimeBudget
from calibration.trainer.bench import BUILT_IN, TrainerBench, TrainerRecipe, recipe_for
from calibration.trainer.points import TrainerPoint
from calibration.trainer.profile import FLOOR_OF_BAR, TorchRequest, calibrate_torch, report
from rlsim.core.errors import ParameterError
from rlsim.costs.catalogue import device
from rlsim.costs.profile import Profile, load_profile
from rlsim.costs.trainer import TrainerConfig
from rlsim.costs.training import TrainingCost, trainer_speeds

TINY = BUILT_IN["tiny2x128"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """The small model measured on one thread for a minute."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("torch") / "profile.json"
    calibrate_torch(TorchRequest("small6x512", "cpu", out, TimeBudget(50.0), most_tokens=512, command="a test"), print)
    return load_profile(str(out))


def logits(trainer: TrainerBench, lengths: tuple[int, ...], ids: torch.Tensor, packed: bool) -> torch.Tensor:
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    segments = lengths if packed else None
    with torch.no_grad():
        return trainer.model(
            input_ids=ids, position_ids=positions, use_cache=False, rlsim_segments=segments
        ).logits.float()


def test_packed_samples_see_only_themselves() -> None:
    trainer = TrainerBench(TrainerRecipe(TINY, None, "cpu"))
    lengths, ids = (7, 20, 5), torch.randint(0, TINY.vocab, (1, 32))
    packed = logits(trainer, lengths, ids, packed=True)
    alone = [logits(trainer, (len(part[0]),), part, packed=False) for part in ids.split(lengths, dim=1)]
    assert torch.allclose(packed, torch.cat(alone, dim=1), atol=0.05)
    one_sample = logits(trainer, (32,), ids, packed=True)
    assert not torch.allclose(packed[:, 7:], one_sample[:, 7:], atol=0.05), "without cuts it is another result"


def test_an_update_changes_the_weights_and_keeps_bf16_copies_of_the_masters() -> None:
    trainer = TrainerBench(TrainerRecipe(TINY, None, "cpu"))
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    trainer.run(TrainerPoint("step", (64, 32) * 4, micro_batches=2))
    after = list(trainer.model.parameters())
    assert all(parameter.dtype == torch.bfloat16 and parameter.grad is None for parameter in after)
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_the_model_has_the_parameters_that_the_architecture_counts() -> None:
    for shape in BUILT_IN.values():
        trainer = TrainerBench(TrainerRecipe(shape, None, "cpu"))
        assert sum(parameter.numel() for parameter in trainer.model.parameters()) == shape.parameters()


@pytest.mark.timed
def test_the_fit_holds_for_other_shapes_within_five_per_cent_or_the_noise_floor(small: Profile) -> None:
    assert small.training is not None
    evidence = small.training.evidence
    for line in report(small, BUILT_IN["small6x512"]):
        print(line)
    assert evidence.hold_out.median <= max(FLOOR_OF_BAR, evidence.noise_floor["all"])
    assert evidence.hold_out.points >= 9
    assert evidence.libraries["torch"] == torch.__version__ or evidence.libraries["torch"]
    assert small.training.coefficients["peak_memory_bytes"].value > 16 * BUILT_IN["small6x512"].parameters()


@pytest.mark.timed
def test_the_simulated_step_is_the_measured_one_of_another_shape(small: Profile) -> None:
    """Five micro-batches of lengths that were not in the design; the quickest of a few, as the fit is of the quick."""
    assert small.training is not None
    shape, gpu = BUILT_IN["small6x512"], replace(device("L4"), name=small.device)
    speeds = asdict(trainer_speeds(small.training, shape, gpu))
    cost = TrainingCost(TrainerConfig(gpus=1, micro_batch_tokens=300, **speeds), shape, gpu)
    step = TrainerPoint("step", (200, 60, 40) * 5, micro_batches=5)
    trainer = TrainerBench(recipe_for("small6x512", "cpu"))
    trainer.prepare()
    measured = min(trainer.run(step) for _ in range(8))
    simulated = cost.step_seconds([(20, length - 20) for length in step.lengths])
    error = simulated / measured - 1
    print(f"step of {step}: simulated {simulated:.3f} s, measured {measured:.3f} s, {error:+.1%}")
    assert abs(error) <= max(0.1, 2 * small.training.evidence.noise_floor["all"])


def test_ranks_under_fsdp_are_measured_as_one_trainer(tmp_path: Path) -> None:
    out = tmp_path / "profile.json"
    profile = calibrate_torch(TorchRequest("tiny2x128", "cpu", out, TimeBudget(3.0), ranks=2, most_tokens=256))
    assert profile.training is not None
    assert profile.training.parallel == {"data_parallel": 2}
    assert "FSDP over 2 ranks" in profile.training.evidence.method["train"]


def test_a_config_of_hugging_face_is_a_model_and_a_mixture_by_name_is_not(tmp_path: Path) -> None:
    from transformers import Qwen3Config

    folder = tmp_path / "mine"
    Qwen3Config(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        intermediate_size=128, vocab_size=256, tie_word_embeddings=True,
    ).save_pretrained(folder)  # fmt: skip
    recipe = recipe_for(str(folder), "cpu")
    assert recipe.architecture.name == "mine"
    assert TrainerBench(recipe).run(TrainerPoint("train", (16, 8))) > 0
    with pytest.raises(ParameterError, match=r"config\.json"):
        recipe_for("Qwen3-30B-A3B", "cpu")
