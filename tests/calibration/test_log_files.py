"""Log files as data: what each reader takes in, and what it refuses with the file, the line and what is allowed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from calibration.logs.formats import FORMAT_NAMES, READERS, format_of
from rlsim.cli.main import app
from rlsim.core.errors import ParameterError


def test_the_extra_is_named_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing.event_accumulator", None)
    (tmp_path / "events.out.tfevents.1").write_bytes(b"")
    with pytest.raises(ParameterError, match=r"rlsim\[logs\]"):
        READERS["tensorboard"](tmp_path)


def test_two_runs_in_one_export_are_refused(tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("Step,a - timing/step,b - timing/step\n1,2,3\n")
    with pytest.raises(ParameterError, match="the export of one run"):
        READERS["wandb-csv"](tmp_path / "two.csv")


def test_numbers_of_numpy_and_nan_are_read_from_console_dicts_as_data(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text(
        "perf 1: {'perf/step_time': np.float64(2.5), 'perf/x': nan}\n"
        "step 1: {'loss': __import__('os').getpid()}\n"
        "eval 1: {'perf/step_time': 99.0}\n"
    )
    log = READERS["console-dicts"](file)
    assert log.rows == {1: {"perf/step_time": 2.5}}
    assert log.notes[0].startswith("step lines that are not understood: 1, first at line 2")
    assert log.notes[1].startswith("lines of evaluations and summaries left out: 1, first at line 3")


def test_a_resumed_runs_later_values_count(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    rows = [{"step": 1, "data": {"a": 1.0}}, {"step": 2, "data": {"a": 2.0}}, {"step": 2, "data": {"a": 3.0}}]
    file.write_text("\n".join(json.dumps(row) for row in rows))
    log = READERS["jsonl"](file)
    assert log.rows[2] == {"a": 3.0}
    assert log.notes[0].startswith("steps that came again with other values: 1, step 2 (a restart")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("m.jsonl", "{broken\n", "m.jsonl: .*lines that are no JSON object: 1, first at line 1"),
        ("m.jsonl", '{"data": {"a": 1}}\n', "rows without a step"),
        ("trainer_state.json", '{"log_history": 3}', "log_history"),
        ("m.csv", "Step,a\n", "no training steps"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ParameterError, match=said):
        READERS[format_of(tmp_path / name)](tmp_path / name)


def test_an_unknown_format_lists_those_that_are_known(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here\n\nloaded 3 shards\n")
    with pytest.raises(ParameterError, match=r"line 3: loaded 3 shards.*--format, one of those .*: timelines, .*jsonl"):
        format_of(tmp_path / "notes.txt")
    with pytest.raises(ParameterError, match="json"):
        format_of(tmp_path / "notes.txt", "jsonlines")


def test_the_guide_and_the_help_list_every_format() -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/calibrate.md").read_text()
    assert {name for name in FORMAT_NAMES if f"`{name}`" not in guide} == set()
    help_text = next(
        option.help
        for option in get_command(app).commands["calibrate"].commands["logs"].params
        if option.name == "kind"
    )
    assert help_text == f"auto, {', '.join(FORMAT_NAMES)}."
