"""`rlsim explain`: what it prints for one scenario and for several cases, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from small_cases import CASE, written

ROOT = Path(__file__).parents[2]


def rlsim(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from rlsim.cli.main import main; main()", "explain", "--workers", "1", *arguments]
    env = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_a_scenario_with_a_case_gets_bottleneck_evidence_changes_and_answer(tmp_path: Path) -> None:
    done = rlsim(str(written(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("small: slow\n")
    for words in (
        "rollout GPUs",
        "KV cache",
        "weight sync",
        "What helps most of",
        "  observed    twice as long (by hand)",
    ):
        assert words in done.stdout
    assert "direction yes, size yes (+0%)" in done.stdout


def test_cases_of_a_directory_are_one_table(tmp_path: Path) -> None:
    written(tmp_path).rename(tmp_path / "other.yaml")
    written(tmp_path, CASE, ("id: T1", "id: T2"), (" size: 2", " size: 5"))
    done = rlsim("--cases", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (
        "2 cases: 2 reproduce the direction (whole interval), 1 of 2 sizes are within 25%; 1 agree in both."
        in done.stdout
    )
    read = json.loads(rlsim("--cases", str(tmp_path), "--json").stdout)
    assert [one["agrees"] for one in read["cases"]] == [False, True]


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    file = str(written(tmp_path))
    for arguments, words in (
        ((file, "--arm", "slower"), "did you mean 'slow'"),
        (("--cases", str(tmp_path), "--arm", "slow"), "--arm: found 'slow'; allowed: only with one scenario"),
        (("--cases", str(tmp_path / "none")), "a directory with scenario files"),
        ((), "a scenario file, or --cases with a directory"),
    ):
        done = rlsim(*arguments)
        assert done.returncode == 2
        assert words in done.stderr
