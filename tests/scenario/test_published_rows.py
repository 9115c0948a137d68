"""A measured number stands beside a run only while the run is of what was measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlsim.scenario.document import Document, load
from rlsim.scenario.editing import Original, write_edited
from rlsim.scenario.override import override, settings_tree

Write = Callable[..., str]
ROW = "published: [{step_seconds: 50, source: a table, grade: A}]\n"
ARMS = f"""{ROW}
arms:
  alike: {{trainer: {{mfu: 0.3}}}}
  longer: {{workload: {{group_size: 64}}}}
  own:
    workload: {{group_size: 64}}
    published: [{{step_seconds: 90, source: a table, grade: A}}]
"""


def shown(document: Document) -> dict[str | None, list[float]]:
    return {arm: [row.measured for row in one.published] for arm, one in document.resolve_all().items()}


@pytest.mark.parametrize(
    ("setting", "holds"),
    [
        ("trainer.mfu=0.2", True),
        ("sync.base_seconds=3", True),
        ("cluster.price_usd_per_gpu_hour=3", True),
        ("workload.group_size=32", True),
        ("workload.dataset_prompts=100000", True),
        ("workload.group_size=8", False),
        ("workload.response_tokens.mean_tokens=11", False),
        ("workload.reward={latency_seconds: 1}", False),
        ("cluster.gpus=32", False),
        ("model=Qwen2.5-7B", False),
        ("rollout.gpus=8", False),
    ],
)
def test_a_setting_that_changes_what_was_measured_drops_the_row(
    written: Write, base: str, setting: str, holds: bool
) -> None:
    document = load(written(base + ROW), sets=[setting])
    assert shown(document) == {None: [50.0] if holds else []}
    assert [setting.partition("=")[0].split(".")[0] in line for line in document.dropped_rows()] == [True] * (not holds)


def test_settings_of_python_count_as_those_of_the_command_line(written: Write, base: str) -> None:
    document = load(written(base + ROW)).with_settings(settings_tree({"workload.group_size": 8}))
    assert shown(document) == {None: []}


def test_an_overlay_drops_the_rows_of_the_file_and_keeps_its_own(written: Write, base: str) -> None:
    file, over = written(base + ROW), written("workload: {group_size: 8}\n", "over.yaml")
    assert shown(load(file, [over])) == {None: []}
    own = written("workload: {group_size: 8}\n" + ROW.replace("50", "20"), "own.yaml")
    assert shown(load(file, [own])) == {None: [20.0]}


def test_a_row_of_the_file_does_not_stand_in_an_arm_of_another_workload(written: Write, base: str) -> None:
    document = load(written(base + ARMS))
    assert shown(document) == {"alike": [50.0], "longer": [], "own": [90.0]}
    assert document.dropped_rows() == [
        "longer: the published step_seconds of 50 is left out: workload.group_size changed."
    ]
    assert document.dropped_rows(["alike"]) == []


def test_rows_of_a_shared_file_stand_while_its_workload_does(written: Write, base: str) -> None:
    written(base + ROW, "shared.yaml")
    assert shown(load(written("extends: shared.yaml\nname: other\ntrainer: {mfu: 0.3}\n"))) == {None: [50.0]}
    assert shown(load(written("extends: shared.yaml\nworkload: {group_size: 8}\n"))) == {None: []}
    written(base + ARMS, "shared.yaml")
    assert shown(load(written("extends: shared.yaml\nworkload: {prompts_per_step: 8}\n"))) == {
        "alike": [],
        "longer": [],
        "own": [],
    }
    assert shown(load(written("extends: shared.yaml\ntrainer: {mfu: 0.3}\n")))["own"] == [90.0]


def test_what_is_written_with_another_workload_has_no_row(written: Write, base: str, tmp_path: Path) -> None:
    document = load(written(base + ROW))
    for settings, rows in (({"workload.group_size": 8}, 0), ({"trainer.mfu": 0.2}, 1)):
        file = tmp_path / "edited.yaml"
        write_edited(override(document.resolve(), settings), file, Original(document))
        assert len(load(file).resolve().published) == rows
