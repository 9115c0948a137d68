"""Every notebook runs from top to bottom, and its two files are one notebook."""

from __future__ import annotations

import json
import re
import resource
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "notebooks").glob("*.py"))
LITTLE = {
    "run.replications": 2, "run.steps": 3, "run.warmup_steps": 1, "workload.prompts_per_step": 8,
    "workload.group_size": 4, "trainer.updates_per_step": 1,
}  # fmt: skip
FEW = {"BOUNDS": "(0, 2)", "GPUS": "(8, 16)", "LIMITS": "(4, 8)", "RACE_STEPS": "3", "SIGMAS": "(0.4, 1.2)"}
WRITE_AGAIN = "jupytext --sync notebooks/*.py"
MOST_CPU_SECONDS = 60
"""Of a notebook, on a slow core; all of them are to take less than 6 minutes."""


def small(text: str) -> str:
    """The notebook with little in it: what is in the first cell stands for edits by a reader."""
    text, edits = re.subn(r"^SETTINGS = (\{.*\})$", lambda found: f"SETTINGS = {found[1]} | {LITTLE}", text, flags=re.M)
    assert edits == 1, "the first cell of a notebook has the numbers to edit, on one line"
    for name, value in FEW.items():
        text = re.sub(rf"^{name} = \([^)]*\)", f"{name} = {value}", text, flags=re.M)
        text = re.sub(rf"^(.*\b){name} = ([^,]+, [^,]+), \d+$", rf"\g<1>{name} = \g<2>, {value}", text, flags=re.M)
    return text


def cells(script: str) -> list[tuple[str, str]]:
    """Kind and source of every cell of a percent script."""
    found = []
    for part in re.split(r"^# %%", script, flags=re.M)[1:]:
        first, _, body = part.partition("\n")
        kind = "markdown" if "[markdown]" in first else "code"
        lines = body.strip("\n").split("\n")
        found.append((kind, "\n".join(line.removeprefix("#").removeprefix(" ") if kind == "markdown" else line for line in lines)))  # fmt: skip # noqa: E501
    return found


def notebook(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folders that notebooks are opened in."""
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    return tmp_path / "notebooks"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_it_runs(path: Path, place: Path) -> None:
    (place / path.name).write_text(small(path.read_text(encoding="utf-8")), encoding="utf-8")
    runpy.run_path(str(place / path.name))
    assert list(place.rglob("*.png"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_both_files_are_one_notebook(path: Path) -> None:
    told = f"{path.stem}.ipynb is not {path.name}; write it again: {WRITE_AGAIN}"
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook(path)["cells"]]
    assert found == cells(path.read_text(encoding="utf-8")), told


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs_and_begins_with_the_numbers(path: Path) -> None:
    code = [cell for cell in notebook(path)["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    assert "SETTINGS = {" in "".join(code[0]["source"])


def test_the_folders_page_lists_them() -> None:
    page = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"`(\w+)\.ipynb`", page) == [
        "first_comparison", "sizing_a_purchase", "calibrating", "async_or_not", "writing_a_policy", "long_tail",
    ]  # fmt: skip
    assert len(SCRIPTS) == 6


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_it_runs_as_a_reader_finds_it(path: Path, place: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="no Jupyter: pip install 'rlsim[notebooks]'")
    nbclient = pytest.importorskip("nbclient", reason="no Jupyter: pip install 'rlsim[notebooks]'")
    book = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    before = _cpu_seconds()
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
    used = _cpu_seconds() - before
    print(f"{path.stem}: {used:.0f} CPU-seconds")
    assert used < MOST_CPU_SECONDS
    shown = [
        output for cell in book.cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})
    ]
    saved = list(place.glob("out/*/*.png"))
    assert len(shown) == len(saved) > 0, "every figure is shown where it is made"


def _cpu_seconds() -> float:
    """Of processes that have ended and been waited for, kernels among them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
