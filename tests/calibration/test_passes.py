"""Passes over points: within a budget, interrupted and resumed, and never mixed with another set-up's samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from noisy_host import NoisyHost

from calibration.measure.campaign import RepeatedCampaign, TimeBudget
from calibration.measure.journal import MeasurementJournal, stored_header
from calibration.measure.measurements import Timing
from rlsim.core.errors import ParameterError

HEADER = {"model": "small"}


def opened(file: Path) -> MeasurementJournal[Timing]:
    return MeasurementJournal(file, HEADER, Timing)


def run(
    journal: MeasurementJournal[Timing],
    host: NoisyHost,
    budget: float = 10.0,
    tight: float = 0.0,
    fail_at: int = -1,
    lines: list[str] | None = None,
) -> np.ndarray:
    count = iter(range(10_000))

    def time_point(point: int) -> float:
        if next(count) == fail_at:
            raise KeyboardInterrupt
        return host.run(0.1 * (point + 1))

    campaign = RepeatedCampaign(
        points=4,
        seconds_of=time_point,
        journal=journal,
        budget=TimeBudget(budget, host.clock),
        interval=lambda table: 1 / len(table),
        tight=tight,
        report=[].append if lines is None else lines.append,
    )
    return campaign.run()


def test_passes_fill_the_budget_and_are_even_in_number(tmp_path: Path) -> None:
    host = NoisyHost(0, calm=True)
    table = run(opened(tmp_path / "s"), host)
    assert len(table) == 10
    assert host.clock() <= 10.0 + 1e-9
    assert np.isfinite(table).all()


def test_timing_ends_when_the_interval_is_tight_but_not_before_four_passes(tmp_path: Path) -> None:
    assert len(run(opened(tmp_path / "a"), NoisyHost(0, calm=True), tight=0.6)) == 4
    assert len(run(opened(tmp_path / "b"), NoisyHost(0, calm=True), tight=1 / 6)) == 6


def test_two_passes_are_made_however_small_the_budget(tmp_path: Path) -> None:
    assert len(run(opened(tmp_path / "s"), NoisyHost(0, calm=True), budget=0.01)) == 2


def test_every_pass_visits_every_point_once_in_another_order(tmp_path: Path) -> None:
    journal = opened(tmp_path / "s")
    run(journal, NoisyHost(0, calm=True))
    orders = [[timing.point for timing in journal.measurements if timing.number == number] for number in range(4)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert len({tuple(order) for order in orders}) > 1


@pytest.mark.parametrize("fail_at", [0, 5, 13])
def test_an_interrupted_calibration_goes_on_where_it_stopped(fail_at: int, tmp_path: Path) -> None:
    file = tmp_path / "s"
    with pytest.raises(KeyboardInterrupt):
        run(opened(file), NoisyHost(0, calm=True), fail_at=fail_at)
    again = opened(file)
    assert len(again.measurements) == fail_at
    table = run(again, NoisyHost(0, calm=True))
    assert table == pytest.approx(np.tile([0.1, 0.2, 0.3, 0.4], (len(table), 1)))
    assert (
        len({(timing.number, timing.point) for timing in again.measurements}) == len(again.measurements) == table.size
    )


def test_a_line_cut_short_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "s"
    run(opened(file), NoisyHost(0, calm=True))
    whole = file.read_text()
    file.write_text(whole[: whole.rindex("}") - 3])
    again = opened(file)
    assert len(again.measurements) == whole.count("\n") - 2
    assert np.isfinite(run(again, NoisyHost(0, calm=True))).all()
    assert stored_header(file) == HEADER


def test_samples_of_another_set_up_are_refused(tmp_path: Path) -> None:
    run(opened(tmp_path / "s"), NoisyHost(0, calm=True))
    with pytest.raises(ParameterError, match="other"):
        MeasurementJournal(tmp_path / "s", {"model": "other"}, Timing)


def test_progress_says_what_is_left(tmp_path: Path) -> None:
    lines: list[str] = []
    run(opened(tmp_path / "s"), NoisyHost(0, calm=True), budget=3.0, lines=lines)
    assert lines == ["pass 1: at most 2 s left", "pass 2: at most 1 s left, intervals within 50.0%"]


def test_a_line_that_is_no_timing_is_refused_with_its_number(tmp_path: Path) -> None:
    run(opened(tmp_path / "s"), NoisyHost(0, calm=True), budget=0.01)
    with (tmp_path / "s").open("a", encoding="utf-8") as lines:
        lines.write('{"pass": 3}\n')
    with pytest.raises(ParameterError, match=r"s:10.*a measurement or a record"):
        opened(tmp_path / "s")


def test_a_journal_of_the_earlier_version_is_read(tmp_path: Path) -> None:
    text = '{"header": {"model": "small"}}\n{"pass": 0, "point": 2, "seconds": 0.3}\n'
    (tmp_path / "s").write_text(text, encoding="utf-8")
    assert opened(tmp_path / "s").measurements == [Timing(0, 2, 0.3)]
