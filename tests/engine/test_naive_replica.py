"""The timed oracle itself, in closed forms small enough to count by hand."""

from __future__ import annotations

from naive_replica import NaiveReplica

from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime

LIMITS = EngineLimits(max_num_seqs=4, max_num_batched_tokens=16, max_model_len=64, block_size=4, kv_blocks=64)
DENSE, SEQUENCE, KV, PAIR = 1000, 100, 10, 1
LAW = StepTime([DENSE] * 17, [SEQUENCE * n for n in range(5)], [KV] * 5, PAIR)


def run(replica: NaiveReplica) -> list[tuple[int, int]]:
    """(sample, tick of its end) in order."""
    now, ends = 0, []
    while (end := replica.begin(now)) is not None:
        now = end
        ends += [(request.sample, now) for request in replica.end(now)]
    return ends


def test_one_request_is_a_prefill_and_then_decodes_over_a_growing_context() -> None:
    replica = NaiveReplica(0, LIMITS, LAW)
    request = Request(0, 0, 5, 5, 4)
    replica.submit(request)
    prefill = DENSE + SEQUENCE + PAIR * 15
    decodes = sum(DENSE + SEQUENCE + KV * context for context in (6, 7, 8))
    assert run(replica) == [(0, prefill + decodes)]
    assert request.first_token == prefill
    assert (replica.steps, replica.prefill_tokens, replica.decoded_tokens) == (4, 5, 4)


def test_a_long_prompt_is_cut_and_each_chunk_attends_to_what_came_before() -> None:
    replica = NaiveReplica(0, LIMITS, LAW)
    replica.submit(Request(0, 0, 20, 20, 1))
    first, second = 16 * 17 // 2, 4 * 16 + 4 * 5 // 2
    assert run(replica) == [(0, 2 * (DENSE + SEQUENCE) + PAIR * (first + second))]
    assert (replica.prefill_tokens, replica.decoded_tokens) == (20, 1)


def test_a_mate_that_hits_the_whole_prompt_computes_its_last_token_as_a_chunk() -> None:
    replica = NaiveReplica(0, LIMITS, LAW)
    for sample in (0, 1):
        replica.submit(Request(sample, 0, 5, 5, 1))
    assert run(replica) == [(0, 1220), (1, 1220)]
    assert replica.begin(0) is None
    assert replica.prefill_tokens == 6
    assert DENSE + 2 * SEQUENCE + PAIR * (15 + 5) == 1220


def test_ranks_in_lockstep_wait_for_the_slowest() -> None:
    replica = NaiveReplica(0, LIMITS, LAW, ranks=2)
    for sample, prompt_tokens in ((0, 8), (1, 3)):
        replica.submit(Request(sample, sample, prompt_tokens, prompt_tokens, 2))
    assert [rank.scheduler.waiting_count for rank in replica.ranks] == [1, 1]
    slowest = (DENSE + SEQUENCE + PAIR * 36) + (DENSE + SEQUENCE + KV * 9)
    assert run(replica) == [(0, slowest), (1, slowest)]
    assert replica.steps == 2


def test_a_waiting_request_weighs_as_much_as_four_running_ones() -> None:
    replica = NaiveReplica(0, LIMITS, LAW, ranks=2)
    for sample in range(3):
        replica.submit(Request(sample, sample, 4, 4, 9), rank=0)
    replica.end(replica.begin(0) or 0)
    replica.submit(Request(3, 3, 4, 4, 9), rank=1)
    replica.submit(Request(4, 4, 4, 4, 9))
    assert 4 in replica.ranks[0].scheduler.requests


def test_output_is_divided_by_the_version_that_made_it() -> None:
    replica = NaiveReplica(0, LIMITS, LAW)
    request = Request(0, 0, 5, 5, 6)
    replica.submit(request)
    for version in (3, 3, 4):
        replica.version = version
        replica.end(replica.begin(0) or 0)
    run(replica)
    assert request.segments == [(3, 2), (4, 4)]


def test_an_abort_during_a_step_loses_the_token_of_that_step() -> None:
    replica = NaiveReplica(0, LIMITS, LAW)
    request = Request(0, 0, 5, 5, 6)
    replica.submit(request)
    end = replica.begin(0)
    assert replica.abort([0]) == []
    assert replica.end(end or 0) == []
    assert replica.aborted == [request]
    assert (request.tokens, replica.lost_tokens, replica.decoded_tokens) == (5, 1, 1)
    assert replica.begin(0) is None


def test_an_abort_between_steps_is_answered_at_once() -> None:
    replica = NaiveReplica(0, LIMITS, LAW)
    request = Request(0, 0, 5, 5, 6)
    replica.submit(request)
    assert replica.abort([0, 7]) == [request]
    assert replica.begin(0) is None


def test_after_a_reset_the_whole_context_is_computed_again() -> None:
    replica = NaiveReplica(0, LIMITS, LAW)
    replica.submit(Request(0, 0, 5, 5, 4))
    for _ in range(2):
        replica.end(replica.begin(0) or 0)
    replica.reset()
    run(replica)
    assert replica.prefill_tokens == 5 + 7
    assert replica.decoded_tokens == 4


def test_preemption_recomputes_the_context_and_loses_no_output() -> None:
    tight = EngineLimits(4, 16, 16, 4, kv_blocks=5, enable_prefix_caching=False)
    replica = NaiveReplica(0, tight, LAW)
    requests = [Request(sample, sample, 4, 4, 8) for sample in range(3)]
    for request in requests:
        replica.submit(request)
    assert sorted(sample for sample, _ in run(replica)) == [0, 1, 2]
    assert replica.decoded_tokens == 24
    assert sum(request.preemptions for request in requests) > 0
    assert replica.prefill_tokens > 12
