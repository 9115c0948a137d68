"""The commands that calibrate a trainer and weight paths: what they are told, and what they say without torch."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rlsim.cli.calibrate import bytes_of, seconds_of
from rlsim.core.errors import ParameterError

RLSIM = [sys.executable, "-c", "from rlsim.cli.main import main; main()"]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("5m", 300), ("1h", 3600), ("30", 30), ("1.5m", 90)])
def test_a_budget_is_a_time(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(("text", "size"), [("64M", 64 << 20), ("1G", 1 << 30), ("4096", 4096), ("8MiB", 8 << 20)])
def test_bytes_are_powers_of_1024(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "soon", "-5m", "0s", "5 days"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match=r"^budget: "):
        seconds_of(text)


@pytest.mark.parametrize("text", ["", "many", "-5M", "1T"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match=r"^bytes: "):
        bytes_of(text)


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RLSIM, "calibrate", *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
@pytest.mark.parametrize(
    "command", [["torch"], ["transport", "--path", "broadcast", "--budget", "1s", "--bytes", "4M"]]
)
def test_without_torch_the_command_names_the_extra(command: list[str], tmp_path: Path) -> None:
    said = run(*command, folder=tmp_path)
    assert said.returncode == 2
    assert said.stderr.splitlines()[-1].startswith("torch: found 'not installed'")
    assert "pip install 'rlsim[calibrate]'" in said.stderr


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["torch", "--model", "lama"], "model: found 'lama'"),
        (["torch", "--device", "tpu"], "device: found 'tpu'; allowed: auto, cpu, cuda"),
        (["torch", "--model", "tiny2x128", "--most-tokens", "12"], "most_tokens: found 12; allowed: at least 256"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(command: list[str], said: str, tmp_path: Path) -> None:
    done = run(*command, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
