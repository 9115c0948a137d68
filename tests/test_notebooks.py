"""Every notebook runs from top to bottom, with little in it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LITTLE = '["run.replications=2", "run.steps=3", "workload.prompts_per_step=8", "trainer.updates_per_step=1"]'


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, edits = re.subn(r"^SETS = .*$", f"SETS = {LITTLE}", path.read_text(), flags=re.M)
    assert edits == 1, "the first cell of a notebook has the numbers to edit"
    text = text.replace('SCENARIO = "', f'SCENARIO = "{ROOT}/')
    (tmp_path / path.name).write_text(text)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(tmp_path / path.name))
    assert list(tmp_path.rglob("*.png"))
