"""Passes over points: within a budget, interrupted and resumed, and never mixed with another set-up's samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from noisy_host import NoisyHost

from calibration.measure.passes import Budget, Journal, Progress, stored_header, timed_passes
from rlsim.core.errors import ParameterError

HEADER = {"model": "small"}


def run(journal: Journal, host: NoisyHost, budget: float = 10.0, tight: float = 0.0, fail_at: int = -1) -> np.ndarray:
    made = iter(range(10_000))

    def time_point(point: int) -> float:
        if next(made) == fail_at:
            raise KeyboardInterrupt
        return host.run(0.1 * (point + 1))

    return timed_passes(4, time_point, journal, Budget(budget, host.clock), lambda table: 1 / len(table), tight)


def test_passes_fill_the_budget_and_are_even_in_number(tmp_path: Path) -> None:
    host = NoisyHost(0, calm=True)
    table = run(Journal(tmp_path / "s", HEADER), host)
    assert len(table) == 10
    assert host.clock() <= 10.0 + 1e-9
    assert np.isfinite(table).all()


def test_timing_ends_when_the_interval_is_tight_but_not_before_four_passes(tmp_path: Path) -> None:
    assert len(run(Journal(tmp_path / "a", HEADER), NoisyHost(0, calm=True), tight=0.6)) == 4
    assert len(run(Journal(tmp_path / "b", HEADER), NoisyHost(0, calm=True), tight=1 / 6)) == 6


def test_two_passes_are_made_however_small_the_budget(tmp_path: Path) -> None:
    assert len(run(Journal(tmp_path / "s", HEADER), NoisyHost(0, calm=True), budget=0.01)) == 2


def test_every_pass_visits_every_point_once_in_another_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "s", HEADER)
    run(journal, NoisyHost(0, calm=True))
    orders = [[point for number, point, _ in journal.samples if number == at] for at in range(4)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert len({tuple(order) for order in orders}) > 1


@pytest.mark.parametrize("fail_at", [0, 5, 13])
def test_an_interrupted_calibration_goes_on_where_it_stopped(fail_at: int, tmp_path: Path) -> None:
    file = tmp_path / "s"
    with pytest.raises(KeyboardInterrupt):
        run(Journal(file, HEADER), NoisyHost(0, calm=True), fail_at=fail_at)
    again = Journal(file, HEADER)
    assert len(again.samples) == fail_at
    table = run(again, NoisyHost(0, calm=True))
    assert table == pytest.approx(np.tile([0.1, 0.2, 0.3, 0.4], (len(table), 1)))
    assert len({sample[:2] for sample in again.samples}) == len(again.samples) == table.size


def test_a_line_cut_short_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "s"
    run(Journal(file, HEADER), NoisyHost(0, calm=True))
    whole = file.read_text()
    file.write_text(whole[: whole.rindex("}") - 3])
    again = Journal(file, HEADER)
    assert len(again.samples) == whole.count("\n") - 2
    assert np.isfinite(run(again, NoisyHost(0, calm=True))).all()
    assert stored_header(file) == HEADER


def test_samples_of_another_set_up_are_refused(tmp_path: Path) -> None:
    run(Journal(tmp_path / "s", HEADER), NoisyHost(0, calm=True))
    with pytest.raises(ParameterError, match="other"):
        Journal(tmp_path / "s", {"model": "other"})


def test_progress_says_what_is_left() -> None:
    assert str(Progress(2, 10.0, 60.0, 0.034)) == "pass 2: at most 50 s left, intervals within 3.4%"
    assert str(Progress(1, 10.0, 60.0, float("inf"))) == "pass 1: at most 50 s left"
