"""Strategies that look at responses under way: what they refuse, and what they do in runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from controller_parts import WATCHING
from policy_runs import POLICIES, batches, ran
from scripted_groups import made

from rlsim.core.errors import ParameterError
from rlsim.core.events import Finished
from rlsim.core.log import RunLog
from rlsim.policies.registry import parts_of
from rlsim.resolve import ResolveError
from rlsim.results.metrics import ledger_tokens


@pytest.mark.parametrize(
    ("use", "fields", "key"),
    [
        ("arrol", {"kept_share": 0.0}, "kept_share"),
        ("arrol", {"mark_tokens": 1}, "mark_tokens"),
        ("duet", {"token_share": 1.5}, "token_share"),
        ("duet", {"survival": 0.0}, "survival"),
        ("duet", {"most_ratio": 0.5}, "most_ratio"),
        ("pg-opd", {"candidates": 0.9}, "candidates"),
        ("prune-opd", {"most_window_tokens": 9}, "most_window_tokens"),
        ("prune-opd", {"consecutive": 0}, "consecutive"),
        ("adwin", {"least_window_tokens": 600}, "window_tokens"),
        ("adwin", {"probe_groups": 0}, "probe_groups"),
        ("shortopd", {"headroom": 0.9}, "headroom"),
        ("esr", {"response_tokens": 0}, "response_tokens"),
        ("espo", {"smoothing": 1.0}, "smoothing"),
        ("masa", {"slack": 0.9}, "slack"),
        ("masa", {"least_useful": 1.1}, "least_useful"),
        ("precog", {"failure_confidence": 1.0}, "failure_confidence"),
    ],
)
def test_sizes_that_cannot_be_are_refused(use: str, fields: dict[str, Any], key: str) -> None:
    with pytest.raises(ParameterError) as caught:
        made(use, **fields)
    assert caught.value.path == key


def test_marks_are_a_list_in_a_file() -> None:
    assert made("echo", marks=[4, 9])[0].spec == made("echo", marks=(4, 9))[0].spec
    for marks in ([4, "9"], [4.5], 4, "4"):
        with pytest.raises(ParameterError) as caught:
            made("echo", marks=marks)
        assert caught.value.path == "allocation.marks"


def test_an_unknown_signal_is_refused_before_anything_runs() -> None:
    with pytest.raises(ResolveError, match=r"policy.parts.allocation.signal: .*'entropi'.*entropy"):
        run({"use": "spark", "signal": "entropi"}, "one-step-off")


def run(allocation: dict[str, Any], preset: str, **changes: Any) -> RunLog:
    policy = {"preset": preset, **POLICIES[preset], "parts": {"allocation": allocation}}
    sizes = {
        "workload__group_size": 4,
        "workload__response_tokens": {"law": "uniform", "low_tokens": 5, "high_tokens": 60},
    }
    return ran(policy, **{"learning": {"population": {"mean_success": 0.5}}, **sizes, "run__steps": 12, **changes})


@pytest.mark.parametrize("preset", ["sync-colocated", "one-step-off", "areal"])
@pytest.mark.parametrize("allocation", WATCHING, ids=lambda spec: spec["use"])
def test_the_ledger_closes_and_every_strategy_does_something(allocation: dict[str, Any], preset: str) -> None:
    log = run(allocation, preset)
    assert len(log.iterations) == 12
    assert sum(ledger_tokens(log).values()) == log.generated_tokens
    plain = run({"use": "uniform"}, preset)
    assert [row.commands for row in log.decisions] != [row.commands for row in plain.decisions]


def test_pruned_responses_make_the_training_step_smaller() -> None:
    arrol_spec = next(spec for spec in WATCHING if spec["use"] == "arrol")
    log = run(arrol_spec, "sync-colocated")
    outcomes = Counter(row.outcome for row in log.final)
    sizes = [len(batch) for batch in batches(log)]
    assert outcomes["pruned"] > 0
    assert sizes[0] == 12 > min(sizes[-3:])


def test_capped_responses_are_no_longer_than_the_cap() -> None:
    log = run({"use": "esr", "response_tokens": 16}, "areal")
    tokens: Counter[int] = Counter()
    for row in log.decisions:
        if isinstance(row.event, Finished):
            tokens[row.event.sample] += row.event.tokens
    assert max(tokens.values()) == 16


def test_strategies_that_look_need_signals() -> None:
    for use in sorted({"arrol", "pg-opd", "adwin", "espo"} & set(parts_of("allocation"))):
        with pytest.raises(ResolveError) as caught:
            run({"use": use}, "sync-colocated", learning=None)
        assert caught.value.path == "learning"


@pytest.mark.parametrize("use", ["pg-opd", "prune-opd", "esr"])
def test_distilled_runs_teach_by_tokens(use: str) -> None:
    spec = next(spec for spec in WATCHING if spec["use"] == use)
    learning = {"distillation": {"fade_tokens": 20.0}}
    cut, whole = (run(allocation, "sync-colocated", learning=learning) for allocation in (spec, {"use": "uniform"}))
    told = [sum(row.information for row in log.progress) / len(log.progress) for log in (cut, whole)]
    assert told[1] == pytest.approx(1.0, abs=0.15)
    assert told[0] < told[1]  # a sample that is cut teaches less than a whole one
