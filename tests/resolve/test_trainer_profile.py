"""A trainer that names a profile: its speeds, its provenance, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_files import faults_of, written

from rlsim.costs.catalogue import device, model
from rlsim.costs.evidence import Coefficient, Evidence, HoldOutError, Provenance
from rlsim.costs.profile import Profile, load_profile
from rlsim.costs.sections import TrainingFit
from rlsim.resolve import resolve
from rlsim.scenario.document import load

LLAMA, H100 = model("Llama-3.1-8B"), device("H100-SXM")
MEASURED = {
    "train_flops_per_second": 4e14,
    "logprob_flops_per_second": 5e14,
    "attention_flops_per_second": 2e14,
    "seconds_per_micro_batch": 0.02,
    "logprob_seconds_per_micro_batch": 0.005,
    "update_seconds": 0.5,
}


def profile(device_name: str = "H100-SXM", without: str = "") -> Profile:
    found = {name: Coefficient(value, "of a test") for name, value in MEASURED.items() if name != without}
    provenance = Provenance("measured", "rlsim calibrate torch", "2026-01-01")
    fit = TrainingFit(found, Evidence(provenance, HoldOutError(0.01, 0.02, 0.03, "")), {"data_parallel": 1})
    return Profile("mine", "Llama-3.1-8B", device_name, 1, 1, "torch", "2.13", training=fit)


def scenario(tmp_path: Path, *edits: tuple[str, str], made: Profile | None = None) -> Path:
    (made or profile()).write(tmp_path / "mine.json")
    return written(tmp_path, ("mfu: 0.4", "profile: mine.json"), *edits)


def test_the_trainer_takes_the_seconds_of_the_profile(tmp_path: Path) -> None:
    made = resolve(load(scenario(tmp_path)).resolve(None))
    cost = made.training
    shares = (cost.mfu, cost.config.logprob_mfu, cost.config.attention_mfu)
    assert shares == pytest.approx((4e14 / 989e12, 5e14 / 989e12, 2e14 / 989e12))
    assert cost.replace(gpus=1).optimizer_seconds() == pytest.approx(0.5)
    tokens, pairs = 1000, 1000 * 1001 / 2
    seconds = 3 * (LLAMA.token_flops() * tokens / 4e14 + LLAMA.pair_flops() * pairs / 2e14) + 0.02
    assert cost.replace(gpus=1).micro_batch_seconds([(100, 900)]) == pytest.approx(seconds)
    source = next(source for source in made.sources if source.what == "training")
    assert not source.estimate
    assert "measured on 1 GPU(s), communication of more is not in it" in source.text


def test_a_profile_of_other_hardware_stands_for_it_only_when_the_user_says_so(tmp_path: Path) -> None:
    other = profile("L4")
    (fault,) = faults_of(scenario(tmp_path, made=other))
    assert "trainer.profile: found 'mine'" in fault
    assert "cluster.allow_other_hardware: true (device L4 is not H100-SXM)" in fault
    path = scenario(tmp_path, ("gpus: 16", "gpus: 16\n  allow_other_hardware: true"), made=other)
    assert resolve(load(path).resolve(None)).training.mfu == pytest.approx(4e14 / 989e12)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("mfu: 0.3", "trainer.mfu: found 0.3; allowed: no such key with trainer.profile, which gives it"),
        ("seconds_per_update: 1", "trainer.seconds_per_update: found 1.0; allowed: no such key with trainer.profile"),
    ],
)
def test_a_key_that_the_profile_gives_is_refused_beside_it(key: str, said: str, tmp_path: Path) -> None:
    (fault,) = faults_of(scenario(tmp_path, ("profile: mine.json", f"profile: mine.json\n  {key}")))
    assert said in fault


def test_a_trainer_needs_a_utilisation_or_a_profile(tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path, ("  mfu: 0.4\n", "")))
    assert "trainer.mfu" in fault
    assert "or trainer.profile" in fault


def test_a_profile_without_a_training_section_is_refused(tmp_path: Path) -> None:
    (fault,) = faults_of(written(tmp_path, ("mfu: 0.4", "profile: llama-3.1-8b_h100-sxm_tp1")))
    assert "allowed: a profile with a training section (rlsim calibrate torch)" in fault


def test_a_missing_coefficient_and_a_rate_above_the_peak_are_named(tmp_path: Path) -> None:
    (fault,) = faults_of(scenario(tmp_path, made=profile(without="update_seconds")))
    assert "no update_seconds" in fault
    slow = ("device: H100-SXM", "device: L4\n  allow_other_hardware: true")
    assert any("mfu 3.31 of L4" in fault for fault in faults_of(scenario(tmp_path, slow)))


def test_a_profile_with_a_training_section_survives_its_file(tmp_path: Path) -> None:
    profile().write(tmp_path / "mine.json")
    assert load_profile(str(tmp_path / "mine.json")) == profile()
