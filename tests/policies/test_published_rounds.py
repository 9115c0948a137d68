"""What frameworks publish about rounds, held against recorded decisions: over-sampling (slime) and pools (CoPRIS)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from policy_runs import (
    AGENTS,
    PROMPT_TOKENS,
    Moment,
    batches,
    commands,
    ends,
    groups_of,
    moments,
    outcomes,
    run_of,
    start_lags,
)

from rlsim.core.commands import Abort, Score, Submit, Train
from rlsim.core.events import Aborted, Cut, Finished, Scored, Started, Synced
from rlsim.core.log import RunLog

few = settings(max_examples=8, deadline=None)
seeds = st.integers(0, 10_000)
group_sizes = st.integers(1, 4)


# -- slime --------------------------------------------------------------------------------------------


def rounds(log: RunLog) -> list[list[Moment]]:
    """Moments from each event that opens a round (the start, a publication) to the next."""
    made: list[list[Moment]] = []
    for moment in moments(log):
        if isinstance(moment.event, Started | Synced):
            made.append([])
        made[-1].append(moment)
    return [one for one in made if any(isinstance(c, Train) for moment in one for c in moment.commands)]


over_sampling = {"over_sampling_batch_size": st.integers(3, 8), "seed": seeds, "partial": st.booleans()}


@few
@given(**over_sampling)
def test_slime_submits_whole_multiples_of_the_over_sampling_size(
    over_sampling_batch_size: int, seed: int, partial: bool
) -> None:
    given = {"over_sampling_batch_size": over_sampling_batch_size, "partial_rollout": partial}
    for opening, *rest in rounds(run_of("slime-april", given, seed=seed)):
        submitted = [made.sample for made in opening.commands if isinstance(made, Submit)]
        assert len(set(groups_of(tuple(submitted), 2))) == over_sampling_batch_size
        assert not [made for moment in rest for made in moment.commands if isinstance(made, Submit)]


@few
@given(**over_sampling)
def test_slime_keeps_the_first_groups_to_complete_and_loses_the_surplus(
    over_sampling_batch_size: int, seed: int, partial: bool
) -> None:
    given = {"over_sampling_batch_size": over_sampling_batch_size, "partial_rollout": partial}
    log = run_of("slime-april", given, seed=seed)
    place = ends(log)
    for one in rounds(log):
        finished = {moment.event.sample for moment in one if isinstance(moment.event, Finished)}
        touched = {sample // 2 for sample in finished}
        complete = [group for group in touched if place.keys() >= {2 * group, 2 * group + 1}]
        first = min(i for i, moment in enumerate(log.decisions) if moment.event is one[0].event)
        last = first + len(one)
        complete = [g for g in complete if max(place[2 * g], place[2 * g + 1]) < last]
        in_order = sorted(complete, key=lambda g: max(place[2 * g], place[2 * g + 1]))
        kept = next(c for moment in one for c in moment.commands if isinstance(c, Train))
        assert groups_of(kept.samples, 2) == sorted(in_order[:3])
        lost = {sample for g in in_order[3:] for sample in (2 * g, 2 * g + 1)}
        assert {row.outcome for row in log.final if row.sample in lost} <= {"dropped_surplus"}


def cuts(one: list[Moment]) -> dict[int, Cut]:
    return {cut.sample: cut for moment in one if isinstance(moment.event, Aborted) for cut in moment.event.cuts}


@few
@given(size=st.integers(4, 8), seed=seeds)
def test_slime_resumes_aborted_groups_first_from_their_tokens(size: int, seed: int) -> None:
    log = run_of("slime-april", {"over_sampling_batch_size": size}, seed=seed)
    carried: dict[int, int] = {}
    for before, after in pairwise(rounds(log)):
        carried |= {sample: carried.get(sample, 0) + cut.tokens for sample, cut in cuts(before).items()}
        submitted = [made for made in after[0].commands if isinstance(made, Submit)]
        resumed = submitted[: len(cuts(before))]
        assert [made.sample for made in resumed] == sorted(cuts(before))
        for made in resumed:
            assert made.made_tokens == carried[made.sample]
            assert made.context_tokens == PROMPT_TOKENS + made.made_tokens
        assert all(made.made_tokens == 0 for made in submitted[len(resumed) :])


@few
@given(size=st.integers(4, 8), seed=seeds)
def test_slime_without_partial_rollout_drops_aborted_groups_with_their_finished_members(size: int, seed: int) -> None:
    log = run_of("slime-april", {"over_sampling_batch_size": size, "partial_rollout": False}, seed=seed)
    outcome = {row.sample: row.outcome for row in log.final}
    aborted = {sample // 2 for one in rounds(log) for sample in cuts(one)}
    assert {outcome[2 * group + member] for group in aborted for member in (0, 1)} <= {"dropped_surplus"}
    assert len({made.sample for _, made in commands(log, Submit)}) == len(commands(log, Submit))


def test_a_round_of_slime_lasts_until_rewards_that_cannot_be_aborted_are_there() -> None:
    log = run_of("slime-april", workload__reward={"latency_seconds": 3.0})
    open_scores: set[int] = set()
    for row in log.decisions:
        open_scores |= {made.sample for made in row.commands if isinstance(made, Score)}
        if isinstance(row.event, Scored):
            open_scores.discard(row.event.sample)
        if any(isinstance(made, Train) for made in row.commands):
            assert not open_scores
    assert any(isinstance(row.event, Scored) for row in log.decisions)


# -- CoPRIS -------------------------------------------------------------------------------------------


@few
@given(pool=st.integers(1, 20), members=group_sizes, seed=seeds)
def test_copris_keeps_its_pool_full_until_a_batch_is_complete(pool: int, members: int, seed: int) -> None:
    given = {"partial_rollout_pool_size": pool}
    for one in rounds(run_of("copris", given, seed=seed, workload__group_size=members, **AGENTS)):
        for moment in one:
            if any(isinstance(made, Abort) for made in moment.commands):
                break
            if any(isinstance(made, Train) for made in moment.commands) or len(moment.calls | moment.held) < pool:
                assert no_more_generation(one, moment)
                break


def no_more_generation(one: list[Moment], since: Moment) -> bool:
    """Whether the batch is complete at ``since``: nothing is submitted in the rest of the round."""
    later = one[one.index(since) :]
    return not [made for moment in later for made in moment.commands if isinstance(made, Submit)]


def test_copris_carries_surplus_groups_over_and_drops_nothing() -> None:
    log = run_of("copris", {"partial_rollout_pool_size": 12}, workload__response_tokens=30)
    assert [groups_of(batch, 2) for batch in batches(log)][:2] == [[0, 1, 2], [3, 4, 5]]
    assert not {outcome for outcome in outcomes(log) if outcome.startswith("dropped")}
    assert start_lags(log)[6:12] == [1] * 6


@few
@given(pool=st.integers(4, 20), seed=seeds)
def test_copris_resumes_unfinished_trajectories_before_new_ones(pool: int, seed: int) -> None:
    waiting: set[int] = set()
    for one in rounds(run_of("copris", {"partial_rollout_pool_size": pool}, seed=seed)):
        submitted = [made.sample for made in one[0].commands if isinstance(made, Submit)]
        if submitted:  # A round whose batch is complete from the start generates nothing.
            assert submitted[: len(waiting)] == sorted(waiting)[:pool]
        waiting = (waiting - set(submitted)) | cuts(one).keys()
