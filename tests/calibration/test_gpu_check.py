"""The script for one GPU, as far as it can be tried without one: what it says where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "calibration" / "gpu_check.sh"


def no_gpu() -> bool:
    return not Path("/proc/driver/nvidia/version").exists()


@pytest.mark.skipif(not no_gpu(), reason="there is a GPU: run calibration/gpu_check.sh itself")
def test_without_a_gpu_it_says_so_and_measures_nothing(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        ["bash", str(SCRIPT)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip() in (
        "torch sees no CUDA GPU",
        "torch is not installed: pip install 'rlsim[calibrate]'",
    )
    assert not list(tmp_path.iterdir())
