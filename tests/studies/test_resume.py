"""Every study that is killed goes on where it was, and prints what it would have printed."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sweep_files import ARMS, ENVIRONMENT, ROOT, command, rlsim, written
from test_sweep import kept_runs

LEARNS = "learning:\n  curve: {half_updates: 2}\n"
MANY = ("replications: 2", "replications: 6")
ENTRY = """\
entry: {id: T1, title: small, source: by hand, assumptions: [none]}
published:
  - {step_seconds: 10.0, source: by hand, grade: A}
"""


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "compare": lambda folder: ["compare", str(written(folder, ARMS, MANY))],
    "race": lambda folder: ["race", str(written(folder, LEARNS + ARMS, MANY)), "--to", "0.45"],
    "sweep": lambda folder: ["sweep", str(written(folder)), "--set", "seed=1,2,3,4,5,6"],
    "explain": lambda folder: ["explain", str(written(folder))],
    "validate": lambda folder: ["validate", str(written(folder, ENTRY + ARMS, MANY))],
    "plan": lambda folder: ["plan", str(written(folder)), "--search", "split={gpus: 6, step: 1}"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_makes_what_it_lacks_and_prints_what_an_unkilled_one_does(name: str, tmp_path: Path) -> None:
    arguments = [*COMMANDS[name](tmp_path), "--workers", "1", "--out"]
    whole, out = tmp_path / "whole", tmp_path / "out"
    unkilled = rlsim(*arguments, str(whole))
    assert unkilled.returncode == 0, unkilled.stderr
    with subprocess.Popen(
        command(*arguments, str(out)),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        while kept_runs(out) < 1:
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept, runs = kept_runs(out), kept_runs(whole)
    assert 1 <= kept < runs
    resumed = rlsim(*arguments, str(out))
    assert resumed.stdout == unkilled.stdout
    assert f"{kept} of {runs} runs were kept in {out}" in resumed.stderr
    again = rlsim(*arguments, str(out))
    assert again.stdout == unkilled.stdout
    assert f"{runs} of {runs} runs were kept in {out}" in again.stderr


def test_a_run_whose_files_are_not_whole_is_made_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["compare", str(written(tmp_path, ARMS)), "--workers", "1", "--out", str(out)]
    first = rlsim(*arguments)
    lost = out / "fresh" / "replication-1" / "samples.parquet"
    rows = lost.read_bytes()
    lost.write_bytes(rows[:100])
    again = rlsim(*arguments)
    assert again.stdout == first.stdout
    assert "3 of 4 runs were kept" in again.stderr
    assert lost.read_bytes() == rows
