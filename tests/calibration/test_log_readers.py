"""Every framework's console, CSV and JSON lines are read back as they were written, whatever happened to the file."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import console_writers as writers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.logs.engine_lines import read_stat_lines
from calibration.logs.engine_step_model import fit_stat_lines
from calibration.logs.formats import ENGINE_STATS, FORMAT_NAMES, READERS, format_of
from calibration.logs.frameworks import framework_of
from calibration.logs.records import TrainingLog
from calibration.logs.steps import read_steps
from rlsim.core.errors import ParameterError, RlsimError


@pytest.mark.parametrize("name", writers.CONSOLES)
def test_a_console_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    console, file = writers.CONSOLES[name], tmp_path / "run.log"
    rows = console.rows()
    file.write_text(writers.mixed(console.blocks(rows)), encoding="utf-8")
    assert format_of(file) == console.kind
    log = writers.read(file)
    assert console.known(log) == console.expected(rows)
    assert framework_of(log.names(), log.origin).name.split(" ")[0] == name.split(",")[0]
    assert any("came again with other values: 8, from 4 to 11" in note for note in log.notes)


def test_steps_of_a_reasoning_that_is_printed_are_not_the_runs(tmp_path: Path) -> None:
    console, file = writers.CONSOLES["verl"], tmp_path / "run.log"
    rows = console.rows()
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
    assert console.known(writers.read(file)) == console.expected(rows)


@pytest.mark.parametrize("newline", ["\r\n", "\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_console_of_windows_is_read(newline: str, encoding: str, tmp_path: Path) -> None:
    console = writers.CONSOLES["verl"]
    rows = console.rows()
    (tmp_path / "run.log").write_bytes(writers.mixed(console.blocks(rows)).replace("\n", newline).encode(encoding))
    assert console.known(writers.read(tmp_path / "run.log")) == console.expected(rows)


@pytest.mark.parametrize("shape", ["long", "wide", "wandb"])
@pytest.mark.parametrize(
    "name", ["verl", "slime", "OpenRLHF", "TRL", "ROLL", "AReaL", "SkyRL", "RLinf", "open-instruct"]
)
def test_json_lines_are_read_as_they_were_written(name: str, shape: str, tmp_path: Path) -> None:
    console, file = writers.CONSOLES[name], tmp_path / "history.jsonl"
    rows = console.rows()
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
    assert console.known(writers.read(file)) == finite


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("head", ["", "my run - a - "])
def test_tables_are_read_as_they_were_written(head: str, separator: str, tmp_path: Path) -> None:
    console, file = writers.CONSOLES["SkyRL"], tmp_path / "export.csv"
    rows = console.rows()
    names = list(rows[0][1])
    with file.open("w", newline="") as text:
        writer = csv.writer(text, delimiter=separator)
        writer.writerow(["Step", *(f"{head}{name}{end}" for name in names for end in ("", "__MIN", "__MAX"))])
        for step, row in rows:
            cells = ("" if math.isnan(row[name]) else row[name] for name in names)
            writer.writerow([step, *(cell for value in cells for cell in (value, -1, -2))])
    finite = {step: {k: v for k, v in row.items() if math.isfinite(v)} for step, row in sorted(dict(rows).items())}
    assert console.known(writers.read(file)) == finite


# -- damaged files ----------------------------------------------------------------------------------------


def read_text(text: str) -> TrainingLog | None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run.log"
        file.write_text(text, encoding="utf-8", newline="")
        try:
            return writers.read(file)
        except ParameterError:
            return None


@pytest.mark.parametrize("name", writers.CONSOLES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_lines_lost_or_repeated_give_rows_that_were_written(name: str, data: st.DataObject) -> None:
    console = writers.CONSOLES[name]
    rows = console.rows()[:12]
    blocks = console.blocks(rows)
    units = blocks if console.is_block else [[line] for block in blocks for line in block]
    kept = data.draw(st.lists(st.integers(0, 2), min_size=len(units), max_size=len(units)), label="copies")
    text = "".join(
        f"{line}\n" for unit, copies in zip(units, kept, strict=True) for _ in range(copies) for line in unit
    )
    cut = data.draw(st.integers(0, len(text)), label="characters kept")
    log = read_text(text[:cut])
    assert log is None or console.is_part(log, rows)


FRAGMENTS = [line for one in writers.CONSOLES.values() for block in one.blocks(one.rows()[2:5]) for line in block]
FRAGMENTS += [
    writers.ENGINE_LINE.format(1),
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


# -- from rows to steps ----------------------------------------------------------------------------------


def test_a_quantity_that_few_rows_have_is_left_out(tmp_path: Path) -> None:
    console = writers.CONSOLES["verl"]
    rows = [(step, {k: v for k, v in row.items() if k != "timing_s/ref" or step < 4}) for step, row in console.rows()]
    (tmp_path / "run.log").write_text(writers.mixed(console.blocks(rows)))
    steps = read_steps(writers.read(tmp_path / "run.log"), synchronous=True)
    assert not steps.has("reference")
    assert "timing_s/ref is not used: few rows have it" in steps.notes


def test_rows_of_evaluations_are_no_steps(tmp_path: Path) -> None:
    console = writers.CONSOLES["verl"]
    rows = [(0, {"val-core/acc": 0.5}), *console.rows()]
    (tmp_path / "run.log").write_text("\n".join(line for block in console.blocks(rows) for line in block) + "\n")
    steps = read_steps(writers.read(tmp_path / "run.log"), synchronous=True, skip=0)
    assert 0 not in steps.numbers
    assert any(note.startswith("rows without any of the framework's columns: 1") for note in steps.notes)


@pytest.mark.parametrize("name", writers.CONSOLES)
def test_steps_of_every_console_have_times_and_lengths(name: str, tmp_path: Path) -> None:
    console = writers.CONSOLES[name]
    (tmp_path / "run.log").write_text(writers.mixed(console.blocks(console.rows())))
    steps = read_steps(writers.read(tmp_path / "run.log"), synchronous=False, skip=0)
    assert steps.count >= 9
    assert steps.has("step")
    assert steps.has("response_mean") or steps.has("total_mean")


def test_a_trainer_without_step_times_has_those_of_its_progress_bar(tmp_path: Path) -> None:
    bar, line = (
        "\r{:3d}%|█▏   | {}/50 [{}<9:01, 41.2s/it]",
        "{{'loss': 0.5, 'completion_length': {}.0, 'epoch': {:.2f}}}",
    )
    clocks = ["00:41", "01:22", "02:05", "1:02:06"]
    text = bar.format(0, 0, "00:00") + "\r100%|████| 9/9 [00:01<00:00, 9it/s]\n" + bar.format(0, 0, "00:00")
    for n, clock in enumerate(clocks, start=1):
        text += f"{bar.format(2 * n, n, clock)}\n{line.format(90 + n, n / 50)}\n{bar.format(2 * n, n, clock)}"
    (tmp_path / "run.log").write_text(text + "\n")
    assert format_of(tmp_path / "run.log") == "trainer-dicts"
    steps = read_steps(writers.read(tmp_path / "run.log"), synchronous=False, skip=0)
    assert steps.values["step"].tolist() == [41.0, 41.0, 43.0, 3601.0]
    assert steps.values["response_mean"].tolist() == [91.0, 92.0, 93.0, 94.0]
