"""Orders of calls and the predictors behind them: what is ranked before what, and with which error."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import PROMPT_TOKENS, commands, ran, scenario

from rlsim.core.commands import Submit
from rlsim.core.errors import ParameterError
from rlsim.core.events import Finished, Started
from rlsim.core.loads import Loads
from rlsim.core.log import Decision, RunLog
from rlsim.core.ticks import TICKS_PER_SECOND
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.executor.run import make_controller
from rlsim.policies.ordering.chunked import Divided
from rlsim.policies.ordering.predictors import outlived, prediction_error
from rlsim.policies.ordering.priorities import Ageing, Fcfs, FeedbackQueue, LongestFirst, ShortestFirst
from rlsim.policies.registry import parts_of
from rlsim.resolve import ResolveError, resolve

few = settings(max_examples=10, deadline=None)
SHAPE = RunSizes(prompts_per_step=2, group_size=4, replicas=2, max_num_seqs=8)
SEATS: dict[str, Any] = {"rollout__scheduling_policy": "priority", "rollout__max_num_seqs": 2, "run__steps": 2}


def group_of(lengths: list[int], draw: int = 0) -> tuple[View, Group]:
    """A view whose oracle knows the lengths of one group's members."""
    group = Group(0, draw, 0, PROMPT_TOKENS, 0, 0)
    group.members = [Sample(number, group, number) for number in range(len(lengths))]
    return View(SHAPE, Loads(SHAPE.replicas), oracle_tokens=lambda sample: lengths[sample.member]), group


def end(sample: Sample, tokens: int) -> None:
    sample.state, sample.response_tokens = "ended", tokens


def ordered(use: str, **given: Any) -> dict[str, Any]:
    return {"preset": "sync-disaggregated", "parts": {"ordering": {"use": use, **given}}}


def first_tokens(log: RunLog) -> dict[int, int]:
    """Tick of the first response token by sample."""
    found: dict[int, int] = {}
    for row in log.decisions:
        if isinstance(row.event, Finished):
            found.setdefault(row.event.sample, row.event.first_token_at)
    return found


def lengths(log: RunLog) -> dict[int, int]:
    """Response tokens by sample that ended."""
    made: dict[int, int] = {}
    for row in log.decisions:
        if isinstance(row.event, Finished):
            made[row.event.sample] = made.get(row.event.sample, 0) + row.event.tokens
    return made


# -- what the engines do with it -----------------------------------------------------------------------


@pytest.mark.parametrize("use", [name for name in parts_of("ordering") if name not in ("fcfs", "prefill-leg")])
def test_an_order_that_engines_would_ignore_is_refused_with_their_key(use: str) -> None:
    policy = ordered(use, tokens_per_second=1.0) if use == "ageing" else ordered(use)
    with pytest.raises(ResolveError) as caught:
        resolve(scenario(policy))
    assert caught.value.path == "rollout.scheduling_policy"
    resolve(scenario(policy, rollout__scheduling_policy="priority"))


def test_fcfs_runs_on_engines_of_either_kind() -> None:
    for queue in ("fcfs", "priority"):
        resolve(scenario(ordered("fcfs"), rollout__scheduling_policy=queue))


@few
@given(seed=st.integers(0, 9999), members=st.integers(2, 6))
def test_with_an_oracle_samples_begin_on_each_replica_in_order_of_length(seed: int, members: int) -> None:
    for use, sign in (("shortest-first", 1), ("longest-first", -1)):
        given = {**SEATS, "seed": seed, "workload__group_size": members, "run__steps": 1}
        log = ran(ordered(use, predictor="oracle"), **given)
        made, began = lengths(log), first_tokens(log)
        place = {command.sample: command.replica for _, command in commands(log, Submit)}
        for replica in set(place.values()):
            mine = sorted((began[sample], sign * made[sample]) for sample in made if place[sample] == replica)
            ranks = [rank for _, rank in mine]
            assert ranks[2:] == sorted(ranks[2:])
            assert max(ranks[:2]) <= min(ranks[2:], default=math.inf)


# -- predictors ----------------------------------------------------------------------------------------


def test_siblings_know_the_prior_until_a_mate_has_ended_then_their_mean_or_the_longest() -> None:
    view, group = group_of([50, 10, 30, 40])
    sample = group.members[0]
    mean, longest = (
        LongestFirst(predictor=name, prior_tokens=99).start(SHAPE) for name in ("siblings-mean", "siblings-max")
    )
    assert mean.priority(view, sample) == longest.priority(view, sample) == -99
    end(group.members[1], 10)
    end(group.members[2], 30)
    assert (mean.priority(view, sample), longest.priority(view, sample)) == (-20, -30)


def test_a_sample_that_outlived_its_estimate_is_expected_to_make_as_much_again() -> None:
    assert [outlived(100, made) for made in (0, 30, 99, 100, 150)] == [100, 70, 1, 100, 150]


def test_the_mean_of_a_prompt_ranks_all_members_alike_and_the_oracle_each_by_itself() -> None:
    view, group = group_of([10, 20, 30, 60])
    prompt, oracle = (ShortestFirst(predictor=name).start(SHAPE) for name in ("prompt-mean", "oracle"))
    assert [prompt.priority(view, sample) for sample in group.members] == [30] * 4
    assert [oracle.priority(view, sample) for sample in group.members] == [10, 20, 30, 60]


def test_parts_that_read_lengths_to_come_say_oracle_and_fail_without_one() -> None:
    view, group = group_of([10])
    view.oracle_tokens = None
    for name in ("oracle", "noisy", "prompt-mean"):
        started = LongestFirst(predictor=name).start(SHAPE)  # type: ignore[arg-type]
        assert started.oracle
        with pytest.raises(ParameterError):
            started.priority(view, group.members[0])
    assert not LongestFirst(predictor="siblings-max").start(SHAPE).oracle


@pytest.mark.parametrize("sigma", [0.0, 0.3, 1.0])
def test_the_noisy_predictor_has_the_error_that_it_states(sigma: float) -> None:
    sizes = {"workload__prompts_per_step": 100, "workload__group_size": 8, "workload__response_tokens": 2000}
    policy = ordered("longest-first", predictor="noisy", sigma=sigma)
    made = resolve(scenario(policy, rollout__scheduling_policy="priority", **sizes))
    found = prediction_error(submitted(made))
    assert found.predictions == 800
    assert abs(found.bias) <= 4 * sigma / math.sqrt(800) + 1e-12
    assert found.sigma == pytest.approx(sigma, rel=0.1, abs=1e-12)


def submitted(made: Any) -> RunLog:
    """The opening of a run and the ends of its calls, without the engines between."""
    controller = make_controller(made, made.workload_of(0))
    calls = controller.handle(0, Started())
    log = RunLog(decisions=[Decision(0, Started(), tuple(calls))])
    for call in calls:
        assert isinstance(call, Submit)
        event = Finished(call.sample, call.replica, 2000, ((0, 2000),), "stop", 1)
        log.decisions.append(Decision(1, event, ()))
    return log


def test_the_error_of_siblings_is_the_spread_within_groups_and_the_oracle_has_none() -> None:
    chunks = {"chunk_tokens": 8, "prior_tokens": 60}
    sizes: dict[str, Any] = {**SEATS, "workload__group_size": 8, "workload__prompts_per_step": 4}
    found = []
    for rho in (0.0, 0.98):
        log = ran(ordered("longest-first", **chunks), workload__intra_group_correlation=rho, **sizes)
        found.append(prediction_error(log).sigma)
    assert found[0] > found[1] > 0
    exact = prediction_error(ran(ordered("longest-first", predictor="oracle", chunk_tokens=8), **sizes))
    assert (exact.bias, exact.sigma) == (0, 0)


def test_a_run_without_ranks_has_no_error_to_measure() -> None:
    with pytest.raises(ParameterError, match="ordered by predicted length"):
        prediction_error(ran("sync-disaggregated"))


@pytest.mark.parametrize(
    ("part", "field"),
    [
        (LongestFirst(predictor="tarot"), "predictor"),  # type: ignore[arg-type]
        (LongestFirst(sigma=-1.0), "sigma"),
        (ShortestFirst(prior_tokens=0), "prior_tokens"),
        (ShortestFirst(chunk_tokens=-1), "chunk_tokens"),
        (Ageing(tokens_per_second=float("nan")), "tokens_per_second"),
        (Divided(chunk_tokens=0), "chunk_tokens"),
        (Divided(prior_tokens=0), "prior_tokens"),
        (FeedbackQueue(first_level_tokens=0), "first_level_tokens"),
        (FeedbackQueue(factor=1), "factor"),
        (FeedbackQueue(levels=1), "levels"),
    ],
)
def test_parameters_out_of_range_are_named(part: Any, field: str) -> None:
    with pytest.raises(ParameterError) as caught:
        part.start(SHAPE)
    assert caught.value.path == field


# -- ageing --------------------------------------------------------------------------------------------


@few
@given(short=st.integers(1, 100), longer=st.integers(1, 100), wait_seconds=st.integers(0, 50), rate=st.integers(0, 10))
def test_waiting_a_second_is_worth_the_stated_tokens(short: int, longer: int, wait_seconds: int, rate: int) -> None:
    view, group = group_of([short + longer, short])
    ageing = Ageing(float(rate), predictor="oracle").start(SHAPE)
    old = ageing.priority(view, group.members[0])
    view.now = wait_seconds * TICKS_PER_SECOND
    assert ageing.priority(view, group.members[1]) - old == rate * wait_seconds - longer


# -- feedback queue ------------------------------------------------------------------------------------


@few
@given(first=st.integers(1, 20), factor=st.integers(2, 3), seed=st.integers(0, 999))
def test_a_call_falls_a_level_when_it_has_made_the_levels_tokens(first: int, factor: int, seed: int) -> None:
    log = ran(ordered("feedback-queue", first_level_tokens=first, factor=factor, levels=3), seed=seed, **SEATS)
    bounds = [0, first, first * factor]
    seen = set()
    for _, call in commands(log, Submit):
        assert call.made_tokens == bounds[call.priority]
        assert call.max_tokens == (first, first * factor - first, 0)[call.priority]
        seen.add(call.priority)
    assert seen == {level for level in range(3) if bounds[level] < max(lengths(log).values())}


# -- divided -------------------------------------------------------------------------------------------


def test_probes_go_first_by_tokens_then_groups_that_are_unknown_or_long() -> None:
    view, group = group_of([9, 9, 9, 9])
    divided = Divided(chunk_tokens=5, prior_tokens=100).start(SHAPE)
    probe, second, third = group.members[:3]
    unknown = divided.priority(view, second)
    fresh = divided.priority(view, probe)
    probe.response_tokens = 5
    assert fresh < divided.priority(view, probe)
    assert divided.priority(view, probe) < divided.priority(view, second) == unknown == -100
    end(probe, 30)
    end(second, 8)
    assert divided.priority(view, third) == -30
    third.response_tokens = third.made_tokens = 10
    assert divided.priority(view, third) == -20


@few
@given(chunk=st.integers(3, 40), seed=st.integers(0, 999))
def test_divided_calls_make_a_chunk_each_and_go_on_where_the_tokens_ended_with_their_kv(chunk: int, seed: int) -> None:
    log = ran({"preset": "seer", "chunk_tokens": chunk, "max_response_tokens": 60}, seed=seed, rollout__max_num_seqs=2)
    made: dict[int, int] = {}
    moved = 0
    where: dict[int, int] = {}
    for row in log.decisions[:-1]:
        if isinstance(row.event, Finished):
            made[row.event.sample] = made.get(row.event.sample, 0) + row.event.tokens
            assert row.event.tokens == chunk if row.event.reason == "chunk" else row.event.tokens <= chunk
        for call in row.commands:
            if isinstance(call, Submit):
                assert (call.made_tokens, call.max_tokens) == (made.get(call.sample, 0), chunk)
                assert call.kv_from_pool == (call.made_tokens > 0)
                moved += where.get(call.sample, call.replica) != call.replica
                where[call.sample] = call.replica
    assert moved or chunk > 20


def test_fcfs_ranks_nothing() -> None:
    view, group = group_of([3, 1])
    part = Fcfs().start(SHAPE)
    assert {part.priority(view, sample) for sample in group.members} == {0}
