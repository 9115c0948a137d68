"""A new part is one Python file and a new preset one YAML file: nothing else of the package changes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_own_part import recipe

import calibration
import rlsim

PRESET = """\
summary: Never more than a few groups open.
source: a test
bound: "start lag 0, in weights versions"
parameters:
  most_open: {default: 3, help: "Groups under way, at most."}
parts:
  admission: {use: trickle, limit: $most_open}
  batching: {use: complete-groups}
  update: {use: publish, mode: drain}
  leftovers: {use: keep-all}
  dispatch: {use: least-in-flight}
  placement: {use: disaggregated}
"""
SCRIPT = """\
import json, sys
import rlsim
from controller_parts import ADMISSIONS
from policy_runs import POLICIES, moments, ran, scenario
from rlsim.cli.main import main
from rlsim.resolve import ResolveError, resolve

found = {"package": rlsim.__file__}
for name, policy in {"preset": {"preset": "trickle"}, "part": {
    "preset": "sync-disaggregated", "parts": {"admission": {"use": "trickle", "limit": 3}}}}.items():
    log = ran(policy)
    found[name] = [max(len({s // 2 for s in moment.calls}) for moment in moments(log)), len(log.iterations)]
try:
    resolve(scenario({"preset": "trickle", "parts": {"update": {"use": "publish", "mode": "drain", "every_steps": 2}}}))
except ResolveError as error:
    found["refused"] = [error.path, error.allowed]
found["tested"] = [ADMISSIONS[-1], POLICIES["trickle"]]
print(json.dumps(found))
sys.argv = ["rlsim", "policies"]
main()
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program with the part of the recipe and a preset of it."""
    folder = tmp_path_factory.mktemp("program")
    for module in (rlsim, calibration):
        source = Path(module.__file__ or "").parent
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    source = recipe().replace("@dataclass", '@part("admission", "trickle")\n@dataclass')
    source = source.replace("\n\n@part", "\nfrom rlsim.policies.registry import part\n\n\n@part")
    (folder / "rlsim" / "policies" / "admission" / "trickle.py").write_text(source, encoding="utf-8")
    (folder / "rlsim" / "presets" / "trickle.yaml").write_text(PRESET, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def output(package: Path) -> tuple[dict[str, Any], str]:
    """What a run of the copy says, and the list of its policies."""
    path = f"{package}:{Path(__file__).parent}"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=package,
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    first, _, rest = done.stdout.partition("\n")
    return json.loads(first), rest


def test_the_part_is_found_by_its_name_and_its_preset_runs(package: Path, output: tuple[dict[str, Any], str]) -> None:
    report, _ = output
    assert Path(report["package"]).is_relative_to(package)
    assert report["part"] == report["preset"] == [3, 5]


def test_the_part_is_held_to_the_rules_on_combinations(output: tuple[dict[str, Any], str]) -> None:
    path, allowed = output[0]["refused"]
    assert path == "policy.parts.update.every_steps"
    assert allowed.startswith("at most 1: this admission lets 1 batch(es) in for each version")


def test_the_tests_take_the_part_and_its_preset_without_being_told(output: tuple[dict[str, Any], str]) -> None:
    assert output[0]["tested"] == [{"use": "trickle", "limit": 1}, {}]


def test_the_part_and_its_preset_are_listed(output: tuple[dict[str, Any], str]) -> None:
    rows = [line.split() for line in output[1].splitlines() if "Never more than" in line]
    assert [row[: 2 if "limit" in row else 1] for row in rows] == [["admission", "trickle"], ["trickle"]]
