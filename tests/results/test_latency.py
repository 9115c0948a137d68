"""What requests wait: by hand, over chunks and cuts, and by class."""

from __future__ import annotations

import math

import pytest
from handmade import finished, handmade, submit
from runs import TURNS, small_run

from rlsim.core.commands import Submit
from rlsim.core.events import Aborted, Cut, Finished, Started
from rlsim.core.log import Decision, RunLog
from rlsim.core.ticks import to_ticks
from rlsim.results.latency import latency, latency_by_class, request_columns
from rlsim.scenario.schema import Slo


def test_latency_by_hand() -> None:
    """Samples 2 and 3 end in the window of step 1: (12, 13, 25) and (12, 22, 30), of 8 and 4 tokens; two are begun."""
    told = latency(handmade())
    assert (told.requests, told.unfinished) == (2, 2)
    assert told.requests_per_second == pytest.approx(2 / 20)
    assert told.latency_mean_seconds == pytest.approx((13 + 18) / 2)
    assert told.latency_median_seconds == pytest.approx(15.5)
    assert told.latency_p99_seconds == pytest.approx(13 + 0.99 * 5)
    assert (told.ttft_mean_seconds, told.ttft_p99_seconds) == (pytest.approx(5.5), pytest.approx(1 + 0.99 * 9))
    assert told.tpot_mean_seconds == pytest.approx((12 / 7 + 8 / 3) / 2)
    assert told.goodput_per_second is None


@pytest.mark.parametrize(("ttft", "tpot", "good"), [(0.5, 9.0, 0), (1.0, 9.0, 1), (10.0, 9.0, 2), (10.0, 2.0, 1)])
def test_goodput_counts_what_meets_both_objectives(ttft: float, tpot: float, good: int) -> None:
    told = latency(handmade(), Slo(ttft_seconds=ttft, tpot_seconds=tpot))
    assert told.goodput_per_second == pytest.approx(good / 20)


def test_a_request_in_chunks_and_cut_calls_is_one_from_its_first_submission_to_its_last_token() -> None:
    log = RunLog()
    cut = Cut(0, 0, 3, ((0, 3),), to_ticks(4))
    for now, event, commands in (
        (1, Started(), (submit(0), submit(1))),
        (2, Aborted((Cut(0, 0, 0, ()),)), (submit(0),)),
        (5, Aborted((cut,)), (submit(0),)),
        (7, finished(0, ((0, 2),), "chunk", 6.0), (submit(0),)),
        (9, finished(0, ((1, 5),), "stop", 8.0), ()),
    ):
        log.decisions.append(Decision(to_ticks(now), event, commands))
    rows = request_columns(log)
    assert rows["sample"].tolist() == [0, 1]
    assert rows["response_tokens"].tolist() == [10, 0]
    assert rows["submitted_seconds"].tolist() == [1, 1]
    assert rows["first_token_seconds"][0] == 4
    assert rows["finished_seconds"][0] == 9
    assert math.isnan(rows["finished_seconds"][1])


def test_every_turn_is_a_request() -> None:
    log = small_run(extra=TURNS).log
    ended = [row.event for row in log.decisions if isinstance(row.event, Finished)]
    rows = request_columns(log)
    assert len(rows["sample"]) >= len(ended)
    assert {event.reason for event in ended} >= {"tool", "stop"}
    assert set(rows["turn"].tolist()) == {0, 1, 2}


def test_calls_that_are_cut_at_the_end_of_a_round_do_not_split_requests() -> None:
    log = small_run("copris").log
    assert any(isinstance(row.event, Aborted) and row.event.cuts for row in log.decisions)
    rows = request_columns(log)
    begun = {made.sample for row in log.decisions[:-1] for made in row.commands if isinstance(made, Submit)}
    assert sorted(rows["sample"].tolist()) == sorted(begun)


def test_classes_add_up_to_the_whole() -> None:
    shares = ("workload.classes.a.share=1", "workload.classes.b.share=2", "workload.classes.b.response_tokens=20")
    run = small_run(extra=shares)
    whole, parts = latency(run), latency_by_class(run)
    assert set(parts) == {"a", "b"}
    assert sum(part.requests for part in parts.values()) == whole.requests > 0
    total = sum(part.requests * part.latency_mean_seconds for part in parts.values())
    assert total == pytest.approx(whole.requests * whole.latency_mean_seconds)
    assert parts["b"].latency_mean_seconds < parts["a"].latency_mean_seconds
