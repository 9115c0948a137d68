"""Open arrivals with any other parts: refused with the key to change, or run to the end; replayed the same."""

from __future__ import annotations

from typing import Any

import pytest
from compositions import KEEP, PARTS, RUNS, SERVING_PARTS, fault, is_refused_or_runs_to_its_end
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import scenario

from rlsim.executor.run import make_controller
from rlsim.resolve import ResolveError, resolve
from rlsim.results.replay.decisions import replay
from rlsim.sim.simulation import simulate

RANKS: dict[str, Any] = {"rollout__scheduling_policy": "priority"}
CLASSES = {"a": {"share": 1, "weight": 2.0}, "b": {"share": 3, "priority": 1, "response_tokens": 9}}
SERVED: dict[str, dict[str, Any]] = {
    "admission": {"use": "open-arrivals", "requests_per_second": 5.0},
    "batching": {"use": "complete-groups"},
    "update": KEEP,
    "leftovers": {"use": "keep-all"},
    "dispatch": {"use": "least-in-flight"},
    "placement": {"use": "disaggregated"},
}


@settings(max_examples=60, deadline=None)
@given(parts=SERVING_PARTS, members=st.sampled_from([1, 1, 1, 3]), **RUNS)
def test_open_arrivals_with_any_other_parts_are_refused_or_run_to_the_end(
    parts: dict[str, Any], members: int, **run: Any
) -> None:
    is_refused_or_runs_to_its_end(parts, members, **run, **RANKS, workload__classes=CLASSES)


@settings(max_examples=25, deadline=None)
@given(parts=PARTS | SERVING_PARTS, seed=st.integers(0, 99))
def test_what_was_recorded_is_what_a_fresh_controller_would_do_again(parts: dict[str, Any], seed: int) -> None:
    try:
        made = resolve(
            scenario({"parts": parts}, seed=seed, workload__group_size=1, workload__classes=CLASSES, **RANKS)
        )
    except ResolveError:
        return
    log = simulate(made).log
    replay(log.decisions, make_controller(made, made.workload_of(0)))


@pytest.mark.parametrize(
    ("choice", "spec", "key", "changes"),
    [
        ("placement", {"use": "colocated"}, "placement.use", {}),
        ("update", {"use": "publish", "mode": "pull"}, "update.mode", {}),
        ("update", {"use": "publish", "mode": "drain"}, "update.mode", {}),
        ("leftovers", {"use": "end-round"}, "leftovers.use", {}),
        ("ordering", {"use": "weighted-fair"}, "ordering.use", {"workload__group_size": 2}),
        ("admission", {"use": "open-arrivals", "requests_per_second": 0.0}, "admission.requests_per_second", {}),
        (
            "admission",
            {"use": "open-arrivals", "requests_per_second": 1.0, "burstiness": -1.0},
            "admission.burstiness",
            {},
        ),
    ],
)
def test_what_would_hold_requests_back_or_starve_a_batch_is_refused(
    choice: str, spec: dict[str, Any], key: str, changes: dict[str, Any]
) -> None:
    changes = {"workload__group_size": 1, **RANKS, **changes}
    if spec.get("use") == "colocated":
        spec, update = spec, {"use": "publish", "mode": "drain"}
        path, *_ = fault(
            {"parts": {**SERVED, "update": update, choice: spec, "leftovers": {"use": "end-round"}}}, **changes
        )
    else:
        path, *_ = fault({"parts": {**SERVED, choice: spec}}, **changes)
    assert path == f"policy.parts.{key}"


def test_a_batch_of_certain_requests_may_starve_and_is_refused_with_an_order_by_rank_only() -> None:
    parts = {**SERVED, "batching": {"use": "exact-target"}}
    resolve(scenario({"parts": parts}, workload__group_size=1))
    path, *_ = fault({"parts": {**parts, "ordering": {"use": "shortest-first"}}}, workload__group_size=1, **RANKS)
    assert path == "policy.parts.batching.use"
