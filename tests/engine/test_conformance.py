"""The jumping scheduler against vLLM and against the naive one; and what a comparison notices."""

from __future__ import annotations

import pytest
from naive import NaiveScheduler

from calibration.vllm.conformance import (
    ASYNCHRONOUS_SCHEDULING,
    ConformanceReport,
    compare,
    random_case,
    run_conformance,
)
from rlsim.engine.requests import EngineLimits, Request
from rlsim.live.vllm.setup import vllm_version


def against_naive(make: type[NaiveScheduler], cases: int = 60) -> ConformanceReport:
    return compare(make, cases, 0, NaiveScheduler, "the naive scheduler")


@pytest.mark.skipif(vllm_version() is None, reason="vLLM is not installed")
def test_scheduler_takes_the_same_steps_as_vllm() -> None:
    from rlsim.engine.scheduler import Scheduler

    report = run_conformance(Scheduler, cases=300, seed=0)
    assert not report.differences, report.table()


def test_scheduler_takes_the_same_steps_as_the_naive_one() -> None:
    from rlsim.engine.scheduler import Scheduler

    report = compare(Scheduler, 300, 1, NaiveScheduler, "the naive scheduler")
    assert not report.differences, report.table()
    assert report.counts["jumps of more than one step"] > 0


def test_a_case_is_a_function_of_seed_and_index() -> None:
    assert random_case(3, 5) == random_case(3, 5) != random_case(3, 6)


def test_every_case_can_hold_its_longest_sequence() -> None:
    for index in range(200):
        limits = random_case(0, index).limits
        assert limits.kv_blocks * limits.block_size >= limits.max_model_len
        assert limits.enable_chunked_prefill or limits.max_num_batched_tokens >= limits.max_model_len


class Greedy(NaiveScheduler):
    """Jumps to the end of nothing in particular."""

    def schedule(self) -> int:
        return 5 * super().schedule()

    def advance(self, steps: int) -> list[Request]:
        finished = super().advance(1)
        for _ in range(steps - 1):
            super().schedule()
            finished += super().advance(1)
        return finished


class LastInQueueFirst(NaiveScheduler):
    def _head(self) -> Request:
        return self.waiting[-1]


class FirstIsVictim(NaiveScheduler):
    def _victim(self) -> Request:
        return self.running[0]


class OneTokenMore(NaiveScheduler):
    def _is_finished(self, request: Request) -> bool:
        return request.tokens - request.context_tokens > request.target_tokens or super()._is_finished(request)


class Amnesiac(NaiveScheduler):
    def abort(self, sample: int) -> Request | None:
        super().abort(sample)
        return None


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(Greedy, "jump"), (LastInQueueFirst, "scheduled"), (Amnesiac, "aborted"), (FirstIsVictim, "scheduled")],
)
def test_a_scheduler_that_differs_is_found_out(wrong: type[NaiveScheduler], kind: str) -> None:
    report = against_naive(wrong)
    assert report.differences[kind] > 0
    assert f"{kind}: found" in report.table()


class Jumping(NaiveScheduler):
    """Jumps of two steps where nothing can change in between."""

    def schedule(self) -> int:
        steps = super().schedule()
        room = self.free_blocks >= len(self.running) and not self.waiting
        fresh = all(request.computed + 1 == request.tokens for request in self.running)
        lasting = all(
            request.tokens + 1 < min(request.context_tokens + request.target_tokens, self.limits.max_model_len)
            for request in self.running
        )
        return 2 * steps if room and fresh and lasting else steps

    def advance(self, steps: int) -> list[Request]:
        for _ in range(steps - 1):
            assert not super().advance(1)
            super().schedule()
        return super().advance(1)


def test_jumps_over_identical_steps_are_no_difference() -> None:
    report = against_naive(Jumping)
    assert not report.differences, report.table()
    assert report.counts["jumps of more than one step"] > 500


def test_a_scheduler_without_requests_has_nothing_to_run() -> None:
    scheduler = NaiveScheduler(EngineLimits(4, 64, 64, 8, 30))
    assert scheduler.schedule() == 0
    assert not scheduler.has_requests()


def test_the_table_names_the_reference_and_what_asynchronous_scheduling_changes() -> None:
    table = against_naive(NaiveScheduler, cases=2).table()
    assert "the naive scheduler" in table
    assert ASYNCHRONOUS_SCHEDULING in table
