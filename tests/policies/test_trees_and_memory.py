"""Allocation that forks, drafts or replays, in any composition: it is refused, or its run ends with closed books."""

from __future__ import annotations

from typing import Any

import pytest
from compositions import PARTS, RUNS, fault, is_refused_or_runs_to_its_end, preset
from hypothesis import given, settings
from hypothesis import strategies as st

STRATEGIES: list[dict[str, Any]] = [
    {"use": "spec-rl"},
    {"use": "spec-rl", "max_age_versions": 2},
    {"use": "replay", "max_uses": 3},
    {"use": "replay", "order": "newest", "redundancy": 1},
    {"use": "popo"},
    {"use": "trace", "roots": 1, "width": 1},
    {"use": "spark", "marks": (2, 9), "threshold": None},
    {"use": "spark", "most_in_a_row": 1},
    {"use": "echo", "roots": 1, "marks": (2, 5, 9), "low": 0.5},
]
LEARNT: dict[str, Any] = {"learning": {}, "workload__dataset_prompts": 7}


@settings(max_examples=150, deadline=None)
@given(parts=PARTS, allocation=st.sampled_from(STRATEGIES), members=st.integers(1, 4), **RUNS)
def test_compositions_are_refused_or_run_to_their_end(
    parts: dict[str, Any], allocation: dict[str, Any], members: int, **run: Any
) -> None:
    is_refused_or_runs_to_its_end({**parts, "allocation": allocation}, members, **run, **LEARNT)


REFUSED = [
    (preset("areal", {"max_head_offpolicyness": 2}, leftovers={"use": "drop-old", "max_age_versions": 1}), "leftovers"),
    (preset("sync-disaggregated", leftovers={"use": "off-policy-steps"}), "leftovers"),
]


@pytest.mark.parametrize("use", ["replay", "popo"])
@pytest.mark.parametrize(("policy", "choice"), REFUSED)
def test_replays_that_would_be_dropped_for_their_age_are_refused(policy: dict[str, Any], choice: str, use: str) -> None:
    parts = {**policy["parts"], "allocation": {"use": use}}
    path, _, allowed = fault({**policy, "parts": parts}, **LEARNT)
    assert path == f"policy.parts.{choice}.use"
    assert "replays would be dropped at once" in allowed


@pytest.mark.parametrize("use", ["trace", "replay", "popo"])
def test_a_lag_counted_in_samples_needs_groups_of_one_size(use: str) -> None:
    admission = {"use": "free-running", "llm_max_rollouts": 4, "max_lag_samples": 2}
    policy = preset("pipelinerl", {"llm_max_rollouts": 4}, admission=admission, allocation={"use": use})
    path, _, allowed = fault(policy, workload__group_size=2, **LEARNT)
    assert path == "policy.parts.admission.use"
    assert "groups have more or fewer" in allowed


def test_drafts_need_a_learning_model() -> None:
    path, found, allowed = fault(preset("sync-colocated", allocation={"use": "spec-rl"}))
    assert (path, found) == ("learning", None)
    assert "accept of an old response" in allowed
