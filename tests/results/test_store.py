"""Results on disk: complete or absent, equal for equal runs, readable again."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from runs import TURNS, small_run

from rlsim.core.errors import ParameterError
from rlsim.results import store
from rlsim.results.metrics import metrics
from rlsim.results.replay.decisions import RecordError
from rlsim.results.store import StoreError, load_decisions, read_table, save, write_metrics, write_run
from rlsim.results.tables import TABLES, tables
from rlsim.scenario.document import load


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_everything_of_a_run_can_be_read_back(tmp_path: Path) -> None:
    run = small_run("areal", 0, TURNS)
    where = save(tmp_path / "out", "one/off 8+8", [run, small_run("areal", 1, TURNS)])
    assert where == tmp_path / "out" / "one-off 8+8"
    assert load(where / "scenario.yaml").resolve() == run.plan.scenario
    assert load_decisions(where / "replication-0" / "decisions.jsonl") == run.log.decisions
    measured = json.loads((where / "metrics.json").read_text())["runs"]
    assert measured[0] == metrics(run).as_dict()
    assert [found["replication"] for found in measured] == [0, 1]
    for name, frame in tables(run).items():
        stored = pd.read_parquet(where / "replication-0" / f"{name}.parquet")
        pd.testing.assert_frame_equal(stored, frame, check_dtype=False)
    assert {path.stem for path in (where / "replication-1").glob("*.parquet")} == set(TABLES)


def test_a_table_of_an_earlier_version_is_read_under_the_name_of_now_and_that_is_said(tmp_path: Path) -> None:
    run = small_run("areal")
    now = save(tmp_path, "run", [run]) / "replication-0" / "samples.parquet"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = read_table(now)
    table.rename(columns={"outcome": "fate"}).to_parquet(tmp_path / "samples.parquet")
    with pytest.warns(FutureWarning, match=r"samples\.parquet: column fate is now named outcome"):
        pd.testing.assert_frame_equal(read_table(tmp_path / "samples.parquet"), table)


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    run = small_run("pipelinerl")
    assert files(save(tmp_path / "a", "run", [run])) == files(save(tmp_path / "b", "run", [run]))


def test_a_failure_leaves_nothing_new_and_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(save(tmp_path, "run", [small_run("areal")]))

    def full(*arguments: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(store, "write_decisions", full)
    for name in ("run", "other"):
        with pytest.raises(OSError, match="no space"):
            save(tmp_path, name, [small_run("copris")])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert files(tmp_path / "run") == before


def test_earlier_results_return_when_the_new_ones_cannot_take_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(save(tmp_path, "run", [small_run("areal")]))
    rename = os.replace

    def refuses_new(source: Path, target: Path) -> None:
        if source.suffix == ".part":
            raise OSError("no rename")
        rename(source, target)

    monkeypatch.setattr(os, "replace", refuses_new)
    with pytest.raises(OSError, match="no rename"):
        save(tmp_path, "run", [small_run("copris")])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert files(tmp_path / "run") == before


def test_saving_again_replaces_the_earlier_results(tmp_path: Path) -> None:
    save(tmp_path, "run", [small_run("areal", seed) for seed in (0, 1)])
    where = save(tmp_path, "run", [small_run("areal")])
    assert not (where / "replication-1").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match="holds no results of rlsim"):
        save(tmp_path, "run", [small_run()])
    assert (tmp_path / "run" / "thesis.tex").exists()


@pytest.mark.parametrize("name", ["..", "", "/", "../../etc"])
def test_a_name_cannot_leave_the_directory(tmp_path: Path, name: str) -> None:
    assert save(tmp_path / "out", name, [small_run()]).parent == tmp_path / "out"


def test_one_run_alone_is_written_as_among_others(tmp_path: Path) -> None:
    run = small_run("areal")
    among = save(tmp_path, "run", [run])
    for _ in range(2):
        write_run(tmp_path / "replication-0", run)
        assert files(tmp_path / "replication-0") == files(among / "replication-0")
    write_metrics(tmp_path, [metrics(run)])
    assert (tmp_path / "metrics.json").read_bytes() == (among / "metrics.json").read_bytes()


def test_no_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="at least one run"):
        save(tmp_path, "run", [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "decisions.jsonl:2: not a line of JSON"),
        (b"[" * 100_000, "decisions.jsonl:2: not a line of JSON"),
        (b"\xff\xfe", "decisions.jsonl:2: not a line of JSON"),
        (b'{"now": 1}', "decisions.jsonl:2: decision: found"),
    ],
)
def test_a_damaged_record_is_named_by_file_and_line(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b'{"now": 0, "event": {"type": "Started"}, "commands": []}\n' + line + b"\n")
    with pytest.raises(RecordError, match=message):
        load_decisions(path)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_bytes(b" " * 101), "found 101 bytes; allowed: at most 100"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused(
    tmp_path: Path, prepare: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / "decisions.jsonl"
    prepare(path)
    with pytest.raises(StoreError, match=message):
        load_decisions(path, max_bytes=100)
