"""The command line: what it prints, where, with which exit code, and that it prints the same bytes again."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"


def rlsim(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from rlsim.cli.main import main; main()", *arguments]
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb", **environment}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)


def small_file(directory: Path, over_sampling: int = 12) -> Path:
    """The quickstart with little in it."""
    text = QUICKSTART.read_text()
    for old, new in (
        ("prompts_per_step: 64", "prompts_per_step: 8"),
        ("group_size: 32", "group_size: 4"),
        ("steps: 5", "steps: 3"),
        ("warmup_steps: 2", "warmup_steps: 1"),
        ("replications: 4", "replications: 2"),
        ("over_sampling_batch_size: 96", f"over_sampling_batch_size: {over_sampling}"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    path = directory / "small.yaml"
    path.write_text(text)
    return path


def digest(directory: Path) -> dict[str, str]:
    """Contents of the results; the store of runs beside them holds the CPU seconds of each run."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.parent.name != "runs")
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, rlsim.cli.main\n"
        "heavy = {'numpy', 'pandas', 'scipy', 'matplotlib', 'pydantic', 'pyarrow', 'simpy'} & set(sys.modules)\n"
        "sys.exit(f'{heavy} imported' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_compare_prints_results_on_stdout_alone_and_the_same_bytes_again(tmp_path: Path) -> None:
    small = small_file(tmp_path)
    runs = []
    for seed in ("0", "4242"):
        out = tmp_path / f"out{seed}"
        done = rlsim("compare", str(small), "--out", str(out), PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        runs.append((done.stdout, digest(out)))
    (first, files), (second, again) = runs
    assert first == second
    assert files == again
    for published in ("92.8", "64.8", "(fitted)", "ESTIMATE, training"):
        assert published in first
    assert "token ledger closes" in first
    parquet = [name for name in files if name.endswith(".parquet")]
    assert len(parquet) == 4 * 2 * 6, "six tables of two replications of four arms"


def test_saved_runs_are_traced_plotted_and_replayed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    small = small_file(tmp_path)
    assert rlsim("run", str(small), "--arm", "one-off 8+8", "--out", str(out)).returncode == 0
    (saved,) = out.glob("*/replication-0")
    replayed = rlsim("replay", str(saved))
    assert replayed.returncode == 0, replayed.stderr
    assert "all" in replayed.stdout
    assert "commands equal" in replayed.stdout
    assert rlsim("trace", str(saved), "--to", str(tmp_path / "t.json")).returncode == 0
    assert json.loads((tmp_path / "t.json").read_text())
    plotted = rlsim("plot", str(saved))
    assert plotted.returncode == 0, plotted.stderr
    assert all(Path(line).stat().st_size > 10_000 for line in plotted.stdout.splitlines())


def test_json_holds_every_replication(tmp_path: Path) -> None:
    done = rlsim("compare", str(small_file(tmp_path)), "--json")
    told = json.loads(done.stdout)
    assert [len(arm["replications"]) for arm in told["arms"].values()] == [2, 2, 2, 2]
    first = told["arms"]["on-policy colocated"]
    assert first["published"]["step_seconds"] == 92.8
    assert all(run["ledger_closes"] for arm in told["arms"].values() for run in arm["replications"])


def test_the_arm_must_be_said_and_is_guessed() -> None:
    unsaid = rlsim("run", str(QUICKSTART))
    assert unsaid.returncode == 2
    assert "one-off 8+8" in unsaid.stderr
    misspelt = rlsim("run", str(QUICKSTART), "--arm", "one-of 8+8")
    assert misspelt.returncode == 2
    assert "did you mean 'one-off 8+8'" in misspelt.stderr


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("group_size: 32", "group_sise: 32", ("group_size",)),
        ("max_head_offpolicyness: 2", "max_head_offpolicines: 2", ("max_head_offpolicyness",)),
        ("sigma: 0.8", "sigmaa: 0.8", ("sigma",)),
        ("over_sampling_batch_size: 96", "over_sampling_batch_size: 3", ("at least prompts_per_step",)),
    ],
)
def test_a_bad_file_ends_with_a_line_and_no_traceback(
    tmp_path: Path, old: str, new: str, told: tuple[str, ...]
) -> None:
    text = QUICKSTART.read_text()
    assert old in text
    bad = tmp_path / "bad.yaml"
    bad.write_text(text.replace(old, new))
    line = text[: text.index(old)].count("\n") + 1
    done = rlsim("compare", str(bad))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert f"bad.yaml:{line}" in done.stderr
    for words in told:
        assert words in done.stderr


def test_a_reader_may_leave_early() -> None:
    command = [sys.executable, "-c", "from rlsim.cli.main import main; main()", "run", "--help"]
    environment = {**os.environ, "COLUMNS": "20000"}  # more than a pipe holds
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, b"")
