"""Making the shipped profiles again: every case of a list, skipping those that are made already."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from calibration.table_cases import TableCase
from calibration.tables import libraries, silicon_profile
from rlsim.core.errors import ParameterError
from rlsim.costs.profile import load_profile

CASES = "cases.csv"
"""The list, in the folder of the profiles."""


def build_catalog(
    cases: Iterable[TableCase], folder: Path, date: str, again: bool = False, done: Callable[[str], None] = print
) -> list[Path]:
    """Write a profile a case into ``folder`` and say ``done`` of each; gives the files written.

    A case whose profile lies there, from the same command and versions, is skipped unless ``again``, so that an
    interrupted build goes on where it stopped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for case in cases:
        file = folder / f"{case.name}.json"
        if again or not is_made(case, file):
            silicon_profile(case, date).write(file)
            written.append(file)
        done(case.name)
    return written


def is_made(case: TableCase, file: Path) -> bool:
    """Whether ``file`` is the profile of the case, from the tables that are installed."""
    try:
        made = load_profile(file)
    except ParameterError:
        return False
    step = made.step
    return step is not None and (step.evidence.command, step.evidence.libraries) == (case.command, libraries(case))
