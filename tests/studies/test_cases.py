"""Users' questions: what a case may say, when it agrees, and that every shipped one is whole and in the document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_cases import CASE, written

from evidence import results_pages
from evidence.cases_page import BEGIN, END, put
from rlsim.core.errors import DeadlockError, ParameterError, ScenarioError
from rlsim.resolve import resolve
from rlsim.results.statistics import Estimate
from rlsim.scenario.case import Case
from rlsim.studies.explain.cases import CaseResult, case_files, read_case, run_cases
from rlsim.studies.measures import case_measure
from rlsim.studies.runs.executor import local_executor
from rlsim.studies.runs.record import RunRecord
from rlsim.studies.text.explain import cases_json, table_text

ROOT = Path(__file__).parents[2]
FILES = case_files(ROOT / "scenarios" / "cases")
DOCUMENT = results_pages.cases()


def case(**changes: object) -> Case:
    given = {"id": "T", "question": "?", "source": "by hand", "observed": "more", "measure": "step_seconds"}
    return Case.model_validate(
        {**given, "arm": "a", "over": "b", "direction": "above", "assumptions": ("none",), **changes}
    )


def answer(mean: float, low: float, high: float, **changes: object) -> CaseResult:
    return CaseResult("file", case(**changes), Estimate(mean, low, high, 3))


def answered(file: Path) -> CaseResult:
    with local_executor() as runs:
        return run_cases([read_case(file)], runs)[0]


def test_a_ratio_known_by_hand_agrees_in_direction_and_size(tmp_path: Path) -> None:
    found = answered(written(tmp_path))
    assert found.simulated.mean == pytest.approx(2.0)
    assert (found.direction, found.size, found.agrees) == ("yes", "yes", True)


@pytest.mark.parametrize(
    ("changes", "direction", "size"),
    [
        ([(" size: 2", " size: 3")], "yes", "no"),
        ([("direction: above", "direction: below"), (" size: 2", " size: 0.5")], "no", "no"),
        ([("direction: above", "direction: about"), (" size: 2", " size: 1.05")], "no", "no"),
        ([("direction: above", "direction: about"), (" size: 2", " than: 2.1")], "yes", None),
    ],
)
def test_what_is_seen_otherwise_is_a_miss(
    tmp_path: Path, changes: list[tuple[str, str]], direction: str, size: str | None
) -> None:
    found = answered(written(tmp_path, CASE, *changes))
    assert (found.direction, found.size) == (direction, size)
    assert found.agrees is (direction == "yes" and size is None)


def test_a_direction_that_the_interval_leaves_open_is_unsure_and_does_not_agree() -> None:
    assert answer(1.2, 1.1, 1.3).direction == "yes"
    assert answer(1.2, 0.9, 1.5).direction == "unsure"
    assert answer(0.9, 0.7, 1.1).direction == "no"
    assert not answer(1.2, 0.9, 1.5).agrees
    assert answer(1.05, 1.0, 1.12, direction="about").direction == "unsure"


@pytest.mark.parametrize(("mean", "agrees"), [(1.49, False), (1.51, True), (2.49, True), (2.51, False)])
def test_a_size_agrees_within_a_quarter(mean: float, agrees: bool) -> None:
    assert answer(mean, mean, mean, size=2.0).agrees is agrees


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((" size: 2", " size: 0.5"), "size: found 0.5; allowed: a number above 1"),
        (("over: fast", "over: slow"), "over: found 'slow'; allowed: another arm than slow"),
        (("measure: generation_seconds", "measure: happiness"), "measure"),
        (("assumptions: [none]", "assumptions: []"), "assumptions"),
        (("measure: generation_seconds", "measure: stuck"), "stuck is no ratio"),
    ],
)
def test_a_case_that_cannot_be_is_refused_with_its_line(tmp_path: Path, changes: tuple[str, str], words: str) -> None:
    with pytest.raises(ScenarioError, match=r"case\.yaml:\d+: ") as refused:
        read_case(written(tmp_path, CASE, changes))
    assert words in str(refused.value)


def test_an_arm_that_is_none_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="did you mean 'slow'"):
        read_case(written(tmp_path, CASE, ("arm: slow", "arm: slowly")))
    with pytest.raises(ParameterError, match="case: found null"):
        read_case(written(tmp_path, ""))


def test_a_stuck_run_answers_only_whether_it_is_stuck() -> None:
    stuck = RunRecord("stuck", 0, error="buffer 125/128", error_kind="DeadlockError")
    assert case_measure(stuck, "stuck") == 1.0
    with pytest.raises(DeadlockError, match="125/128"):
        case_measure(stuck, "step_seconds")


def test_the_table_has_a_row_a_case_and_tells_misses(tmp_path: Path) -> None:
    found = [answer(1.2, 1.1, 1.3), answer(1.2, 0.9, 1.5, id="T2"), answer(1.2, 1.1, 1.3, id="T3", size=2.0)]
    table = table_text(found)
    assert "3 cases: 2 reproduce the direction (whole interval), 0 of 1 sizes" in table
    assert "direction unsure" in table
    assert [one["agrees"] for one in json.loads(cases_json(found))["cases"]] == [True, False, False]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    put(page, found)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| T3 | ? | more |" in text


def test_there_are_at_least_twenty_cases_of_their_own() -> None:
    found = [read_case(file).case for file in FILES]
    assert len(found) >= 20
    assert len({one.id for one in found}) == len(found)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_case_can_be_run_and_is_in_the_document(file: Path) -> None:
    question = read_case(file)
    for scenario in question.arms.values():
        resolve(scenario)
        assert scenario.run.replications >= 3
    assert f"| {question.case.id} | {question.case.question} |" in DOCUMENT
    assert all(given in DOCUMENT for given in question.case.assumptions)
