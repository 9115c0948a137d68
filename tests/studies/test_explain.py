"""Explanations: the change that helps is the one that must, and what cannot be or changes the data is told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_cases import written

from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.document import load
from rlsim.studies.explain.candidates import Candidates, candidates, families_called_for
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
    return [change.label for change, _ in candidates(found).tried]


def reason(listed: Candidates, label: str) -> str:
    (one,) = [one for one in listed.not_tried if one.label == label]
    return one.reason


def test_twice_the_environments_halve_a_step_of_tool_calls(tmp_path: Path) -> None:
    told, found = explained(tmp_path, (WORKLOAD, TOOLS))
    best = told.effects[0]
    assert best.change.label == "environments doubled to 4"
    # 8 calls of 10 s: 4 rounds of 2 calls, or 2 rounds of 4; all else takes some seconds at most.
    saved = told.record.metrics.step_seconds * (1 - 1 / best.speedup.mean)
    assert saved == pytest.approx(20.0, abs=0.01)
    text = explanation_text(told, found)
    assert text.splitlines()[1].startswith("Tool-bound: ")
    assert "1. environments doubled to 4: a step" in " ".join(text.split())
    assert "workload.turns.environments=4" in text


def test_a_slow_publication_is_helped_by_a_link_of_twice_the_rate(tmp_path: Path) -> None:
    told, _ = explained(tmp_path, ("link_bytes_per_second: 1.0e+9", "link_bytes_per_second: 1.0e+7"))
    assert told.effects[0].change.family in ("weight sync", "publication", "overlap")
    assert "a link of twice the rate" in [effect.change.label for effect in told.effects]
    assert told.record.verdict.startswith("Sync-bound: ")


def test_changes_of_what_is_learnt_say_so(tmp_path: Path) -> None:
    capped = (WORKLOAD, "response_tokens: {law: uniform, low_tokens: 10, high_tokens: 90, cap_tokens: 90}}")
    ahead = ("{preset: sync-disaggregated}", "{preset: areal, max_head_offpolicyness: 1}")
    found = {change.label: change.learnt for change, _ in candidates(planned(tmp_path, capped, ahead)).tried}
    assert found["responses cut at 67 tokens instead of 90"]
    assert found["max_head_offpolicyness 1 to 2"]
    assert found["max_num_seqs doubled to 128"] == ""


def test_what_would_be_refused_is_not_tried(tmp_path: Path) -> None:
    found = planned(tmp_path)
    tried = labels(found)
    # The trainer's only GPU cannot be given away, nor the replica's; one GPU cannot be split in two.
    assert not [label for label in tried if "GPU more" in label or "tensor parallel" in label]
    listed = candidates(found)
    assert reason(listed, "1 GPU more to rollout").startswith("refused: trainer.gpus: found 0; allowed: ")
    assert reason(listed, "tensor parallel doubled to 2").startswith("refused: rollout.gpus: found 1; allowed: ")
    assert reason(listed, "reward workers").startswith("workload.reward.workers is not set")
    assert reason(listed, "router") == "one replica"


def test_every_change_changes_something_and_keeps_the_machines(tmp_path: Path) -> None:
    found = planned(
        tmp_path, ("gpus: 2}", "gpus: 4}"), ("  gpus: 1\n", "  gpus: 2\n"), ("{gpus: 1, mfu", "{gpus: 2, mfu")
    )
    made = candidates(found).tried
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


POOLS = (
    "  max_num_seqs: 64\n",
    "  max_num_seqs: 64\n  pools: [{name: a, gpus: 2}, {name: b, gpus: 2, max_num_seqs: 8}]\n",
)
SIZES = (("gpus: 2}", "gpus: 8}"), ("  gpus: 1\n", "  gpus: 4\n"), ("{gpus: 1, mfu", "{gpus: 4, mfu"))


def test_gpus_move_between_pools_and_the_trainer(tmp_path: Path) -> None:
    made = {change.label: scenario for change, scenario in candidates(planned(tmp_path, *SIZES, POOLS)).tried}
    more = made["1 GPU more to rollout pool b"]
    assert [pool.gpus for pool in more.rollout.pools] == [2, 3]
    assert (more.rollout.gpus, more.trainer.gpus) == (5, 3)
    assert [pool.gpus for pool in made["1 GPU more to the trainer from pool a"].rollout.pools] == [1, 2]


def test_placement_publication_routers_and_overheads_are_tried(tmp_path: Path) -> None:
    overheads = ("{gpus: 4, mfu: 0.4}", "{gpus: 4, mfu: 0.4, fixed_seconds_per_step: 6.0}")
    made = {change.label: scenario for change, scenario in candidates(planned(tmp_path, *SIZES, overheads)).tried}
    assert made["all 8 GPUs generate, then train (colocated)"].trainer.gpus == 8
    assert made["trainer.fixed_seconds_per_step halved to 3"].trainer.fixed_seconds_per_step == 3
    assert made["sync.base_seconds halved to 0.125"].sync.base_seconds == 0.125
    assert {"calls routed by least-tokens", "calls routed by prefix-aware"} <= made.keys()
    asynchronous = (*SIZES, ("{preset: sync-disaggregated}", "{preset: slime-fully-async}"))
    tried = {change.label: scenario for change, scenario in candidates(planned(tmp_path, *asynchronous)).tried}
    interval = tried["weights published half as often: update_weights_interval 2"].policy.fields
    assert interval["update_weights_interval"] == 2


def test_shared_gpus_are_also_tried_apart(tmp_path: Path) -> None:
    shared = (("gpus: 2}", "gpus: 4}"), ("  gpus: 1\n", "  gpus: 4\n"), ("{gpus: 1, mfu", "{gpus: 4, mfu"))
    listed = candidates(planned(tmp_path, *shared, ("sync-disaggregated", "sync-colocated")))
    assert "GPUs of their own, half each, in turn" in [change.label for change, _ in listed.tried]
    assert reason(listed, "split") == "rollout and trainer share all GPUs"


@pytest.mark.parametrize(
    ("cause", "family"),
    [("Reward", "reward workers"), ("Tool", "environments"), ("Sync", "publication"), ("Overhead", "overhead")],
)
def test_a_cause_calls_for_its_own_remedy_first(cause: str, family: str) -> None:
    assert families_called_for(f"{cause}-bound: some evidence.")[0] == family


def test_what_the_cause_calls_for_is_judged_even_where_it_changes_nothing(tmp_path: Path) -> None:
    # Each of the calls has an environment: twice as many help none of them.
    many = (WORKLOAD, TOOLS.replace("environments: 2", "environments: 8"))
    told, found = explained(tmp_path, many)
    assert told.record.verdict.startswith("Tool-bound")
    (same,) = [effect for effect in told.effects if effect.change.label == "environments doubled to 16"]
    assert not same.is_change
    text = explanation_text(told, found)
    assert "No change (the interval holds 1" in text
    assert text.index("environments doubled to 16: 1.00") > text.index("No change")
    assert text.index("Not tried:") > text.index("Evidence:")
    assert max(map(len, text.splitlines())) <= 80
