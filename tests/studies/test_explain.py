"""Explanations: the change that helps is the one that must, and what cannot be or changes the data is told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_cases import written

from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.document import load
from rlsim.studies.explain.candidates import candidates, changed_scenario
from rlsim.studies.explain.explain import Explanation, explain
from rlsim.studies.runs.executor import Processes, RunExecutor, local_executor, make_run
from rlsim.studies.runs.record import RunRecord, RunRequest
from rlsim.studies.runs.store import RunStore
from rlsim.studies.text.explain import explanation_json, explanation_text

TOOLS = "response_tokens: 50, turns: {count: 2, tool_latency_seconds: 10, tool_output_tokens: 5, environments: 2}}"
WORKLOAD = "response_tokens: 50}"


def planned(directory: Path, *changes: tuple[str, str]) -> ResolvedScenario:
    return resolve(load(str(written(directory, "", *changes))).resolve())


def explained(directory: Path, *changes: tuple[str, str]) -> tuple[Explanation, ResolvedScenario]:
    found = planned(directory, *changes)
    with local_executor() as runs:
        return explain("small", found, runs), found


def labels(found: ResolvedScenario) -> list[str]:
    return [change.label for change, _ in candidates(found)]


def test_twice_the_environments_halve_a_step_of_tool_calls(tmp_path: Path) -> None:
    told, found = explained(tmp_path, (WORKLOAD, TOOLS))
    best = told.effects[0]
    assert best.change.label == "environments doubled to 4"
    # 8 calls of 10 s: 4 rounds of 2 calls, or 2 rounds of 4; all else takes some seconds at most.
    saved = told.record.metrics.step_seconds * (1 - 1 / best.speedup.mean)
    assert saved == pytest.approx(20.0, abs=0.01)
    text = explanation_text(told, found)
    assert text.splitlines()[1].startswith("Tool-bound: ")
    assert "1. environments doubled to 4: a step" in text
    assert "workload.turns.environments=4" in text


def test_a_slow_publication_is_helped_by_a_link_of_twice_the_rate(tmp_path: Path) -> None:
    told, _ = explained(tmp_path, ("link_bytes_per_second: 1.0e+9", "link_bytes_per_second: 1.0e+7"))
    assert told.effects[0].change.label in ("a link of twice the rate", "one version ahead, interrupted and resumed")
    assert "a link of twice the rate" in [effect.change.label for effect in told.effects]
    assert told.record.verdict.startswith("Sync-bound: ")


def test_changes_of_what_is_learnt_say_so(tmp_path: Path) -> None:
    capped = (WORKLOAD, "response_tokens: {law: uniform, low_tokens: 10, high_tokens: 90, cap_tokens: 90}}")
    ahead = ("{preset: sync-disaggregated}", "{preset: areal, max_head_offpolicyness: 1}")
    found = {change.label: change.learnt for change, _ in candidates(planned(tmp_path, capped, ahead))}
    assert found["responses cut at 67 tokens instead of 90"]
    assert found["max_head_offpolicyness 1 to 2"]
    assert found["max_num_seqs doubled to 128"] == ""


def test_what_would_be_refused_is_not_tried(tmp_path: Path) -> None:
    found = planned(tmp_path)
    tried = labels(found)
    # The trainer's only GPU cannot be given away, nor the replica's; one GPU cannot be split in two.
    assert not [label for label in tried if "GPU more" in label or "tensor parallel" in label]
    assert changed_scenario(found.scenario, {"rollout.gpus": 2}) is None
    assert changed_scenario(found.scenario, {"rollout.max_num_seqs": 64}) is None


def test_every_change_changes_something_and_keeps_the_machines(tmp_path: Path) -> None:
    found = planned(
        tmp_path, ("gpus: 2}", "gpus: 4}"), ("  gpus: 1\n", "  gpus: 2\n"), ("{gpus: 1, mfu", "{gpus: 2, mfu")
    )
    made = list(candidates(found))
    assert "1 GPU more to rollout" in labels(found)
    for change, scenario in made:
        assert scenario != found.scenario, change.label
        assert scenario.cluster == found.scenario.cluster


def test_the_best_are_judged_on_luck_that_did_not_choose_them(tmp_path: Path) -> None:
    names: list[str] = []
    found = planned(tmp_path)

    def noted(request: RunRequest) -> RunRecord:
        names.append(request.label)
        return make_run(request)

    with RunStore() as store, Processes(1, noted) as backend:
        told = explain("small", found, RunExecutor(backend, store))
    runs = found.scenario.run.replications
    assert names.count("small") == 1 + runs
    assert len(names) == 1 + told.tried + runs * (1 + len(told.effects))
    assert all(effect.speedup.n == runs for effect in told.effects)


def test_the_same_for_machines(tmp_path: Path) -> None:
    told, found = explained(tmp_path, (WORKLOAD, TOOLS))
    read = json.loads(explanation_json(told, found, None))
    assert read["changes"][0]["settings"] == {"workload.turns.environments": 4}
    assert read["changes"][0]["changes_what_is_learnt"] is None
    assert set(read["evidence"]) >= {"rollout GPUs", "trainer GPUs", "KV cache", "tail", "weight sync", "staleness"}
