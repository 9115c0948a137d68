"""Raw samples survive an interruption, and are never mixed with those of another set-up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibration.measure.journal import MeasurementJournal, beside
from calibration.measure.measurements import (
    StepMeasurement,
    best_by_point,
    never_undisturbed,
    noise_floor_by_kind,
    summarise,
)
from calibration.measure.points import StepPoint, TimedStep
from rlsim.core.errors import ParameterError

HEADER = {"model": "small", "vllm": "0.32.0", "max_num_seqs": 64}
POINT = StepPoint(decodes=4, context=256)


def opened(file: Path) -> MeasurementJournal[StepMeasurement]:
    return MeasurementJournal(file, HEADER, StepMeasurement)


def measured(
    number: int = 0, seconds: float = 1.0, undisturbed_steps: int = 3, reference: float = 1e-3
) -> StepMeasurement:
    return StepMeasurement(POINT, number, seconds, 1030, 3, undisturbed_steps, reference, used_seconds=float(number))


def test_what_was_added_is_there_again(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "samples.jsonl"
    store = opened(file)
    for number in range(3):
        store.add(measured(number))
    store.add_record("time", name="startup_seconds", used_seconds=7.5)
    again = opened(file)
    assert again.measurements == store.measurements
    assert again.recorded("time") == [{"record": "time", "name": "startup_seconds", "used_seconds": 7.5}]
    assert (again.next_number, again.used_seconds) == (3, 7.5)


@pytest.mark.parametrize("lost", [1, 20, 60])
def test_a_torn_last_line_is_dropped_and_the_file_can_be_appended_to(tmp_path: Path, lost: int) -> None:
    file = tmp_path / "samples.jsonl"
    store = opened(file)
    for number in range(3):
        store.add(measured(number))
    file.write_bytes(file.read_bytes()[:-lost])
    resumed = opened(file)
    assert [found.number for found in resumed.measurements] == [0, 1]
    resumed.add(measured(7))
    assert [found.number for found in opened(file).measurements] == [0, 1, 7]


def test_samples_of_another_set_up_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    opened(file)
    with pytest.raises(ParameterError, match=r"vllm '0.32.0' is not '0.33.0'.*another --out"):
        MeasurementJournal(file, {**HEADER, "vllm": "0.33.0"}, StepMeasurement)


@pytest.mark.parametrize("text", ["[1]\n", "no json\n", '{"header": 3}\n', '{"point": [1, 2, 3, 4, 5]}\n'])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ParameterError, match=r"samples\.jsonl"):
        opened(file)
    assert file.read_text(encoding="utf-8") == text


def test_a_line_that_is_no_measurement_is_refused_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    opened(file).add(measured())
    with file.open("a", encoding="utf-8") as lines:
        lines.write('{"point": [1, 2]}\n')
    with pytest.raises(ParameterError, match=r"samples\.jsonl:3"):
        opened(file)


def test_samples_lie_beside_the_profile() -> None:
    assert beside(Path("folder/profile.json")) == Path("folder/profile.json.samples.jsonl")


def test_a_journal_of_the_earlier_version_is_read(tmp_path: Path) -> None:
    old = '{"number": 1, "seconds": 2.0, "kv_tokens": 1030, "steps": 3, "calm_steps": 2, '
    old += '"reference_seconds": 0.001, "used_seconds": 7.5, "point": [4, 256, 0, 0, 0]}'
    (tmp_path / "s").write_text(f"{json.dumps({'header': HEADER})}\n{old}\n", encoding="utf-8")
    journal = opened(tmp_path / "s")
    assert journal.measurements == [StepMeasurement(POINT, 1, 2.0, 1030, 3, 2, 0.001, 7.5)]
    assert json.dumps(journal.measurements[0].as_dict(), sort_keys=True) == json.dumps(json.loads(old), sort_keys=True)
    assert (journal.used_seconds, journal.next_number) == (7.5, 2)


def step(seconds: float, cpu_seconds: float) -> TimedStep:
    return TimedStep(seconds, decodes=4, kv_tokens=1024, cpu_seconds=cpu_seconds)


def test_interrupted_steps_do_not_count_and_where_all_are_their_cpu_time_does() -> None:
    steps = [step(1.0, 1.0), step(9.0, 1.0), step(1.2, 1.2)]
    assert summarise(POINT, 0, steps, True, 1e-3, 0.0).seconds == pytest.approx(1.1)
    assert summarise(POINT, 0, steps, False, 1e-3, 0.0).seconds == pytest.approx(1.2)
    all_disturbed = summarise(POINT, 0, [step(9.0, 1.0), step(8.0, 1.0)], True, 1e-3, 0.0)
    assert (all_disturbed.seconds, all_disturbed.undisturbed_steps) == (1.0, 0)


def test_measurements_on_a_slow_host_do_not_count_beside_undisturbed_ones() -> None:
    slow = [measured(number, seconds=2.0, reference=2e-3) for number in range(4)]
    assert best_by_point([*slow, measured(4)], 1e-3)[POINT].seconds == 1.0
    assert best_by_point(slow, 1e-3)[POINT].seconds == 2.0
    assert never_undisturbed([*slow, measured(4)], patience=9) == []
    assert never_undisturbed([measured(0, undisturbed_steps=0)], patience=9) == [POINT]
    assert never_undisturbed([measured(number, undisturbed_steps=0) for number in range(9)], patience=9) == []


def test_the_noise_floor_is_how_far_repeats_of_a_point_are_apart() -> None:
    assert noise_floor_by_kind([measured(0, 1.1), measured(1, 1.0)]) == {"decode": pytest.approx(0.1)}
    assert noise_floor_by_kind([measured(0, 1.1)]) == {}
