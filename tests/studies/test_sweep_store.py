"""The store of a sweep: what has ended is kept, whatever happens to the process, in few files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.studies.runs.store import PART_RUNS, Made, RunStore, StoreError


def made(number: int, fault: str = "") -> Made:
    metrics = (
        {} if fault else {"step_seconds": number + 0.1, "steps": number, "ledger_closes": True, "price_source": "x"}
    )
    return Made(f"run{number // 5}", number % 5, "a label", "0+code", fault, 0.25, metrics)


def journal(folder: Path) -> Path:
    return folder / "runs" / ".journal.jsonl"


def test_what_was_kept_is_found_again_with_its_types_and_its_faults(tmp_path: Path) -> None:
    kept = [made(0), made(1, fault="nothing left to happen"), made(2)]
    for one in kept:  # Each in a command of its own.
        with RunStore(tmp_path) as store:
            store.add(one)
    with RunStore(tmp_path) as store:
        assert [store.find(*one.key) for one in kept] == kept
        assert store.find("run0", 4) is None


def test_many_runs_make_few_files_and_each_is_in_one_of_them(tmp_path: Path) -> None:
    count = 2 * PART_RUNS + 10
    with RunStore(tmp_path) as store:
        for number in range(count):
            store.add(made(number))
    parts = list((tmp_path / "runs").glob("part-*.parquet"))
    assert len(parts) == 3
    import pyarrow.parquet as pq

    assert sum(pq.read_metadata(path).num_rows for path in parts) == count
    assert journal(tmp_path).stat().st_size == 0


def test_a_run_is_on_disk_when_it_has_been_added(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        for number in range(3):
            store.add(made(number))
            assert len(journal(tmp_path).read_text().splitlines()) == number + 1


@given(share=st.floats(0, 1))
def test_a_journal_cut_anywhere_keeps_every_whole_line(tmp_path_factory: pytest.TempPathFactory, share: float) -> None:
    folder = tmp_path_factory.mktemp("cut")
    store = RunStore(folder)
    store.__enter__()
    for number in range(4):
        store.add(made(number))
    whole = journal(folder).read_bytes()
    store._lock.close()  # As a killed process leaves it: no part was written, the lock is free.
    cut = whole[: round(share * len(whole))]
    journal(folder).write_bytes(cut)
    lines = cut.count(b"\n")
    with RunStore(folder) as again:
        found = [number for number in range(4) if again.find(*made(number).key)]
        # A line that lacks nothing but its end is whole as well.
        assert found in (list(range(lines)), list(range(lines + 1)))
        assert all(again.find(*made(number).key) == made(number) for number in found)


def test_runs_in_a_part_and_in_the_journal_count_once(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.add(made(0))
        lines = journal(tmp_path).read_bytes()
    journal(tmp_path).write_bytes(lines)  # Killed after the part was renamed, before the journal was emptied.
    with RunStore(tmp_path) as store:
        assert len(store) == 1
        store.add(made(1))
    import pyarrow.parquet as pq

    rows = [pq.read_metadata(path).num_rows for path in sorted((tmp_path / "runs").glob("part-*"))]
    assert rows == [1, 1]


def test_two_commands_do_not_write_to_one_directory(tmp_path: Path) -> None:
    with RunStore(tmp_path), pytest.raises(StoreError, match="another command"), RunStore(tmp_path):
        pass


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    part = tmp_path / "runs" / "part-000000.parquet"
    part.write_text("not Parquet")
    with pytest.raises(StoreError, match=r"part-000000\.parquet"), RunStore(tmp_path):
        pass
    assert part.read_text() == "not Parquet"
