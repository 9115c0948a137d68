"""Published measurements: what an entry must say, what a score means, and one entry from file to report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from matplotlib.collections import PathCollection

from evidence import results_pages
from rlsim.core.errors import ParameterError, ScenarioError
from rlsim.resolve import resolve
from rlsim.results.plots.validation import Point, predicted_and_measured
from rlsim.results.statistics import Estimate
from rlsim.scenario.document import load
from rlsim.scenario.published import Published, PublishedEntry
from rlsim.studies.runs.executor import Processes, RunExecutor, make_run
from rlsim.studies.runs.record import RunRecord, RunRequest
from rlsim.studies.runs.store import RunStore
from rlsim.studies.validation import text
from rlsim.studies.validation.entries import EntryFile, find_entries, left_out, read_entry
from rlsim.studies.validation.page import BEGIN, END, put
from rlsim.studies.validation.running import ValidationRow, planned_runs, run_entries
from rlsim.studies.validation.scores import agreement, error_summaries, error_summary, pairs

FOLDER = Path(__file__).parents[2] / "scenarios" / "published"
DOCUMENTED = results_pages.validation()
SOURCES = find_entries([], FOLDER)
ENTRIES = [pytest.param(source, id=Path(source.document.file).stem) for source in SOURCES]
GRADES = {"P", "F", "S", "M", "D", "I"}
TUNABLE = (
    "rollout.step_time.scale",
    "rollout.step_time.offset_seconds",
    "rollout.step_time.offset_seconds_per_layer",
    "trainer.mfu",
    "trainer.logprob_mfu",
    "trainer.attention_mfu",
    "trainer.expert_utilisation",
    "trainer.fixed_seconds_per_step",
    "trainer.seconds_per_sample",
    "trainer.seconds_per_update",
    "trainer.seconds_per_micro_batch",
    "trainer.logprob_seconds_per_micro_batch",
    "sync.link_bytes_per_second",
    "sync.stage_bytes_per_second",
    "sync.restore_bytes_per_second",
    "sync.base_seconds",
    "sync.per_tensor_seconds",
    "switching.sleep_seconds",
    "switching.wake_seconds",
    "switching.host_link_bytes_per_second",
    "workload.response_tokens.sigma",
)
"""Keys that describe no run: an arm alone may not set them."""


@pytest.mark.parametrize("source", ENTRIES)
def test_every_arm_can_be_built(source: EntryFile) -> None:
    for scenario in source.scenarios.values():
        resolve(scenario)


@pytest.mark.parametrize("source", ENTRIES)
def test_every_number_has_a_citation_a_grade_and_a_status(source: EntryFile) -> None:
    rows = list(source.rows())
    assert rows, "an entry with a scenario has a row"
    for arm, row in rows:
        assert row.source, arm
        assert row.grade in GRADES, (arm, row.grade)
        assert not row.fitted or row.calibrated, f"{arm}: what is fitted is said of a calibrated row"
    assert source.entry.source
    assert source.entry.assumptions


@pytest.mark.parametrize("source", ENTRIES)
def test_one_row_of_an_entry_is_calibrated_at_most(source: EntryFile) -> None:
    assert len({arm for arm, row in source.rows() if row.calibrated}) <= 1


@pytest.mark.parametrize("source", ENTRIES)
def test_no_predicted_arm_has_a_parameter_of_its_own(source: EntryFile) -> None:
    """What an arm sets describes what was run; a cost it sets holds for another arm too."""
    tree: Any = source.document.tree
    arms: Mapping[str, Any] = tree.get("arms") or {}
    found = Counter((key, value) for arm in arms.values() for key, value in _leaves(arm or {}) if key in TUNABLE)
    assert {key for key, count in found.items() if count == 1} == set()


@pytest.mark.parametrize("source", ENTRIES)
def test_what_a_row_fits_is_set_for_the_whole_entry_or_framework(source: EntryFile) -> None:
    tree: Any = source.document.tree
    shared = (FOLDER / str(tree.get("extends"))) if tree.get("extends") else None
    for arm, row in source.rows():
        for key in row.fitted:
            written = key in dict(_leaves({k: v for k, v in tree.items() if k != "arms"}))
            elsewhere = shared is not None and key in dict(_leaves(load(shared).tree))  # type: ignore[arg-type]
            assert written or elsewhere, f"{arm}: {key} is fitted, and set nowhere above the arms"


def test_every_published_entry_of_the_first_kind_is_there_or_says_why_not() -> None:
    named = {source.entry.id for source in SOURCES} | {entry.id for entry in left_out([], FOLDER)}
    assert named >= {f"A{number}" for number in range(1, 27)} - {"A3", "A23"}
    for entry in left_out([], FOLDER):
        assert entry.left_out, entry.id


def test_the_documented_table_has_every_row() -> None:
    for source in SOURCES:
        assert f"## {source.entry.id}: {source.entry.title}" in DOCUMENTED
        for arm, _ in source.rows():
            assert f"| {arm} |" in DOCUMENTED, (
                f"run rlsim validate --json > evidence/data/validation.json: {arm} is missing"
            )


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{key}.")
        elif not isinstance(value, list):
            yield f"{path}{key}", value


SMALL = """
name: one slot, one sample
framework: own
model: Qwen3-0.6B
cluster: {device: H100-SXM, gpus: 2}
rollout: {gpus: 1, step_time: {source: coefficients, base_seconds: 0.01}}
trainer: {gpus: 1, mfu: 0.4}
workload: {prompts_per_step: 1, group_size: 1, prompt_tokens: 1, response_tokens: 1000}
policy: {preset: sync-disaggregated}
run: {steps: 3, warmup_steps: 1, replications: 2}
entry: {id: T1, title: a test, source: arithmetic, assumptions: [nothing]}
arms:
  whole:
    published: [{quantity: generation_seconds, value: 10.0, source: s, grade: P, family: lengths}]
  half:
    workload: {response_tokens: 500}
    published:
      - {quantity: generation_seconds, value: 4.0, source: s, grade: P, family: lengths}
      - {quantity: generation_seconds, value: 2.0, over: whole, source: s, grade: P}
  stuck:
    policy:
      preset: sync-disaggregated
      parts: {admission: {use: cumulative-capacity, max_staleness: 0, max_open_groups: 0}}
    published: [{step_seconds: 1.0, source: s, grade: P}]
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "T1-small.yaml").write_text(SMALL)
    return tmp_path / "T1-small.yaml"


def test_an_entry_goes_from_file_to_report(small: Path) -> None:
    source = read_entry(small)
    made: list[str] = []

    def noted(request: RunRequest) -> RunRecord:
        made.append(request.label)
        return make_run(request)

    needed = planned_runs([source])
    with RunStore() as store, Processes(1, noted) as backend:
        rows = run_entries([source], needed, RunExecutor(backend, store))
    whole, half, twice, stuck = rows
    assert len(made) == needed.run_count == 4
    assert [arm for _, arm in needed.refusals] == ["stuck"], "an arm that cannot be run is not run"
    assert whole.predicted is not None
    assert whole.predicted.mean == pytest.approx(10.0, rel=0.01)
    assert half.error == pytest.approx(0.25, abs=0.02)
    assert twice.predicted is not None
    assert twice.predicted.mean == pytest.approx(2.0, rel=0.01)
    assert stuck.predicted is None
    assert stuck.failure
    printed = text.as_text([source], rows)
    assert "failed:" in printed
    assert "+25" in printed
    told = json.loads(text.as_json([source], rows))
    assert [row["measured"] for row in told["rows"]] == [10.0, 4.0, 2.0, 1.0]
    assert told["scores"][-1]["failed"] == 1


def test_a_failure_counts_as_a_row_and_as_a_wrong_sign(small: Path) -> None:
    rows = [made(2.0, None, family="f"), made(1.0, 1.0, family="f")]
    assert error_summary("all", rows).failed == 1
    assert agreement(pairs(rows)) == (0, 1)
    (refusal,) = planned_runs([read_entry(small)]).refusals.values()
    assert refusal.startswith("policy.parts.admission.max_open_groups: found 0")


def test_calibrated_rows_are_left_out_of_the_errors() -> None:
    rows = [made(1.0, 1.0, calibrated=True), made(1.0, 1.1), made(1.0, 0.7)]
    found = error_summaries(rows)[-1]
    assert found.rows == 2
    assert found.median == pytest.approx(0.2)
    assert found.p90 == pytest.approx(0.28)


@pytest.mark.parametrize(
    ("measured", "predicted", "right", "counted"),
    [
        ((2.0, 1.0), (3.0, 2.9), 1, 1),
        ((2.0, 1.0), (2.9, 3.0), 0, 1),
        ((1.04, 1.0), (2.9, 3.0), 0, 0),
        ((3.0, 2.0, 1.0), (3.0, 1.0, 2.0), 2, 3),
    ],
)
def test_order_is_right_when_the_shorter_time_is_predicted_shorter(
    measured: tuple[float, ...], predicted: tuple[float, ...], right: int, counted: int
) -> None:
    rows = [made(a, b, family="f") for a, b in zip(measured, predicted, strict=True)]
    assert agreement(pairs(rows)) == (right, counted)


def test_a_printed_speedup_is_right_when_both_are_above_one() -> None:
    assert agreement(pairs([made(1.5, 1.2, over="base"), made(1.5, 0.9, over="base")])) == (1, 2)


def test_tables_go_between_the_markers_and_prose_stays(tmp_path: Path, small: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    source = read_entry(small)
    put(file, [source], [made(1.0, 1.1, source=source)])
    found = file.read_text()
    assert found.startswith("before\n")
    assert found.endswith("after\n")
    assert "old" not in found
    assert "+10.0%" in found
    (tmp_path / "bare.md").write_text("no markers")
    with pytest.raises(ParameterError, match="markdown"):
        put(tmp_path / "bare.md", [source], [])


def test_the_figure_shows_every_point() -> None:
    points = [
        Point("a", 1.0, Estimate(1.1, 1.0, 1.2, 3), False),
        Point("b", 100.0, Estimate(80.0, None, None, 1), True),
    ]
    figure = predicted_and_measured(points)
    drawn = [
        tuple(at)
        for found in figure.axes[0].collections
        if isinstance(found, PathCollection)
        for at in found.get_offsets()
    ]
    assert drawn == [(1.0, 1.1), (100.0, 80.0)]


def test_an_unknown_entry_is_refused_with_the_nearest() -> None:
    with pytest.raises(ParameterError, match="A1"):
        find_entries(["A111"], FOLDER)


def test_a_row_has_one_number(tmp_path: Path, small: Path) -> None:
    (tmp_path / "two.yaml").write_text(SMALL.replace("{step_seconds: 1.0,", "{step_seconds: 1.0, value: 2.0,"))
    with pytest.raises(ScenarioError, match="value"):
        read_entry(tmp_path / "two.yaml")


def made(
    measured: float,
    predicted: float | None,
    calibrated: bool = False,
    family: str | None = None,
    over: str | None = None,
    source: EntryFile | None = None,
) -> ValidationRow:
    fields: dict[str, Any] = {"source": "s", "grade": "P", "calibrated": calibrated, "family": family, "over": over}
    number = {"step_seconds": measured} if over is None else {"quantity": "step_seconds", "value": measured}
    published = Published(**number, **fields)
    entry = PublishedEntry(id="T", title="t", source="s", assumptions=("nothing",)) if source is None else source.entry
    file = "t.yaml" if source is None else source.document.file
    found = None if predicted is None else Estimate(predicted, None, None, 1)
    return ValidationRow(entry, file, "own", "arm", published, found, "" if predicted is not None else "stuck")
