"""Runs that are stopped from outside, from the command line: what is on disk, and with which exit code."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from policy_runs import BASE

ENDLESS = 10**6


def scenario_file(directory: Path, steps: int = ENDLESS, warmup: int = 0) -> Path:
    path = directory / "small.yaml"
    run = {"steps": steps, "warmup_steps": warmup, "replications": 1}
    path.write_text(json.dumps({**BASE, "policy": {"preset": "areal"}, "run": run}))
    return path


def begin(scenario: Path, out: Path, code: str = "", engine: str = "fake") -> subprocess.Popen[str]:
    """``rlsim run --live`` in a process of its own; ``code`` runs before it."""
    program = f"{code}\nfrom rlsim.cli.main import main; main()"
    command = [sys.executable, "-c", program, "run", str(scenario), "--live", engine, "--out", str(out)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env={**os.environ, "NO_COLOR": "1"})


def folder(out: Path) -> Path:
    return out / "small" / "replication-0"


def journal(out: Path) -> Path:
    return folder(out) / "decisions.jsonl"


def wait_for(out: Path, size_bytes: int) -> None:
    """Until the journal holds so much."""
    for _ in range(3000):
        if journal(out).exists() and journal(out).stat().st_size > size_bytes:
            return
        time.sleep(0.02)
    raise AssertionError("the run did not get going")


def replayed(out: Path) -> str:
    command = [sys.executable, "-c", "from rlsim.cli.main import main; main()", "replay", str(folder(out))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_with_everything_written(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out"
    process = begin(scenario_file(tmp_path), out)
    wait_for(out, 100_000)
    process.send_signal(number)
    shown, said = process.communicate(timeout=120)
    assert process.returncode == 4, said
    assert f"{number.name}: the run was stopped; everything up to here is in its log" in said
    assert "Traceback" not in said
    assert "token ledger closes in all of them" in " ".join(shown.split())
    lines = journal(out).read_bytes().splitlines(keepends=True)
    assert all(line.endswith(b"\n") for line in lines)
    assert replayed(out).startswith(f"{len(lines)} decisions replayed")
    names = {path.name for path in folder(out).iterdir()}
    assert {"samples.parquet", "timeline.png", "live.json", "decisions.jsonl"} <= names
    assert not {name for name in names if name.startswith(".")}
    assert number.name in json.loads((folder(out) / "live.json").read_text())["fault"]


def test_a_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    """Engines that take for ever to close, as hung ones do."""
    code = (
        "import asyncio, rlsim.live.fake as fake\n"
        "async def close(self):\n"
        "    print('closing', flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "fake.FakeEngine.close = close\n"
    )
    out = tmp_path / "out"
    process = begin(scenario_file(tmp_path), out, code)
    wait_for(out, 20_000)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "closing\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "decisions replayed" in replayed(out)


def test_an_interrupt_while_engines_start_stops_them(tmp_path: Path) -> None:
    code = (
        "import asyncio, rlsim.live.fake as fake\n"
        "async def start(self):\n"
        "    print('starting', flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "async def close(self):\n"
        "    print('closed', flush=True)\n"
        "fake.FakeEngine.start, fake.FakeEngine.close = start, close\n"
    )
    process = begin(scenario_file(tmp_path), tmp_path / "out", code)
    assert process.stdout is not None
    assert process.stdout.readline() == "starting\n"
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=60)
    assert process.returncode == 4, said
    assert said == "interrupted while engines and trainer were starting: nothing was run\n"
    assert shown.count("closed") == 2


def test_a_killed_driver_leaves_a_journal_that_replays_as_far_as_it_came(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begin(scenario_file(tmp_path), out)
    wait_for(out, 100_000)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert {path.name for path in folder(out).iterdir()} == {"decisions.jsonl"}
    whole = journal(out).read_bytes().count(b"\n")
    assert replayed(out).startswith(f"{whole} decisions replayed")
    os.truncate(journal(out), journal(out).stat().st_size - 7)
    assert replayed(out).startswith(f"{whole - 1} decisions replayed")


def test_a_file_that_may_not_grow_stops_the_run(tmp_path: Path) -> None:
    """The limit on the size of a file is met in the middle of a line."""
    out = tmp_path / "out"
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    code = (
        "import rlsim.results.replay.decisions as journal\n"
        "journal.RESERVE_BYTES = 4096\n"
        "journal.FileJournal.__init__.__defaults__ = (4096,)\n"
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, {hard}))"
    )
    process = begin(scenario_file(tmp_path), out, code)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 4, said
    assert "decisions.jsonl: File too large; the run has stopped" in said
    assert "Traceback" not in said
    assert journal(out).read_bytes().endswith(b"\n")
    assert "decisions replayed" in replayed(out)
    assert not [path for path in out.rglob("*") if path.name.endswith((".part", ".old"))]


def test_a_full_disk_stops_the_run_and_its_tables_fit_in_the_reserve(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=18m", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a file system here")
    try:
        process = begin(scenario_file(tmp_path), disk / "out")
        _, said = process.communicate(timeout=240)
        assert process.returncode == 4, said
        assert "No space left on device; the run has stopped, its log is whole" in said
        assert "Traceback" not in said
        names = {path.name for path in folder(disk / "out").iterdir()}
        assert {"samples.parquet", "timeline.png", "live.json", "decisions.jsonl"} <= names
        assert journal(disk / "out").read_bytes().endswith(b"\n")
        assert "decisions replayed" in replayed(disk / "out")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_mistake_in_an_engine_shows_its_traceback_once_and_exits_with_1(tmp_path: Path) -> None:
    code = (
        "import rlsim.live.fake as fake\n"
        "was = fake.FakeEngine.generate\n"
        "async def generate(self, call, made):\n"
        "    if call.sample == 30: raise ZeroDivisionError('a mistake')\n"
        "    await was(self, call, made)\n"
        "fake.FakeEngine.generate = generate\n"
    )
    out = tmp_path / "out"
    process = begin(scenario_file(tmp_path, 20, 5), out, code)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert said.count("Traceback") == said.count("ZeroDivisionError: a mistake") == 1
    assert "decisions replayed" in replayed(out)
    assert (folder(out) / "samples.parquet").is_file()
    assert json.loads((folder(out) / "live.json").read_text())["fault"] == "ZeroDivisionError: a mistake"


def test_a_run_without_the_disk_space_for_its_reserve_does_not_begin(tmp_path: Path) -> None:
    code = (
        "import errno, os\n"
        "def full(*_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "os.posix_fallocate = full\n"
    )
    process = begin(scenario_file(tmp_path), tmp_path / "out", code)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2, said
    assert said.count("\n") == 1
    assert "No space left on device" in said


# -- refusals -----------------------------------------------------------------------------------------


def test_an_unknown_engine_is_refused_in_one_line_with_the_nearest_spelling(tmp_path: Path) -> None:
    process = begin(scenario_file(tmp_path), tmp_path / "out", engine="fakee")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.count("\n") == 1
    assert "--live: found 'fakee'" in said
    assert "did you mean 'fake'?" in said


def test_an_oracle_is_refused_with_its_key_before_anything_starts(tmp_path: Path) -> None:
    path = scenario_file(tmp_path)
    given = json.loads(path.read_text())
    given["policy"] = {"preset": "areal", "parts": {"ordering": {"use": "longest-first", "predictor": "oracle"}}}
    given["rollout"]["scheduling_policy"] = "priority"
    path.write_text(json.dumps(given))
    process = begin(path, tmp_path / "out")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.count("\n") == 1
    assert "policy.parts.ordering" in said
    assert "a live run cannot tell lengths still to come" in said
    assert not (tmp_path / "out").exists()


def test_a_tool_that_the_engine_cannot_feed_is_refused(tmp_path: Path) -> None:
    path = scenario_file(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "live": {"tool": "calculator"}}))
    process = begin(path, tmp_path / "out")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.count("\n") == 1
    assert "live.tool: found 'calculator'; allowed: paced" in said


def test_something_else_where_the_run_is_to_go_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder(out).mkdir(parents=True)
    (folder(out) / "thesis.tex").write_text("years of work")
    process = begin(scenario_file(tmp_path), out)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.count("\n") == 1
    assert "allowed: a new directory, or an earlier run of rlsim" in said
    assert (folder(out) / "thesis.tex").read_text() == "years of work"
