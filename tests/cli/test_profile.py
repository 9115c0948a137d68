"""``rlsim profile`` and the commands that make profiles from tables."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlsim.costs.profile import list_profiles, load_profile

ROOT = Path(__file__).parents[2]
HEAVY = ("pandas", "scipy", "matplotlib", "torch", "vllm", "aiconfigurator_core", "simpy", "pyarrow")
TABLES_INSTALLED = importlib.util.find_spec("aiconfigurator_core") is not None


def rlsim(*arguments: str, code: str = "from rlsim.cli.main import main; main()") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_the_list_has_every_shipped_profile_with_its_errors() -> None:
    done = rlsim("profile", "list")
    lines = [line for line in done.stdout.splitlines() if "silicon-table" in line]
    assert [line.split()[0] for line in lines] == list_profiles()
    told = [line.partition(" misses ") for line in lines]
    assert all(errors.count("%") == 6 for errors, _, _ in told)
    assert all(misses.count("%") >= 2 and " > " in misses for _, named, misses in told if named)
    assert rlsim("profile", "list").stdout == done.stdout


@pytest.mark.parametrize(
    "arguments", [("profile", "list"), ("profile", "--help"), ("profile", "show", "qwen3-8b_h100-sxm_tp1")]
)
def test_listing_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    code = f"""
import sys
from rlsim.cli.main import app
app(standalone_mode=False)
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""
    assert rlsim(*arguments, code=code).stderr.strip() == "[]"


def test_a_profile_in_a_file_can_be_shown_and_drawn(tmp_path: Path) -> None:
    load_profile("qwen3-8b_h100-sxm_tp1").write(tmp_path / "mine.json")
    shown = rlsim("profile", "show", str(tmp_path / "mine.json"), "--json")
    assert json.loads(shown.stdout)["verdict"]["level"] == "good"
    drawn = rlsim("profile", "plot", str(tmp_path / "mine.json"), "--out", str(tmp_path / "mine.png"))
    assert drawn.stdout.strip() == str(tmp_path / "mine.png")
    assert (tmp_path / "mine.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_profile_gets_the_nearest_name_and_exit_code_2() -> None:
    done = rlsim("profile", "show", "qwen3-8b_h100_tp1")
    assert done.returncode == 2
    assert "did you mean 'qwen3-8b_h100-sxm_tp1'" in done.stderr


@pytest.mark.skipif(TABLES_INSTALLED, reason="the tables are installed")
def test_without_the_tables_calibration_says_what_to_install(tmp_path: Path) -> None:
    out = tmp_path / "mine.json"
    done = rlsim("calibrate", "tables", "--model", "Qwen3-8B", "--device", "H100-SXM", "--out", str(out))
    assert done.returncode == 2
    assert "pip install 'rlsim[tables]'" in done.stderr
    assert not out.exists()


@pytest.mark.skipif(not TABLES_INSTALLED, reason="needs the tables extra")
def test_the_catalogue_is_made_again_by_one_command(tmp_path: Path) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text("model,device,tensor_parallel,expert_parallel,backend\nQwen3-4B,B200,1,1,vllm\n")
    command = ("catalog", "--cases", str(cases), "--out", str(tmp_path / "made"))
    code = "from evidence.__main__ import main; main()"
    assert rlsim(*command, code=code).stdout == f"1 profiles written to {tmp_path / 'made'}, 0 were there\n"
    assert rlsim(*command, code=code).stdout == f"0 profiles written to {tmp_path / 'made'}, 1 were there\n"
    made = load_profile(tmp_path / "made" / "qwen3-4b_b200_tp1.json")
    assert made.hold_out_by_kind == load_profile("qwen3-4b_b200_tp1").hold_out_by_kind
