"""What the step log makes of a scheduler's plans."""

from __future__ import annotations

from types import SimpleNamespace

from calibration.measure.points import StepPoint, TimedStep
from calibration.vllm.bench import StepMemory
from rlsim.live.vllm.step_log import StepLog

SECOND = 10**9


def request(computed: int) -> SimpleNamespace:
    return SimpleNamespace(num_computed_tokens=computed, is_prefill_chunk=False)


def plan(scheduled: dict[str, int]) -> SimpleNamespace:
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        total_num_scheduled_tokens=sum(scheduled.values()),
        scheduled_new_reqs=[],
        scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set()),
        finished_req_ids=set(),
        preempted_req_ids=None,
    )


def log_of(clock: list[float]) -> tuple[StepLog, list[TimedStep]]:
    times, memory = iter(clock), StepMemory()
    return StepLog(memory.open().step, clock=lambda: round(next(times) * SECOND), cpu_clock=lambda: 0), memory.steps


def end(log: StepLog, plan: SimpleNamespace) -> None:
    step = log.take(plan)
    assert step is not None
    log.end(step)


def test_a_synchronous_step_lasts_from_its_plan_to_its_update() -> None:
    (log, steps), requests = log_of([1.0, 1.5, 3.0, 3.25]), {"a": request(65)}
    for _ in range(2):
        began, one = log.now(), plan({"a": 1})
        log.begin(one, began, requests)
        end(log, one)
    assert [step.seconds for step in steps] == [0.5, 0.25]


def test_overlapping_steps_last_from_end_to_end() -> None:
    """With asynchronous scheduling the second is decided at 1.1, while the first runs until 2.0."""
    (log, steps), requests = log_of([1.0, 1.1, 2.0, 2.75]), {"a": request(65)}
    first, second = plan({"a": 1}), plan({"a": 1})
    log.begin(first, log.now(), requests)
    log.begin(second, log.now(), requests)
    end(log, first)
    end(log, second)
    assert [step.seconds for step in steps] == [1.0, 0.75]


def test_a_step_holds_what_its_plan_does() -> None:
    (log, steps), requests = log_of([1.0, 1.5, 3.0, 3.25]), {"a": request(65)}
    for one in (plan({"a": 65}), plan({"a": 1})):
        log.begin(one, log.now(), requests)
        end(log, one)
    assert steps[0] == TimedStep(0.5, decodes=0, kv_tokens=0, chunks=1, prefill_tokens=65, pairs=65 * 66 // 2)
    assert steps[1] == TimedStep(0.25, decodes=1, kv_tokens=65, chunks=0, prefill_tokens=0, pairs=0)


def test_a_plan_of_nothing_is_no_step() -> None:
    (log, steps), empty = log_of([1.0, 2.0]), plan({})
    log.begin(empty, log.now(), {})
    assert log.take(empty) is None
    assert steps == []


def test_a_step_is_at_its_point_whatever_its_context_has_grown_to() -> None:
    grown = TimedStep(1.0, cpu_seconds=1.0, decodes=4, kv_tokens=4 * 260, chunks=0, prefill_tokens=0, pairs=0)
    assert grown.is_at(StepPoint(decodes=4, context=256))
    assert not grown.is_at(StepPoint(decodes=5, context=256))
    assert not grown.is_at(StepPoint(decodes=4, context=256, chunks=1, tokens=16))
