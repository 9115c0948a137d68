"""Every framework's console, CSV and JSON lines are read back as they were written, whatever happened to the file."""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import console_writers as writers
import pytest
import simulated_logs as logs
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.logs.engine_lines import read_stat_lines
from calibration.logs.engine_step_model import fit_stat_lines
from calibration.logs.formats import ENGINE_STATS, FORMAT_NAMES, READERS, format_of
from calibration.logs.frameworks import framework_of
from calibration.logs.records import TrainingLog
from calibration.logs.steps import read_steps
from rlsim.core.errors import ParameterError, RlsimError

ENGINE_LINE = (
    "(vLLMHttpServer pid=77) INFO 01-01 10:00:{:02d} [loggers.py:248] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    "Avg generation throughput: 99.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%"
)
BAR = "Generating:  50%|█████     | 32/64 [00:07<00:07]\rGenerating: 100%|██████████| 64/64 [00:14<00:00]"


@cache
def rows_of(names: tuple[tuple[str, str], ...]) -> writers.Rows:
    """Twelve steps of a simulated run that drifts, with noise, NaN and infinity, then eight again after a restart."""
    table = logs.steps_of(logs.true_run()).head(12)
    table = table.assign(rate=table.tokens / table.step, drift=range(len(table)))
    rows = logs.named(table, dict(names))
    rng = random.Random(4)
    noisy = [
        (step, {name: value * (1 + 0.01 * step) * rng.uniform(0.9, 1.1) for name, value in row.items()})
        for step, row in [*rows, *rows[3:11]]
    ]
    for index, (step, row) in enumerate(noisy):
        if index in (2, 15):
            name = sorted(row)[index % len(row)]
            noisy[index] = step, {**row, name: (math.nan, math.inf)[index % 2]}
    return noisy


def rows_for(console: writers.Console) -> writers.Rows:
    return rows_of(tuple((ours, name) for ours, name in console.names.items() if name))


def read(file: Path) -> TrainingLog:
    return READERS[format_of(file)](file)


def mixed(blocks: list[list[str]]) -> str:
    """A console with engine lines and progress bars between the lines of the steps."""
    lines = ["loading 3 of 7 shards", *(line for n, block in enumerate(blocks) for line in between(n, block))]
    return "\n".join(lines) + "\n"


def between(number: int, block: list[str]) -> list[str]:
    return [BAR, ENGINE_LINE.format(number), *(one for line in block for one in (line, ENGINE_LINE.format(number)))]


def known(console: writers.Console, log: TrainingLog) -> dict[int, dict[str, float]]:
    names = {name for name in console.names.values() if name}
    return {step: {name: value for name, value in row.items() if name in names} for step, row in log.rows.items()}


@pytest.mark.parametrize("name", writers.CONSOLES)
def test_a_console_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    console, file = writers.CONSOLES[name], tmp_path / "run.log"
    rows = rows_for(console)
    file.write_text(mixed(console.blocks(rows)), encoding="utf-8")
    assert format_of(file) == console.kind
    log = read(file)
    assert known(console, log) == console.expected(rows)
    assert framework_of(log.names(), log.origin).name.split(" ")[0] == name.split(",")[0]
    assert any("came again with other values: 8, from 4 to 11" in note for note in log.notes)


def test_steps_of_a_reasoning_that_is_printed_are_not_the_runs(tmp_path: Path) -> None:
    console, file = writers.CONSOLES["verl"], tmp_path / "run.log"
    rows = rows_for(console)
    chatter = [
        "Step 1:",
        "INFO Step 2: ",
        "{'a': 1}",
        "=========== Step 3/4 ===========",
        "step 3: {'x': 1}",
        '{"step": 1}',
    ]
    file.write_text("\n".join(line for block in console.blocks(rows) for line in (*block, *chatter)) + "\n")
    assert format_of(file) == "verl"
    assert known(console, read(file)) == console.expected(rows)


@pytest.mark.parametrize("newline", ["\r\n", "\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_console_of_windows_is_read(newline: str, encoding: str, tmp_path: Path) -> None:
    console = writers.CONSOLES["verl"]
    rows = rows_for(console)
    (tmp_path / "run.log").write_bytes(mixed(console.blocks(rows)).replace("\n", newline).encode(encoding))
    assert known(console, read(tmp_path / "run.log")) == console.expected(rows)


@pytest.mark.parametrize("shape", ["long", "wide", "wandb"])
@pytest.mark.parametrize(
    "name", ["verl", "slime", "OpenRLHF", "TRL", "ROLL", "AReaL", "SkyRL", "RLinf", "open-instruct"]
)
def test_json_lines_are_read_as_they_were_written(name: str, shape: str, tmp_path: Path) -> None:
    console, file = writers.CONSOLES[name], tmp_path / "history.jsonl"
    rows = rows_for(console)
    entries = [
        {
            "long": {"step": step, "data": dict(row)},
            "wide": {**row, "global_step": step},
            "wandb": {"_step": call, "_runtime": 7.5, "train/global_step": step, **row},
        }[shape]
        for call, (step, row) in enumerate(rows)
    ]
    file.write_text("\n".join(map(json.dumps, entries)) + "\n")
    finite = {step: {k: v for k, v in row.items() if math.isfinite(v)} for step, row in sorted(dict(rows).items())}
    assert known(console, read(file)) == finite


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("head", ["", "my run - a - "])
def test_tables_are_read_as_they_were_written(head: str, separator: str, tmp_path: Path) -> None:
    console, file = writers.CONSOLES["SkyRL"], tmp_path / "export.csv"
    rows = rows_for(console)
    names = list(rows[0][1])
    with file.open("w", newline="") as text:
        writer = csv.writer(text, delimiter=separator)
        writer.writerow(["Step", *(f"{head}{name}{end}" for name in names for end in ("", "__MIN", "__MAX"))])
        for step, row in rows:
            cells = ("" if math.isnan(row[name]) else row[name] for name in names)
            writer.writerow([step, *(cell for value in cells for cell in (value, -1, -2))])
    finite = {step: {k: v for k, v in row.items() if math.isfinite(v)} for step, row in sorted(dict(rows).items())}
    assert known(console, read(file)) == finite


# -- damaged files ----------------------------------------------------------------------------------------


def is_part(console: writers.Console, log: TrainingLog, rows: writers.Rows) -> bool:
    """Whether every row that was read is one that was written, or some of its values."""
    written: dict[int, list[Mapping[str, float]]] = {}
    for step, row in rows:
        printed = {name: float(text) for name, text in console.texts(row).items()}
        written.setdefault(step, []).append(printed)
    every = [row for found in written.values() for row in found]
    return all(
        any(row.items() <= one.items() for one in (every if console.kind == "trainer-dicts" else written.get(step, [])))
        for step, row in known(console, log).items()
    )


def read_text(text: str) -> TrainingLog | None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run.log"
        file.write_text(text, encoding="utf-8", newline="")
        try:
            return read(file)
        except ParameterError:
            return None


@pytest.mark.parametrize("name", writers.CONSOLES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_lines_lost_or_repeated_give_rows_that_were_written(name: str, data: st.DataObject) -> None:
    console = writers.CONSOLES[name]
    rows = rows_for(console)[:12]
    blocks = console.blocks(rows)
    units = blocks if console.is_block else [[line] for block in blocks for line in block]
    kept = data.draw(st.lists(st.integers(0, 2), min_size=len(units), max_size=len(units)), label="copies")
    text = "".join(
        f"{line}\n" for unit, copies in zip(units, kept, strict=True) for _ in range(copies) for line in unit
    )
    cut = data.draw(st.integers(0, len(text)), label="characters kept")
    log = read_text(text[:cut])
    assert log is None or is_part(console, log, rows)


FRAGMENTS = [line for one in writers.CONSOLES.values() for block in one.blocks(rows_for(one)[2:5]) for line in block]
FRAGMENTS += [
    ENGINE_LINE.format(1),
    "[2026-01-01 10:00:00 DP1 TP2] Decode batch. #running-req: 3, #token: 99, token usage: 0.1, "
    "gen throughput (token/s): 9.5, #queue-req: 0",
    "[2026-01-01 10:00:00 TP0] Prefill batch. #new-seq: 3, #new-token: 99, #cached-token: 0, #running-req: 0",
    "GPU KV cache size: ,,, tokens",
    '{"step": 1, "data": {"a": 1e999}}',
    "step:" + "9" * 5000 + " - a:1",
    "perf 1: {[]: 1}",
    "perf 1: {'a': -inf, 'b': " + "9" * 400 + "}",
    "step,a - b",
    'x - step,"',
]


@st.composite
def console_text(draw: st.DrawFn) -> str:
    """Pieces of valid lines, joined and cut at random, among anything."""
    piece = st.sampled_from(FRAGMENTS).flatmap(
        lambda line: st.tuples(st.integers(0, len(line)), st.integers(0, len(line))).map(
            lambda at: line[min(at) : max(at)]
        )
    )
    parts = draw(st.lists(st.one_of(st.sampled_from(FRAGMENTS), piece, st.text(max_size=40)), max_size=12))
    return draw(st.sampled_from(["\n", "", "\r", "\r\n"])).join(parts)


@settings(max_examples=300, deadline=None)
@given(text=console_text(), name=st.sampled_from(["run.log", "m.jsonl", "m.csv", "s.json", "run.log.gz"]))
def test_any_text_is_read_or_refused(text: str, name: str) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(text.encode("utf-8", errors="surrogatepass"))
        for kind in ("auto", *FORMAT_NAMES):
            if kind in ("tensorboard", "timelines"):
                continue
            try:
                found = format_of(file, kind)
                if found in ENGINE_STATS:
                    fit_stat_lines(read_stat_lines(file), 1000)
                else:
                    READERS[found](file)
            except RlsimError:
                pass


# -- files ------------------------------------------------------------------------------------------------


def test_rotated_and_compressed_files_are_read_oldest_first(tmp_path: Path) -> None:
    console = writers.CONSOLES["verl"]
    rows = rows_for(console)
    lines = [f"{block[0]}\n" for block in console.blocks(rows)]
    (tmp_path / "run.log").write_text("".join(lines[14:]))
    (tmp_path / "run.log.1").write_text("".join(lines[8:14]))
    (tmp_path / "run.log.10.gz").write_bytes(gzip.compress("".join(lines[:3]).encode()))
    (tmp_path / "run.log.2.gz").write_bytes(gzip.compress("".join(lines[3:8]).encode()))
    (tmp_path / "other.log").write_text("nothing\n")
    log = read(tmp_path / "run.log")
    assert known(console, log) == console.expected(rows)
    assert log.notes[0] == "4 files, oldest first: run.log.10.gz, run.log.2.gz, run.log.1, run.log"
    assert known(console, read(tmp_path)) == console.expected(rows)


def test_a_compressed_file_that_was_cut_gives_what_is_there(tmp_path: Path) -> None:
    console = writers.CONSOLES["verl"]
    rows = rows_for(console)
    packed = gzip.compress("".join(f"{block[0]}\n" for block in console.blocks(rows[:12])).encode())
    (tmp_path / "run.log.gz").write_bytes(packed[: 2 * len(packed) // 3])
    log = read(tmp_path / "run.log.gz")
    assert 3 < len(log.rows) < 12
    assert is_part(console, log, rows[:12])


def test_bytes_that_are_no_text_cost_their_line_at_most(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(b"\x00\x00step:1 - a:1.0 - b:2\n\xff\xfe\x80 step:2 - a:\xff - b:3\n")
    assert read(tmp_path / "run.log").rows == {1: {"a": 1.0, "b": 2.0}, 2: {"b": 3.0}}


def test_two_steps_on_one_line_and_a_line_that_is_cut(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("step:1 - a:1.5step:2 - a:2.5\nstep:3 - a:3")
    log = read(tmp_path / "run.log")
    assert log.rows == {1: {"a": 1.5}, 2: {"a": 2.5}}
    assert log.notes == ("lines at the end of a file without a line's end: 1, first at line 2: 'step:3 - a:3'",)


def test_lines_that_are_not_understood_are_counted(tmp_path: Path) -> None:
    lines = ['{"step": 1, "a": 1}', "oops", '{"a": 2}', "[1]", '{"step": NaN, "a": 3}', '{"step": 2, "a": 4']
    (tmp_path / "m.jsonl").write_text("\n".join(lines))
    assert [
        note.partition("line ")[0] + note.partition("line ")[2][:1] for note in read(tmp_path / "m.jsonl").notes
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
    log = read(tmp_path / "history.jsonl")
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
    row = read(tmp_path / "a.log").rows[7]
    assert row["orchestrator/Time"] == 73.0
    assert row["orchestrator/Truncation"] == 0.025
    assert row["trainer/Time"] == pytest.approx(0.85)
    assert row["trainer/Throughput"] == 2500.0


def test_numbers_that_the_trainer_rounds_are_read_but_for_the_running_total(tmp_path: Path) -> None:
    line = "{{'loss': '0.01', 'num_tokens': '9e+0{}', 'step_time': '41.{}', 'epoch': '0.0{}'}}\n"
    (tmp_path / "a.log").write_text("".join(line.format(n, n, n) for n in (4, 5, 4, 6)))
    log = read(tmp_path / "a.log")
    assert [row["step_time"] for row in log.rows.values()] == [41.4, 41.5, 41.6]
    assert "num_tokens" not in log.names()
    assert "rounded to four digits" in log.notes[0]


def test_a_trainer_that_is_resumed_counts_from_its_epoch(tmp_path: Path) -> None:
    line = "{{'loss': 0.{}, 'step_time': {}.0, 'epoch': 0.{}}}\n"
    printed = [(1, 10, 1), (2, 11, 2), (3, 12, 3), (4, 21, 2), (5, 22, 3), (6, 23, 4)]
    (tmp_path / "a.log").write_text("".join(line.format(*one) for one in printed))
    log = read(tmp_path / "a.log")
    assert [row["step_time"] for row in log.rows.values()] == [10.0, 21.0, 22.0, 23.0]
    assert log.notes[0].startswith("steps that came again with other values: 2, from 2 to 3")


def test_orchestrator_and_trainer_of_a_folder_are_one_log(tmp_path: Path) -> None:
    (tmp_path / "logs" / "trainer").mkdir(parents=True)
    (tmp_path / "logs" / "orchestrator.log").write_text(
        "INFO Step 3 | Time: 9.50s | Reward: 0.5 | Seq. Length: 9.0 t\n"
    )
    (tmp_path / "logs" / "trainer" / "rank_0.log").write_text("INFO Step 3 | Time: 4.00s | Loss: 0.5\n")
    (tmp_path / "config.json").write_text("{}")
    assert read(tmp_path).rows[3] == {
        "orchestrator/Time": 9.5,
        "orchestrator/Reward": 0.5,
        "orchestrator/Seq. Length": 9.0,
        "trainer/Time": 4.0,
        "trainer/Loss": 0.5,
    }


def test_charts_of_one_run_in_a_folder_are_one_log(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Step,r - a,r - a__MIN\n1,1.5,1\n2,2.5,1\n")
    (tmp_path / "b.csv").write_text("Step,r - b\n1,10\n2,20")
    log = read(tmp_path)
    assert log.rows == {1: {"a": 1.5, "b": 10.0}, 2: {"a": 2.5}}
    assert log.notes[1].startswith("lines at the end of a file without a line's end: 1, first at b.csv:3")


def test_faulty_event_files_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the logs extra")
    (tmp_path / "events.out.tfevents.1").write_bytes(b"no events at all" * 9)
    with pytest.raises(ParameterError, match="no training steps"):
        read(tmp_path)


def test_a_quantity_that_few_rows_have_is_left_out(tmp_path: Path) -> None:
    console = writers.CONSOLES["verl"]
    rows = [
        (step, {k: v for k, v in row.items() if k != "timing_s/ref" or step < 4}) for step, row in rows_for(console)
    ]
    (tmp_path / "run.log").write_text(mixed(console.blocks(rows)))
    steps = read_steps(read(tmp_path / "run.log"), synchronous=True)
    assert not steps.has("reference")
    assert "timing_s/ref is not used: few rows have it" in steps.notes


def test_rows_of_evaluations_are_no_steps(tmp_path: Path) -> None:
    console = writers.CONSOLES["verl"]
    rows = [(0, {"val-core/acc": 0.5}), *rows_for(console)]
    (tmp_path / "run.log").write_text("\n".join(line for block in console.blocks(rows) for line in block) + "\n")
    steps = read_steps(read(tmp_path / "run.log"), synchronous=True, skip=0)
    assert 0 not in steps.numbers
    assert any(note.startswith("rows without any of the framework's columns: 1") for note in steps.notes)


@pytest.mark.parametrize("name", writers.CONSOLES)
def test_steps_of_every_console_have_times_and_lengths(name: str, tmp_path: Path) -> None:
    console = writers.CONSOLES[name]
    (tmp_path / "run.log").write_text(mixed(console.blocks(rows_for(console))))
    steps = read_steps(read(tmp_path / "run.log"), synchronous=False, skip=0)
    assert steps.count >= 9
    assert steps.has("step")
    assert steps.has("response_mean") or steps.has("total_mean")
