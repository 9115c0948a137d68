"""File, overlays, arm and --set: later wins, and every value remembers where it was written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlsim.core.errors import ScenarioError
from rlsim.scenario.document import load

Write = Callable[..., str]


def faults_of(path: str, arm: str | None = None, **layers: list[str]) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        load(path, **layers).resolve(arm)
    return caught.value.faults


def test_places_are_those_of_keys_and_items(written: Write, base: str) -> None:
    path = written(base + "published:\n- {step_seconds: 1, source: s, grade: A}\n")
    where = load(path).where
    assert str(where[()]) == f"{path}:1"
    assert str(where["workload", "response_tokens", "sigma"]) == f"{path}:17"
    assert str(where["published", 0, "source"]) == f"{path}:25"


def test_later_overlays_win_and_settings_win_over_all(written: Write, base: str) -> None:
    path = written(base)
    first = written("trainer: {mfu: 0.1, epochs: 2}\nseed: 1\n", "first.yaml")
    second = written("trainer: {mfu: 0.2}\n", "second.yaml")
    document = load(path, [first, second], ["seed=9", "seed=10"])
    scenario = document.resolve()
    assert (scenario.trainer.mfu, scenario.trainer.epochs, scenario.trainer.gpus, scenario.seed) == (
        0.2,
        2,
        16,
        10,
    )
    places = {name: str(document.locate(f"trainer.{name}")) for name in ("mfu", "epochs", "gpus")}
    assert places == {"mfu": f"{second}:1", "epochs": f"{first}:1", "gpus": f"{path}:8"}
    assert str(document.locate("seed")) == "--set seed=10"


def test_a_fault_is_placed_in_the_layer_that_made_it(written: Write, base: str) -> None:
    overlay = written("# lower\ntrainer:\n  mfu: 7\n", "low.yaml")
    assert faults_of(written(base), overlays=[overlay]) == (
        f"{overlay}:3: trainer.mfu: found 7; allowed: a number, above 0 and at most 1",
    )
    assert faults_of(written(base), overlays=[overlay], sets=["trainer.mfu=8"]) == (
        "--set trainer.mfu=8: trainer.mfu: found 8; allowed: a number, above 0 and at most 1",
    )


def test_an_unknown_path_of_a_setting_is_an_unknown_key(written: Write, base: str) -> None:
    (fault,) = faults_of(written(base), sets=["rollout.gpu=8"])
    assert fault.startswith("--set rollout.gpu=8: rollout.gpu: unknown key; allowed: ")
    assert fault.endswith("did you mean 'gpus'?")


@pytest.mark.parametrize("setting", ["seed", "=1", "a..b=1", ".=1"])
def test_a_setting_without_path_or_value_is_refused(written: Write, base: str, setting: str) -> None:
    assert faults_of(written(base), sets=[setting]) == (
        f"--set {setting}: found no key path and value; allowed: key.path=value",
    )


@pytest.mark.parametrize("value", ["[1", "!!python/name:os.system x", ".nan"])
def test_a_setting_is_read_as_safely_as_a_file(written: Write, base: str, value: str) -> None:
    assert faults_of(written(base), sets=[f"seed={value}"])[0].startswith(f"--set seed={value}:")


def test_a_setting_inside_an_unknown_arm_is_refused(written: Write, with_arms: str, base: str) -> None:
    (fault,) = faults_of(written(with_arms), "fast", sets=["arms.fsat.seed=1"])
    assert fault.endswith("arms.fsat: unknown arm; allowed: as-written, fast, heavy; did you mean 'fast'?")
    (fault,) = faults_of(written(base), sets=["arms.fast.seed=1"])
    assert fault.endswith("arms.fast: unknown arm; allowed: none, the file has no arms")


def test_a_setting_inside_an_arm_stays_there(written: Write, with_arms: str) -> None:
    document = load(written(with_arms), sets=["arms.fast.seed=5"])
    assert {arm: one.seed for arm, one in document.resolve_all().items()} == {
        "as-written": 0,
        "fast": 5,
        "heavy": 0,
    }


def test_a_setting_wins_over_what_an_arm_says(written: Write, with_arms: str) -> None:
    document = load(written(with_arms), sets=["trainer.mfu=0.3"])
    assert {scenario.trainer.mfu for scenario in document.resolve_all().values()} == {0.3}


def test_settings_that_choose_anew_do_not_depend_on_their_order(written: Write, base: str) -> None:
    settings = ["policy.lead=2", "policy.preset=other"]
    one, two = (load(written(base), sets=order).resolve().policy for order in (settings, settings[::-1]))
    assert one.preset == two.preset == "other"
    assert one.fields == two.fields == {"lead": 2}


def test_an_arm_merges_and_replaces_what_its_choice_makes_meaningless(written: Write, with_arms: str) -> None:
    document = load(written(with_arms))
    fast, heavy = document.resolve("fast"), document.resolve("heavy")
    assert (fast.trainer.mfu, fast.trainer.gpus) == (0.5, 16)
    assert (fast.policy.preset, fast.policy.fields) == ("one-step-off", {})
    assert heavy.workload.response_tokens.fields == {"tail_index": 1.5}
    assert heavy.workload.group_size == 32
    assert heavy.policy.fields == {"max_staleness": 0}


def test_an_arm_that_repeats_the_choice_keeps_the_other_parameters(written: Write, base: str) -> None:
    law = "arms: {wide: {workload: {response_tokens: {law: lognormal, sigma: 2}}}}\n"
    fields = load(written(base + law)).resolve().workload.response_tokens.fields
    assert fields == {"mean_tokens": 1019, "sigma": 2, "cap_tokens": 4096}


def test_a_key_of_an_arm_is_located_there_and_others_in_the_base(written: Write, with_arms: str) -> None:
    path = written(with_arms)
    document = load(path)
    assert str(document.locate("trainer.mfu", "fast")) == f"{path}:28"
    assert str(document.locate("trainer.gpus", "fast")) == f"{path}:8"
    assert str(document.locate("policy.max_staleness", "fast")) == f"{path}:29"
    assert document.locate("trainer.mfu", "fast").path == ("arms", "fast", "trainer", "mfu")


def test_arms_are_listed_in_order_and_must_be_chosen(written: Write, with_arms: str) -> None:
    path = written(with_arms)
    assert load(path).arms() == ["as-written", "fast", "heavy"]
    assert faults_of(path) == (f"{path}:24: arms: found no choice of arm; allowed: as-written, fast, heavy",)


def test_the_only_arm_need_not_be_named(written: Write, base: str) -> None:
    assert load(written(base + "arms: {fast: {seed: 3}}\n")).resolve().seed == 3


def test_an_unknown_arm_suggests_the_nearest(written: Write, with_arms: str, base: str) -> None:
    assert faults_of(written(with_arms), "hevy")[0].endswith(
        "arms: found arm 'hevy'; allowed: as-written, fast, heavy; did you mean 'heavy'?"
    )
    assert faults_of(written(base), "fast")[0].endswith("found arm 'fast'; allowed: none, the file has no arms")


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ("arms:\n", "24: arms: found null; allowed: a mapping of arm names"),
        ("arms: {}\n", "24: arms: found an empty mapping; allowed: a mapping of arm names"),
        ("arms: [fast]\n", "24: arms: found a list; allowed: a mapping of arm names"),
        ("arms:\n  fast: 3\n", "25: arms.fast: found 3; allowed: a mapping of overrides"),
        ("arms:\n  fast: {arms: {}}\n", "25: arms.fast.arms: unknown key"),
    ],
)
def test_arms_are_mappings(written: Write, base: str, arms: str, message: str) -> None:
    path = written(base + arms)
    assert faults_of(path)[0].startswith(f"{path}:{message}")


def test_a_file_is_relative_to_the_file_that_names_it(
    written: Write, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(base)
    (tmp_path / "sub").mkdir()
    overlay = "model: config.json\nworkload: {response_tokens: {law: empirical, file: lengths.csv}}\n"
    written(overlay, "sub/over.yaml")
    monkeypatch.chdir(tmp_path)
    scenario = load("x.yaml", ["sub/over.yaml"], ["rollout.step_time={source: profile, profile: p.json}"]).resolve()
    assert scenario.model == str(tmp_path / "sub" / "config.json")
    assert scenario.workload.response_tokens.fields["file"] == str(tmp_path / "sub" / "lengths.csv")
    assert scenario.rollout.step_time.profile == str(tmp_path / "p.json")
    assert load("x.yaml").resolve().model == "Llama-3.1-8B"


def test_faults_of_every_layer_come_at_once(written: Write, base: str) -> None:
    overlay = written("seed: .nan\n", "over.yaml")
    faults = faults_of(written(base + "zzzz: 1\n"), overlays=[overlay], sets=["run.steps=no"])
    assert [fault.partition(": ")[2].split(":")[0] for fault in faults] == ["seed", "zzzz", "run.steps"]


def test_loading_does_not_import_pydantic() -> None:
    code = "import sys, rlsim.scenario, rlsim.scenario.document; sys.exit('pydantic' in sys.modules)"
    root = str(Path(__file__).parents[2])
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root}).returncode == 0
