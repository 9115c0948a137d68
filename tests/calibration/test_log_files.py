"""Log files as data: what each reader takes in, and what it refuses with the file, the line and what is allowed."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import console_writers as writers
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
    guide = (Path(__file__).parents[2] / "docs/guide/fit-a-log.md").read_text()
    assert {name for name in FORMAT_NAMES if f"`{name}`" not in guide} == set()
    help_text = next(
        option.help
        for option in get_command(app).commands["calibrate"].commands["logs"].params
        if option.name == "kind"
    )
    assert help_text == f"auto, {', '.join(FORMAT_NAMES)}."


# -- rotated, cut and damaged files -----------------------------------------------------------------------


def test_rotated_and_compressed_files_are_read_oldest_first(tmp_path: Path) -> None:
    console = writers.CONSOLES["verl"]
    rows = console.rows()
    lines = [f"{block[0]}\n" for block in console.blocks(rows)]
    (tmp_path / "run.log").write_text("".join(lines[14:]))
    (tmp_path / "run.log.1").write_text("".join(lines[8:14]))
    (tmp_path / "run.log.10.gz").write_bytes(gzip.compress("".join(lines[:3]).encode()))
    (tmp_path / "run.log.2.gz").write_bytes(gzip.compress("".join(lines[3:8]).encode()))
    (tmp_path / "other.log").write_text("nothing\n")
    log = writers.read(tmp_path / "run.log")
    assert console.known(log) == console.expected(rows)
    assert log.notes[0] == "4 files, oldest first: run.log.10.gz, run.log.2.gz, run.log.1, run.log"
    assert console.known(writers.read(tmp_path)) == console.expected(rows)


def test_a_compressed_file_that_was_cut_gives_what_is_there(tmp_path: Path) -> None:
    console = writers.CONSOLES["verl"]
    rows = console.rows()
    packed = gzip.compress("".join(f"{block[0]}\n" for block in console.blocks(rows[:12])).encode())
    (tmp_path / "run.log.gz").write_bytes(packed[: 2 * len(packed) // 3])
    log = writers.read(tmp_path / "run.log.gz")
    assert 3 < len(log.rows) < 12
    assert console.is_part(log, rows[:12])


def test_bytes_that_are_no_text_cost_their_line_at_most(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(b"\x00\x00step:1 - a:1.0 - b:2\n\xff\xfe\x80 step:2 - a:\xff - b:3\n")
    assert writers.read(tmp_path / "run.log").rows == {1: {"a": 1.0, "b": 2.0}, 2: {"b": 3.0}}


def test_two_steps_on_one_line_and_a_line_that_is_cut(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("step:1 - a:1.5step:2 - a:2.5\nstep:3 - a:3")
    log = writers.read(tmp_path / "run.log")
    assert log.rows == {1: {"a": 1.5}, 2: {"a": 2.5}}
    assert log.notes == ("lines at the end of a file without a line's end: 1, first at line 2: 'step:3 - a:3'",)


def test_lines_that_are_not_understood_are_counted(tmp_path: Path) -> None:
    lines = ['{"step": 1, "a": 1}', "oops", '{"a": 2}', "[1]", '{"step": NaN, "a": 3}', '{"step": 2, "a": 4']
    (tmp_path / "m.jsonl").write_text("\n".join(lines))
    assert [
        note.partition("line ")[0] + note.partition("line ")[2][:1] for note in writers.read(tmp_path / "m.jsonl").notes
    ] == [
        "lines that are no JSON object: 3, first at 2",
        "rows without step: 2, first at 3",
    ]


def test_steps_spread_over_calls_of_the_tracker_are_one_row(tmp_path: Path) -> None:
    rows = [
        {"_step": 0, "rollout/step": 5, "perf/rollout_time": 1.0, "perf/step_time": None},
        {"_step": 1, "rollout/step": 5, "perf/rollout_time": None, "perf/step_time": 2.0},
        {"_step": 2, "train/step": 11, "train/loss": 0.5},
    ]
    (tmp_path / "history.jsonl").write_text("\n".join(map(json.dumps, rows)))
    log = writers.read(tmp_path / "history.jsonl")
    assert {name: value for name, value in log.rows[5].items() if name.startswith("perf/")} == {
        "perf/rollout_time": 1.0,
        "perf/step_time": 2.0,
    }
    assert any(note.startswith("rows without rollout/step: 1, first at line 3") for note in log.notes)


@pytest.mark.parametrize("name", ["wandb-summary.json", "run-a1b2.wandb"])
def test_files_of_wandb_without_a_history_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"_step": 7, "timing/step": 1.0}')
    with pytest.raises(ParameterError, match="scan_history"):
        format_of(tmp_path / name)


def test_prime_rls_lines_of_either_time_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        "10:00:00 SUCCESS Step 7 |  1m 13s | Reward 0.5000 | Trainable 96/128 (75.0%) | Turns 1.0 | Truncation 2.5%\n"
        "\t\t ╰─ gsm8k | Ratio 50.0% | Reward 0.9\n"
        "10:00:01 SUCCESS Step 7 |   850ms | Loss 0.0100 | LR 1.00e-06 | Throughput 2.5K tokens/s | MFU 4.0%\n"
    )
    row = writers.read(tmp_path / "a.log").rows[7]
    assert row["orchestrator/Time"] == 73.0
    assert row["orchestrator/Truncation"] == 0.025
    assert row["trainer/Time"] == pytest.approx(0.85)
    assert row["trainer/Throughput"] == 2500.0


def test_numbers_that_the_trainer_rounds_are_read_but_for_the_running_total(tmp_path: Path) -> None:
    line = "{{'loss': '0.01', 'num_tokens': '9e+0{}', 'step_time': '41.{}', 'epoch': '0.0{}'}}\n"
    (tmp_path / "a.log").write_text("".join(line.format(n, n, n) for n in (4, 5, 4, 6)))
    log = writers.read(tmp_path / "a.log")
    assert [row["step_time"] for row in log.rows.values()] == [41.4, 41.5, 41.6]
    assert "num_tokens" not in log.names()
    assert "rounded to four digits" in log.notes[0]


def test_a_trainer_that_is_resumed_counts_from_its_epoch(tmp_path: Path) -> None:
    line = "{{'loss': 0.{}, 'step_time': {}.0, 'epoch': 0.{}}}\n"
    printed = [(1, 10, 1), (2, 11, 2), (3, 12, 3), (4, 21, 2), (5, 22, 3), (6, 23, 4)]
    (tmp_path / "a.log").write_text("".join(line.format(*one) for one in printed))
    log = writers.read(tmp_path / "a.log")
    assert [row["step_time"] for row in log.rows.values()] == [10.0, 21.0, 22.0, 23.0]
    assert log.notes[0].startswith("steps that came again with other values: 2, from 2 to 3")


def test_orchestrator_and_trainer_of_a_folder_are_one_log(tmp_path: Path) -> None:
    (tmp_path / "logs" / "trainer").mkdir(parents=True)
    (tmp_path / "logs" / "orchestrator.log").write_text(
        "INFO Step 3 | Time: 9.50s | Reward: 0.5 | Seq. Length: 9.0 t\n"
    )
    (tmp_path / "logs" / "trainer" / "rank_0.log").write_text("INFO Step 3 | Time: 4.00s | Loss: 0.5\n")
    (tmp_path / "config.json").write_text("{}")
    assert writers.read(tmp_path).rows[3] == {
        "orchestrator/Time": 9.5,
        "orchestrator/Reward": 0.5,
        "orchestrator/Seq. Length": 9.0,
        "trainer/Time": 4.0,
        "trainer/Loss": 0.5,
    }


def test_charts_of_one_run_in_a_folder_are_one_log(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Step,r - a,r - a__MIN\n1,1.5,1\n2,2.5,1\n")
    (tmp_path / "b.csv").write_text("Step,r - b\n1,10\n2,20")
    log = writers.read(tmp_path)
    assert log.rows == {1: {"a": 1.5, "b": 10.0}, 2: {"a": 2.5}}
    assert log.notes[1].startswith("lines at the end of a file without a line's end: 1, first at b.csv:3")


def test_faulty_event_files_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the logs extra")
    (tmp_path / "events.out.tfevents.1").write_bytes(b"no events at all" * 9)
    with pytest.raises(ParameterError, match="no training steps"):
        writers.read(tmp_path)
