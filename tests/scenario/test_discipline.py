"""The section rollout.discipline: what may be said, what contradicts itself, and what the engine is told."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from rlsim.core.errors import ScenarioError
from rlsim.core.ticks import TICKS_PER_SECOND
from rlsim.engine.discipline import VLLM, AgeingQueue, Conservative, Discipline, PastFuture, StepTarget
from rlsim.resolve.hardware import make_discipline
from rlsim.scenario.document import load

Write = Callable[..., str]
SECTION = """\
  discipline:
    admission: past_future
    target_step_seconds: 0.05
    min_chunk_tokens: 64
    order: ageing
    waiting_weight: 1
    prefill_weight: 0.001
"""


def rules(path: str, *sets: str) -> Discipline:
    return make_discipline(load(path, sets=[f"rollout.discipline={{{', '.join(sets)}}}"] if sets else []).resolve())


def test_without_the_section_the_engine_is_vllms(written: Write, base: str) -> None:
    assert rules(written(base)) == rules(written(base), "admission: aggressive") == VLLM


def test_every_rule_reaches_the_engine(written: Write, base: str) -> None:
    path = written(base.replace("  step_time:", f"{SECTION}  step_time:", 1))
    made = rules(path)
    assert made.admission == PastFuture(None, 0.05, 200, 100, 0)
    assert made.step_target == StepTarget(TICKS_PER_SECOND // 20, 64, 1.0)
    assert made.ageing is not None
    ratio = Fraction(made.ageing.prefill_weight, made.ageing.waiting_weight)
    assert ratio == Fraction(0.001) * TICKS_PER_SECOND, "a token weighs as much as a millisecond waited"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["admission: conservative"], Discipline(Conservative(0.0))),
        (["admission: conservative", "reserved_fraction: 0.1"], Discipline(Conservative(0.1))),
        (["admission: past_future", "reserved_fraction: 0"], Discipline(PastFuture(None, 0.0, 200, 100, 0))),
        (
            ["admission: past_future", "quantile: 0.9", "history_calls: 50"],
            Discipline(PastFuture(0.9, 0.05, 50, 25, 0)),
        ),
        (["admission: past_future", "initial_calls: 0"], Discipline(PastFuture(None, 0.05, 200, 0, 0))),
        (["max_concurrent_prefills: 2"], Discipline(max_concurrent_prefills=2)),
        (["order: ageing", "waiting_weight: 0", "prefill_weight: 2"], Discipline(ageing=AgeingQueue(0, 2 * 10**12))),
        (
            ["target_step_seconds: 1", "min_chunk_tokens: 1", "predicted_scale: 1.1"],
            Discipline(step_target=StepTarget(10**12, 1, 1.1)),
        ),
    ],
)
def test_a_rule_alone_leaves_the_others_to_vllm(
    written: Write, base: str, given: list[str], expected: Discipline
) -> None:
    assert rules(written(base), *given) == expected


AGED = "rollout.discipline={order: ageing, waiting_weight: 1, prefill_weight: 1}"
PACED = "rollout.discipline={target_step_seconds: 0.05, min_chunk_tokens: 64}"


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (
            [AGED, "rollout.scheduling_policy=priority"],
            "rollout.discipline.order: found 'ageing'; allowed: nothing with scheduling_policy: priority",
        ),
        (
            [PACED, "rollout.enable_chunked_prefill=false", "rollout.max_model_len=8192"],
            "rollout.discipline.target_step_seconds: found 0.05; allowed: nothing with enable_chunked_prefill: false",
        ),
        (
            [PACED, "rollout.discipline.min_chunk_tokens=10000"],
            "rollout.discipline.min_chunk_tokens: found 10000; allowed: at most max_num_batched_tokens (8192)",
        ),
        (
            ["rollout.discipline={target_step_seconds: 0.05}"],
            "rollout.discipline.min_chunk_tokens: missing; allowed: a whole number, at least 1, with target_step",
        ),
        (
            ["rollout.discipline={min_chunk_tokens: 64}"],
            "rollout.discipline.min_chunk_tokens: found 64; allowed: nothing without target_step_seconds",
        ),
        (
            ["rollout.discipline={quantile: 0.5, admission: conservative}"],
            "rollout.discipline.quantile: found 0.5; allowed: nothing without admission: past_future",
        ),
        (
            ["rollout.discipline={reserved_fraction: 0.5}"],
            "rollout.discipline.reserved_fraction: found 0.5; allowed: nothing without admission: conservative or",
        ),
        (
            ["rollout.discipline={admission: past_future, history_calls: 5, initial_calls: 6}"],
            "rollout.discipline.initial_calls: found 6; allowed: at most history_calls (5)",
        ),
        (
            ["rollout.discipline={order: ageing, waiting_weight: 1}"],
            "rollout.discipline.prefill_weight: missing; allowed: a number, at least 0, with order: ageing",
        ),
        (
            ["rollout.discipline={order: ageing, waiting_weight: 0, prefill_weight: 0}"],
            "rollout.discipline.waiting_weight: found 0.0; allowed: above 0, or prefill_weight above 0",
        ),
        (
            ["rollout.discipline={admission: past-future}"],
            "rollout.discipline.admission: found 'past-future'; allowed: aggressive, conservative, past_future; did",
        ),
        (["rollout.discipline={admission: past_future, quantile: 0}"], "rollout.discipline.quantile: found 0; allowed"),
    ],
)
def test_contradictions_are_refused(written: Write, base: str, sets: list[str], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(written(base), sets=sets).resolve()
    (fault,) = caught.value.faults
    assert message in fault


def test_a_fault_names_its_line_and_the_nearest_key(written: Write, base: str) -> None:
    path = written(base.replace("  step_time:", f"{SECTION}  step_time:", 1).replace("waiting_weight", "wait_weight"))
    with pytest.raises(ScenarioError) as caught:
        load(path).resolve()
    assert any(
        fault.startswith(f"{path}:11: rollout.discipline.wait_weight: unknown key")
        and "did you mean 'waiting_weight'?" in fault
        for fault in caught.value.faults
    ), caught.value.faults
