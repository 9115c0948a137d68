"""A request that begins with what another one made finds its KV, whether that one still runs or has ended."""

from __future__ import annotations

import pytest
from fleet_oracle import OracleReplica

from rlsim.engine.replica import Replica
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime

LIMITS = EngineLimits(4, 64, 64, block_size=4, kv_blocks=64)
PROMPT, MADE = 8, 10


def law() -> StepTime:
    seats = LIMITS.max_num_seqs + 1
    return StepTime([1000] * (LIMITS.max_num_batched_tokens + 1), [0] * seats, [0] * seats, 0)


def parent(target_tokens: int) -> Request:
    made = Request(0, 7, PROMPT, PROMPT, target_tokens)
    made.marks = (MADE,)
    return made


def child(sample: int = 1) -> Request:
    made = Request(sample, 7, PROMPT, PROMPT + MADE, 5)
    made.lineage = ((("sample", 0), PROMPT + MADE),)
    return made


def run(replica: Replica | OracleReplica, now: int, until_mark: bool = False) -> int:
    while (end := replica.begin(now)) is not None:
        now = end
        replica.end(now)
        if until_mark and replica.marked:
            break
    return now


def prefill(replica: Replica | OracleReplica) -> int:
    return replica.prefill_tokens if isinstance(replica, OracleReplica) else replica.ranks[0].prefill_tokens


@pytest.mark.parametrize("kind", [Replica, OracleReplica])
@pytest.mark.parametrize(("target_tokens", "still_runs"), [(30, True), (MADE, False)])
def test_only_the_last_block_that_is_not_full_is_computed(
    kind: type[Replica | OracleReplica], target_tokens: int, still_runs: bool
) -> None:
    replica = kind(0, LIMITS, law())
    replica.submit(parent(target_tokens))
    now = run(replica, 0, until_mark=True)
    assert bool(replica.requests()) == still_runs
    assert prefill(replica) == PROMPT
    replica.submit(child())
    run(replica, now)
    # the last token that the parent made is in no block yet: of 18 tokens 16 are in four full blocks
    assert prefill(replica) == PROMPT + 2


@pytest.mark.parametrize("kind", [Replica, OracleReplica])
def test_two_children_share_what_they_took_over_and_nothing_of_their_own(kind: type[Replica | OracleReplica]) -> None:
    replica = kind(0, LIMITS, law())
    replica.submit(parent(30))
    now = run(replica, 0, until_mark=True)
    for sample in (1, 2):
        replica.submit(child(sample))
    now = run(replica, now)
    assert prefill(replica) == PROMPT + 2 * 2
    stranger = Request(3, 7, PROMPT, PROMPT + MADE, 5)
    replica.submit(stranger)
    run(replica, now)
    assert prefill(replica) == PROMPT + 2 * 2 + MADE
