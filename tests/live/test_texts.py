"""The tokens of a live run: whose they are, which turn they belong to, and that the policy counts them alike."""

from __future__ import annotations

import pytest

from rlsim.core.commands import Fork, Submit
from rlsim.core.errors import RlsimError
from rlsim.live.protocols import CallOutput
from rlsim.live.texts import Texts

PROMPT = [9, 8, 7]


def submit(turn: int, made_tokens: int, context_tokens: int) -> Submit:
    return Submit(4, 0, 2, 0, 1, turn, made_tokens, context_tokens)


def made(*tokens: int, version: int = 0) -> CallOutput:
    return CallOutput(list(tokens), [-0.5] * len(tokens), ((version, len(tokens)),), "stop")


def two_turns() -> Texts:
    """A turn that a publication cut after two tokens, a tool's answer, and another turn."""
    texts = Texts(lambda number: PROMPT)
    assert texts.context(submit(0, 0, 3), 5) == (9, 8, 7)
    texts.add(4, made(1, 2))
    assert texts.context(submit(0, 2, 5), 5) == (9, 8, 7, 1, 2)
    texts.add(4, made(3, version=1))
    assert texts.turn(4) == [1, 2, 3]
    texts.add_given(4, [50, 51])
    assert texts.context(submit(1, 0, 8), 5) == (9, 8, 7, 1, 2, 3, 50, 51)
    texts.add(4, made(6, version=1))
    return texts


def test_a_turn_that_was_cut_is_whole_for_its_tool() -> None:
    assert two_turns().turn(4) == [6]


def test_the_trainer_is_told_which_tokens_the_model_made_and_by_which_weights() -> None:
    told = two_turns().experience(4, 0.25)
    assert (list(told.prompt), list(told.response), told.reward) == (PROMPT, [1, 2, 3, 50, 51, 6], 0.25)
    assert list(told.made_by_model) == [True, True, True, False, False, True]
    assert list(told.log_probs) == [-0.5, -0.5, -0.5, 0.0, 0.0, -0.5]
    assert told.segments == ((0, 2), (1, 2))


def test_a_policy_that_counts_otherwise_ends_the_run() -> None:
    texts = two_turns()
    with pytest.raises(RlsimError, match="counts 8 tokens of context, the run has 9"):
        texts.context(submit(1, 1, 8), 5)


def test_members_of_a_group_share_it_and_a_recycled_prompt_is_another() -> None:
    texts = Texts(lambda number: PROMPT)
    for sample, recycle in ((0, 0), (1, 0), (2, 1)):
        texts.context(Submit(sample, 0, 7, recycle, sample, 0, 0, 3), 5)
    assert texts[0].group == texts[1].group != texts[2].group


def forked(sample: int, context_tokens: int) -> Submit:
    return Submit(sample, 0, 2, 0, 2, 1, 0, context_tokens, fork=Fork(4, 1, 0, 3))


def test_a_fork_begins_with_its_parents_tokens_and_trains_on_its_own_alone() -> None:
    texts = two_turns()
    assert texts.context(forked(6, 8), 5) == (9, 8, 7, 1, 2, 3, 50, 51)
    texts.add(6, made(70, 71, version=1))
    assert texts.turn(6) == [70, 71]
    told = texts.experience(6, 1.0)
    assert list(told.response) == [1, 2, 3, 50, 51, 70, 71]
    assert list(told.made_by_model) == [False] * 5 + [True] * 2
    assert list(told.log_probs) == [0.0] * 5 + [-0.5] * 2
    assert texts[6].group == texts[4].group


def test_a_fork_beyond_what_its_parent_has_ends_the_run() -> None:
    with pytest.raises(RlsimError, match="counts 20 tokens of context, the run has 9"):
        two_turns().context(forked(6, 20), 5)


def test_a_fork_takes_over_what_the_call_of_its_parent_has_made_by_then() -> None:
    texts = Texts(lambda number: PROMPT, lambda sample: ([1, 2, 3, 4], [-1.0, -2.0, -3.0, -4.0]))
    texts.context(submit(0, 0, 3), 5)
    child = Submit(6, 0, 2, 0, 2, 0, 2, 5, fork=Fork(4, 0, 2, 2))
    assert texts.context(child, 5) == (9, 8, 7, 1, 2)
    texts.so_far = lambda sample: ([], [])
    texts.add(6, made(50))
    told = texts.experience(6, 1.0)
    assert (list(told.response), list(told.made_by_model)) == ([1, 2, 50], [False, False, True])
    assert list(told.log_probs) == [0.0, 0.0, -0.5]


def test_a_response_so_far_is_what_the_model_made_up_to_a_length() -> None:
    texts = two_turns()
    texts.so_far = lambda sample: ([60, 61, 62], [-6.0, -6.1, -6.2])
    seen = texts.partial_response(4, 11)
    assert seen.context == (9, 8, 7, 1, 2, 3, 50, 51, 6, 60, 61)
    assert (seen.places, seen.tokens) == ((3, 4, 5, 8, 9, 10), (1, 2, 3, 6, 60, 61))
    assert seen.log_probs == (-0.5, -0.5, -0.5, -0.5, -6.0, -6.1)


def test_what_stands_of_a_draft_is_the_samples_own_under_the_weights_that_checked_it() -> None:
    texts = Texts(lambda number: PROMPT)
    texts.context(submit(0, 0, 3), 5)
    texts.add(4, made(1, 2, 3, 4))
    check = Submit(9, 0, 7, 0, 1, 0, 0, 3, draft=4)
    assert texts.check(check, 5, 6) == (9, 8, 7, 1, 2, 3)
    assert texts.draft_log_probs(9, 3) == [-0.5] * 3
    texts.accept(9, [-0.1, -0.2, -0.3], ((5, 2),))
    assert texts.context(Submit(9, 0, 7, 0, 1, 0, 2, 5), 5) == (9, 8, 7, 1, 2)
    texts.add(9, made(80, version=5))
    told = texts.experience(9, 1.0)
    assert (list(told.response), list(told.log_probs)) == ([1, 2, 80], [-0.1, -0.2, -0.5])
    assert list(told.made_by_model) == [True] * 3
    assert told.segments == ((5, 3),)
