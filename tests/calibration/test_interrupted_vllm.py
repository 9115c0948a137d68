"""A calibration of real vLLM, stopped in the middle, twice: it goes on from its samples and leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from calibration.measure.journal import beside
from rlsim.cli.calibrate import INTERRUPTED
from rlsim.costs.profile import load_profile
from rlsim.live.vllm.setup import vllm_version

SMALL = ["--max-num-seqs", "4", "--max-num-batched-tokens", "128", "--max-model-len", "384"]
"""An engine of few points: passes of seconds."""
QUICK = ["--budget", "100s", "--tolerance", "1.0"]
"""Ends after the passes that must be, if the machine is not all disturbed."""
MOST_SECONDS = 300


def started(out: Path) -> subprocess.Popen[str]:
    """The command as a user gives it, in a session of its own, by which all that it starts can be told."""
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # whoever started the tests
    main = f"{heeding}; from rlsim.cli.main import main; main()"
    program = [sys.executable, "-c", main, "calibrate", "vllm", "--device", "cpu"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*program, "--out", str(out), *SMALL, *QUICK], stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def visits(out: Path) -> list[dict[str, object]]:
    """Whole lines of the raw samples that are visits."""
    text = beside(out).read_text(encoding="utf-8") if beside(out).exists() else ""
    lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return [line for line in lines if "point" in line]


def interrupted(out: Path, number: int, after: int) -> int:
    """The exit status of the command, sent a signal after so many visits in the file; nothing of it still runs."""
    running = started(out)
    end = time.monotonic() + MOST_SECONDS
    while len(visits(out)) < after:
        assert running.poll() is None, running.communicate()[1][-4000:]
        assert time.monotonic() < end
        time.sleep(0.1)
    running.send_signal(number)
    running.communicate(timeout=MOST_SECONDS)
    assert not left_of(running.pid)
    return running.returncode


def left_of(session: int) -> list[str]:
    """Command lines of the processes of a session, other than the dead."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            status = (process / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            if int(status[3]) == session and status[0] not in "ZX":
                found.append((process / "cmdline").read_text(encoding="utf-8"))
        except (OSError, ValueError, IndexError):
            continue
    return found


@pytest.mark.slow
def test_an_interrupted_and_a_killed_calibration_go_on_and_measure_nothing_twice(tmp_path: Path) -> None:
    if vllm_version() is None:
        pytest.skip("vLLM is not installed")
    out = tmp_path / "profile.json"
    assert interrupted(out, signal.SIGINT, after=5) == INTERRUPTED
    kept = visits(out)
    assert interrupted(out, signal.SIGKILL, after=len(kept) + 5) == -signal.SIGKILL
    again = visits(out)
    assert again[: len(kept)] == kept
    last = started(out)
    printed, said = last.communicate(timeout=MOST_SECONDS)
    assert last.returncode == 0, said[-4000:]
    assert not left_of(last.pid)
    assert "repeats are" in printed
    everything = visits(out)
    assert everything[: len(again)] == again
    times = Counter((json.dumps(visit["point"]), visit["number"]) for visit in everything)
    twice = {key: count for key, count in times.items() if count > 1}
    assert all(number >= 6 for _, number in twice), "only what a fit asks for twice in a pass is measured twice"
    recorded = [json.loads(line) for line in beside(out).read_text(encoding="utf-8").splitlines()]
    names = Counter(line["name"] for line in recorded if line.get("record") == "time")
    assert set(names.values()) == {1}
    assert load_profile(str(out)).step is not None
