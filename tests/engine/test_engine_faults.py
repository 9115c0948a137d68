"""The tests of the engine can fail: every deliberate fault is caught by the test that claims to catch it."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import FAULTS, PACKAGE, Fault, is_caught

from evidence.docs_pages import deliberate_faults


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.breaks)
def test_a_deliberate_fault_is_caught(fault: Fault, tmp_path: Path) -> None:
    assert is_caught(fault, tmp_path)


@pytest.mark.slow
def test_the_engine_without_a_fault_is_not_accused(tmp_path: Path) -> None:
    assert not is_caught(None, tmp_path)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.breaks)
def test_the_faulty_line_is_still_in_the_engine(fault: Fault) -> None:
    assert (PACKAGE / fault.file).read_text().count(fault.old) == 1


def test_the_site_lists_every_fault_and_who_catches_it() -> None:
    table = [line for line in deliberate_faults().splitlines() if line.startswith("| `")]
    assert table == [fault.row() for fault in FAULTS]
