"""The store of runs: what has ended is kept, whatever happens to the process, in one file."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweep_files import written

from rlsim.scenario.document import load
from rlsim.studies.runs.executor import make_run
from rlsim.studies.runs.record import ALL_MEASURES, RunRecord, requests_of
from rlsim.studies.runs.store import RunStore, RunStoreError

LEARNS = "learning:\n  curve: {half_updates: 2}\n"


def ended(number: int, error: str = "") -> RunRecord:
    kind = "DeadlockError" if error else ""
    verdict = "" if error else f"verdict {number}"
    return RunRecord("a label", number % 5, f"run{number // 5}", "0+code", None, verdict, None, None, None, error, kind)


def database(folder: Path) -> Path:
    return folder / "runs" / "runs.sqlite3"


def log(folder: Path) -> Path:
    """Records that are on disk and not yet in the database's own file."""
    return folder / "runs" / "runs.sqlite3-wal"


def test_what_was_kept_is_found_again_with_its_types_and_its_faults(tmp_path: Path) -> None:
    kept = [ended(0), ended(1, error="nothing left to happen"), ended(2)]
    for one in kept:  # Each in a command of its own.
        with RunStore(tmp_path) as store:
            store.add(one)
    with RunStore(tmp_path) as store:
        assert [store.find(*one.key) for one in kept] == kept
        assert store.find("run0", 4) is None
        assert len(store) == 3


def test_a_record_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    scenario = load(written(tmp_path, LEARNS)).resolve()
    made = make_run(requests_of("small", scenario, [1], ALL_MEASURES)[0])
    with RunStore(tmp_path) as store:
        store.add(made)
        found = store.find(*made.key)
    assert found is not None
    assert found.progress is not None
    assert made.progress is not None
    assert found.progress.keys() == made.progress.keys()
    for name, column in made.progress.items():
        assert found.progress[name].dtype == column.dtype
        np.testing.assert_array_equal(found.progress[name], column)
    assert found.allotted is not None
    assert made.allotted is not None
    np.testing.assert_array_equal(found.allotted.samples, made.allotted.samples)
    np.testing.assert_array_equal(found.allotted.tokens, made.allotted.tokens)
    plain = [replace(record, progress=None, allotted=None) for record in (found, made)]
    assert plain[0] == plain[1]
    flat = [json.dumps(record.flat()) for record in (found, made)]
    assert flat[0] == flat[1], "whole numbers stay whole"


def test_many_runs_make_one_file_and_each_is_in_it_once(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        for number in [*range(522), *range(10)]:
            store.add(ended(number))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["runs.sqlite3"]
    with RunStore(tmp_path) as store:
        assert len(store) == 522


def test_a_run_is_on_disk_when_it_has_been_added(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        for number in range(3):
            store.add(ended(number))
            copy = tmp_path / f"copy{number}"
            shutil.copytree(tmp_path / "runs", copy / "runs")
            with RunStore(copy) as other:
                assert len(other) == number + 1


@given(share=st.floats(0, 1))
def test_a_log_cut_anywhere_keeps_every_whole_record(tmp_path_factory: pytest.TempPathFactory, share: float) -> None:
    folder, copy = tmp_path_factory.mktemp("cut"), tmp_path_factory.mktemp("copy")
    sizes = []
    with RunStore(folder) as store:
        for number in range(4):
            store.add(ended(number))
            sizes.append(log(folder).stat().st_size)
        shutil.copytree(folder / "runs", copy / "runs")  # As a killed process leaves it.
    whole = log(copy).read_bytes()
    cut = whole[: round(share * len(whole))]
    log(copy).write_bytes(cut)
    with RunStore(copy) as again:
        found = [number for number in range(4) if again.find(*ended(number).key)]
        assert found == list(range(sum(size <= len(cut) for size in sizes)))
        assert all(again.find(*ended(number).key) == ended(number) for number in found)


def test_a_run_that_is_added_again_counts_once(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.add(ended(0))
    with RunStore(tmp_path) as store:
        store.add(ended(0))
        assert len(store) == 1
        store.add(ended(1))
        assert len(store) == 2


def test_two_commands_do_not_write_to_one_directory(tmp_path: Path) -> None:
    with RunStore(tmp_path), pytest.raises(RunStoreError, match="another command"), RunStore(tmp_path):
        pass


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    database(tmp_path).write_text("not a database, and long enough to be seen to be none" * 20)
    before = database(tmp_path).read_bytes()
    with pytest.raises(RunStoreError, match=r"runs\.sqlite3: .*delete or move this file"), RunStore(tmp_path):
        pass
    assert database(tmp_path).read_bytes() == before


def test_a_damaged_store_says_which_file_and_what_to_do(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        for number in range(40):
            store.add(ended(number))
    content = bytearray(database(tmp_path).read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    database(tmp_path).write_bytes(bytes(content))
    with (
        pytest.raises(RunStoreError, match=r"runs\.sqlite3: .*delete or move this file"),
        RunStore(tmp_path) as store,
    ):
        store.find("run0", 0)


def test_files_belong_to_the_run_that_wrote_them_last_and_count_only_whole(tmp_path: Path) -> None:
    folder = tmp_path / "arm" / "replication-0"
    folder.mkdir(parents=True)
    (folder / "samples.parquet").write_text("rows")
    with RunStore(tmp_path) as store:
        store.add(ended(0), folder)
        assert store.has_files(ended(0), folder)
        assert not store.has_files(ended(5), folder)
        (folder / "samples.parquet").write_text("ro")
        assert not store.has_files(ended(0), folder)
        (folder / "samples.parquet").write_text("rows")
        store.forget_files(folder)  # Another run is about to write there.
        assert not store.has_files(ended(0), folder)
