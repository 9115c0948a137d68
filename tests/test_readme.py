"""The README's blocks run as they stand; installation and the test command are run by CI in a bare environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
LAUNCHER = '#!/bin/sh\nexec "{python}" -c "from rlsim.cli.main import main; main()" "$@"\n'


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.S | re.M)


def test_every_command_runs_and_the_first_one_ends_with_the_published_numbers(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    launcher = tmp_path / "bin" / "rlsim"
    launcher.parent.mkdir()
    launcher.write_text(LAUNCHER.format(python=sys.executable))
    launcher.chmod(0o755)
    commands = [line for block in blocks("bash") for line in block.splitlines() if "pytest" not in line]
    assert len(commands) >= 4
    outputs = []
    for command in commands:
        path = f"{launcher.parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}
        run = subprocess.run(
            ["bash", "-euc", command.removeprefix("pip install -e . && ")],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert run.returncode == 0, (command, run.stderr)
        outputs.append(run.stdout)
    assert "92.8" in outputs[0]
    assert "64.8" in outputs[0]


def test_it_says_which_rlsim_it_is_not() -> None:
    assert "arXiv 2601.01209" in README
