"""Without the packages of an extra, every live command fails in one line that names the extra and README's section.

The packages are hidden from the command's process, so that it is the same wherever the tests run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HIDDEN = ("torch", "vllm", "ray", "transformers", "safetensors", "aiohttp", "tokenizers")
HIDE = f"""
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in {HIDDEN!r}
        return None if hidden else self.finder.find_spec(name, path, target)

sys.meta_path = [Hiding(finder) for finder in sys.meta_path]
sys.argv[0] = "rlsim"
from rlsim.cli.main import main
main()
"""
COMMANDS = {
    "run scenarios/live/small.yaml --arm sync --live vllm": "live",
    "run scenarios/live/paced.yaml --arm sync --live vllm-paced": "live",
    "run scenarios/live/servers.yaml --arm sync --live openai": "servers",
    "run scenarios/live/small.yaml --arm sync --live vllm --cluster ray": "cluster",
    "run scenarios/live/paced.yaml --arm sync --live vllm-paced --cluster ray": "cluster",
    "parity scenarios/live/two-cores.yaml --live vllm --arm sync": "live",
    "parity scenarios/live/paced.yaml --live vllm-paced --arm sync": "live",
    "parity scenarios/live/servers.yaml --arm sync --live openai": "servers",
    "servers http://127.0.0.1:9/v1": "servers",
    "calibrate vllm": "live",
    "calibrate torch": "calibrate",
    "calibrate transport --path broadcast": "calibrate",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_extra_and_its_section_are_named_in_one_line(command: str, tmp_path: Path) -> None:
    words = [str(ROOT / word) if word.startswith("scenarios/") else word for word in command.split()]
    done = subprocess.run(
        [sys.executable, "-c", HIDE, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode not in (0, None), done.stdout
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert f"rlsim[{COMMANDS[command]}]" in line
    section = re.search(r"README, section (\w+)", line)
    assert section is not None, line
    assert f"\n## {section[1]}\n" in (ROOT / "README.md").read_text()
    assert list(tmp_path.iterdir()) == []
