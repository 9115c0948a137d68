"""Tasks: a prompt is a function of its number, an answer earns 1, and everything else earns less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.errors import ParameterError
from rlsim.live.tasks.registry import RULES, make_task
from rlsim.live.tasks.vocabulary import BOS, EOS, SPECIAL

NAMES = st.sampled_from(sorted(RULES))
NUMBERS = st.integers(0, 2**40)


def said(name: str, question: str, **sizes: int) -> set[str]:
    """The answers that a task gives to a question, over many prompts."""
    task = make_task(name, sizes)
    text = task.vocabulary.text
    asked = [n for n in range(3000) if text(task.prompt(n)) == f"<bos> {question}"]
    return {text(task.answer(n)) for n in asked}


def test_answers_by_hand() -> None:
    assert said("successor", "3", symbols=5) == {"4 <eos>"}
    assert said("successor", "4", symbols=5) == {"0 <eos>"}
    assert said("counting", "6 >", symbols=8, length=3) == {"7 0 1 <eos>"}
    assert said("sorting", "2 0 2 >", symbols=3, length=3) == {"0 2 2 <eos>"}
    assert said("arithmetic", "7 + 5 =", digits=1) == {"1 2 <eos>"}
    assert said("arithmetic", "2 + 5 =", digits=1) == {"7 <eos>"}


@given(NAMES, NUMBERS, st.integers(0, 99))
def test_the_answer_earns_one_and_the_prompt_is_the_same_at_every_question(name: str, number: int, seed: int) -> None:
    task, again = make_task(name, seed=seed), make_task(name, seed=seed)
    assert task.prompt(number) == again.prompt(number)
    assert task.reward(number, task.answer(number)) == 1.0
    assert len(task.answer(number)) <= task.most_response_tokens
    assert task.prompt_tokens(number) == task.prompt_tokens(0) == len(task.prompt(number))


@given(NAMES, NUMBERS, st.lists(st.integers(0, 20), max_size=9), st.booleans())
def test_a_reward_is_a_share_and_only_the_answer_earns_one(
    name: str, number: int, response: list[int], partial: bool
) -> None:
    task = make_task(name, {"partial_credit": partial})
    reward = task.reward(number, response)
    cut = response[: response.index(EOS) + 1] if EOS in response else response
    assert 0.0 <= reward <= 1.0
    assert (reward == 1.0) == (tuple(cut) == tuple(task.answer(number)))
    assert partial or reward in (0.0, 1.0)


def test_partial_credit_is_the_share_of_places_that_are_right() -> None:
    task = make_task("counting", {"symbols": 8, "length": 3})
    first, second, third, end = task.answer(0)
    assert task.reward(0, (first, second, third, first)) == pytest.approx(3 / 4)
    assert task.reward(0, (first,)) == pytest.approx(1 / 4)
    assert task.reward(0, (first, second, third, first, end)) == pytest.approx(3 / 5)
    assert task.reward(0, ()) == 0.0
    assert make_task("counting", {"length": 3, "partial_credit": False}).reward(0, (first,)) == 0.0


@given(NAMES, NUMBERS)
def test_every_token_is_of_the_vocabulary(name: str, number: int) -> None:
    task = make_task(name)
    assert task.prompt(number)[0] == BOS
    assert task.eos == EOS
    words = [*task.prompt(number)[1:], *task.answer(number)[:-1]]
    assert all(len(SPECIAL) <= token < task.vocabulary.size for token in words)
    assert "?" not in task.vocabulary.text(words)


def test_prompts_differ_by_number_and_by_seed() -> None:
    task, other = make_task("sorting"), make_task("sorting", seed=1)
    prompts = [task.prompt(n) for n in range(200)]
    assert len(set(prompts)) > 150
    assert prompts != [other.prompt(n) for n in range(200)]
    starts = [make_task("successor").prompt(n)[1] for n in range(4000)]
    counts = [starts.count(token) for token in set(starts)]
    assert len(counts) == 8
    assert max(abs(count - 500) for count in counts) < 5 * 21, "uniform: a standard deviation is 21"


def test_tasks_are_found_by_name_with_their_sizes() -> None:
    with pytest.raises(ParameterError, match="did you mean 'sorting'"):
        make_task("sortin")
    with pytest.raises(ParameterError, match=r"task\.lengths.*did you mean 'length'"):
        make_task("sorting", {"lengths": 3})
    with pytest.raises(ParameterError, match=r"task\.digits: found 0; allowed: 1 to 12"):
        make_task("arithmetic", {"digits": 0})
    with pytest.raises(ParameterError, match=r"task\.partial_credit: found 1; allowed: true or false"):
        make_task("sorting", {"partial_credit": 1})
    with pytest.raises(ParameterError, match="a whole number"):
        make_task("arithmetic", {"digits": True})
