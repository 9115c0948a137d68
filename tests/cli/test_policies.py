"""`rlsim policies`, `import-config` and `export-config`: what they print, where, and with which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evidence.docs_pages import policies_page
from evidence.site import generated
from rlsim.frameworks.catalogue import described, part_texts, preset_texts
from rlsim.policies.registry import CHOICES, parts_of
from rlsim.presets import preset_names
from rlsim.studies.text.policies import shown_in_full

ROOT = Path(__file__).parents[2]
SYSTEMS = (
    *("areal", "skyrl", "verlonestepoff", "verlfullyasync", "slimeapril", "copris", "rollpacker", "seer", "laminar"),
    *("pipelinerl", "primerl", "nemorl", "trl", "openrlhf", "rollrlvr"),
)


def rlsim(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from rlsim.cli.main import main; main()", *arguments]
    env = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_every_choice_part_and_preset_has_a_line_of_its_own_in_a_pipe() -> None:
    done = rlsim("policies")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("  ")]
    first, second = {row[0] for row in rows}, {tuple(row[:2]) for row in rows}
    assert first >= {*CHOICES, *preset_names()}
    assert second >= {(choice, part) for choice in CHOICES for part in parts_of(choice)}
    listed = "".join(done.stdout.lower().split()).replace("-", "").replace("_", "")
    assert [system for system in SYSTEMS if system not in listed] == []


def test_the_same_for_machines() -> None:
    told = json.loads(rlsim("policies", "--json").stdout)
    assert {preset["name"] for preset in told["presets"]} == {*preset_names()}
    areal = next(preset for preset in told["presets"] if preset["name"] == "areal")
    assert {one["name"]: one["default"] for one in areal["parameters"]}["max_head_offpolicyness"] == "0"
    assert areal["parts"]["admission"] == {"use": "cumulative-capacity", "max_staleness": 0, "max_open_groups": None}


def test_a_preset_is_shown_with_its_formula_its_bound_and_what_it_is_made_of() -> None:
    done = rlsim("policies", "show", "areal")
    assert done.returncode == 0, done.stderr
    for words in (
        "min(C - running, (eta + version + 1) * B",
        "bound: max_head",
        "2505.24298",
        "mode: abort",
        "uniform",
    ):
        assert words in done.stdout
    assert json.loads(rlsim("policies", "show", "areal", "--json").stdout)[0]["name"] == "areal"


def test_a_part_is_shown_with_its_parameters_and_a_choice_with_its_parts() -> None:
    part = rlsim("policies", "show", "publish").stdout
    assert "resume_seconds  float" in part
    assert "Polling or retry interval" in part
    names = {one.name for one in described("dispatch")}
    assert names == {*parts_of("dispatch")}


def test_an_unknown_name_is_guessed() -> None:
    done = rlsim("policies", "show", "arael")
    assert done.returncode == 2
    assert "did you mean 'areal'" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("preset", preset_texts(), ids=lambda preset: preset.name)
def test_every_preset_tells_its_source_its_bound_and_its_admission(preset: object) -> None:
    (text,) = (one for one in preset_texts() if one == preset)
    assert text.summary
    assert text.source
    assert text.bound
    assert text.admission
    assert set(text.parts) == set(CHOICES)
    assert text.admission in shown_in_full([text])


def test_every_part_says_what_it_does() -> None:
    assert [part.name for part in part_texts() if not part.summary] == []


def test_the_documentation_is_what_the_code_says() -> None:
    documented = generated()["reference/policies.md"]()
    assert documented == policies_page()
    assert not [
        name
        for name in (*preset_names(), *(part for choice in CHOICES for part in parts_of(choice)))
        if f"`{name}`" not in documented
    ]


def test_a_scenario_goes_to_a_framework_and_comes_back_as_a_scenario_that_runs(tmp_path: Path) -> None:
    config, scenario = tmp_path / "areal.yaml", tmp_path / "scenario.yaml"
    arm = ("--arm", "bounded staleness 8+8")
    exported = rlsim("export-config", "scenarios/quickstart.yaml", "--to", "areal", *arm, "--out", str(config))
    assert exported.returncode == 0, exported.stderr
    assert not exported.stdout
    assert "no key for: switching.wake_seconds" in exported.stderr
    assert "max_head_offpolicyness: 2" in config.read_text()
    imported = rlsim("import-config", str(config), "--from", "areal")
    assert imported.returncode == 0, imported.stderr
    assert "ASSUMED: workload.response_tokens.mean_tokens" in imported.stderr
    scenario.write_text(imported.stdout)
    small = ("workload.prompts_per_step=8", "workload.group_size=4", "run.replications=1", "sensitivity=[]")
    ran = rlsim("run", str(scenario), *(word for one in small for word in ("--set", one)))
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("export-config", "scenarios/quickstart.yaml", "--to", "verl", "--arm", "one-off 8+8"), "verl-one-step-off"),
        (("import-config", "pyproject.toml", "--from", "areel"), "did you mean 'areal'"),
        (("import-config", "rlsim/cli/main.py", "--from", "verl"), "programs are not run"),
        (("import-config", "pyproject.toml", "--from", "slime", "--preset", "areal"), "slime-train-async"),
        (("import-config", "nowhere.yaml", "--from", "verl"), "file not found"),
    ],
)
def test_what_cannot_be_done_ends_with_a_line_and_no_traceback(arguments: tuple[str, ...], told: str) -> None:
    done = rlsim(*arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
