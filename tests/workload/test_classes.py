"""Classes of prompts: their shares, their lengths, and that a prompt's class is luck as common as all other."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.core.errors import ParameterError
from rlsim.workload.draws import ClassLengths
from rlsim.workload.lengths import Constant, LengthDistribution, Lognormal, Uniform
from rlsim.workload.workload import Workload

few = settings(max_examples=15, deadline=None)
PROMPTS = 20_000


TEN, HUNDRED = Constant(10), Constant(100)


def of_class(share: float, response: LengthDistribution = HUNDRED, prompt: LengthDistribution = TEN) -> ClassLengths:
    return ClassLengths(share, prompt, response)


def made(*classes: ClassLengths, seed: int = 7) -> Workload:
    return Workload(seed, 2, PROMPTS, Lognormal(120, 0.5, 2048), Lognormal(1000, 1.0, 16_384), 0.5, classes=classes)


@few
@given(shares=st.lists(st.integers(1, 9), min_size=1, max_size=5), seed=st.integers(0, 9999))
def test_shares_converge_to_what_was_stated(shares: list[int], seed: int) -> None:
    workload = made(*(of_class(float(share)) for share in shares), seed=seed)
    found = [workload.class_of(prompt) for prompt in range(PROMPTS)]
    for kind, share in enumerate(shares):
        expected = share / sum(shares)
        error = math.sqrt(expected * (1 - expected) / PROMPTS)
        assert abs(found.count(kind) / PROMPTS - expected) <= 5 * error + 1e-12


def test_every_class_has_its_own_lengths() -> None:
    workload = made(of_class(1, Constant(5), Constant(3)), of_class(1, Uniform(50, 60), Uniform(70, 80)))
    for prompt in range(200):
        quick = workload.class_of(prompt) == 0
        responses = {workload.response_tokens(prompt, 0, member) for member in range(4)}
        assert responses == {5} if quick else min(responses) >= 50
        assert workload.prompt_tokens(prompt) in ({3} if quick else range(70, 81))
        assert workload.response_cap_tokens(prompt) == (5 if quick else 60)


@given(seed=st.integers(0, 9999), prompt=st.integers(0, PROMPTS - 1))
def test_the_class_of_a_prompt_is_its_own_whatever_was_asked_before(seed: int, prompt: int) -> None:
    first, later = (made(of_class(1), of_class(3), seed=seed) for _ in range(2))
    for other in range(0, prompt, 977):
        later.class_of(other)
    assert first.class_of(prompt) == later.class_of(prompt)


def test_a_class_with_the_laws_of_the_workload_has_the_lengths_of_a_workload_without_classes() -> None:
    plain = made()
    alike = replace(plain, classes=tuple(ClassLengths(1, plain.prompt_length, plain.response_length) for _ in range(3)))
    for prompt in range(300):
        assert plain.class_of(prompt) == 0
        assert alike.prompt_tokens(prompt) == plain.prompt_tokens(prompt)
        assert alike.response_tokens(prompt, 2, 1) == plain.response_tokens(prompt, 2, 1)


@pytest.mark.parametrize("share", [0.0, -1.0, math.nan])
def test_a_share_of_nothing_is_refused(share: float) -> None:
    with pytest.raises(ParameterError, match="share"):
        of_class(share)


def test_lengths_that_are_foreseen_are_those_of_a_prompts_own_class() -> None:
    classes = of_class(1, Uniform(1, 90), Uniform(1, 50)), of_class(2, Uniform(100, 900), Uniform(60, 400))
    foreseeing, asking = made(*classes), made(*classes)
    for draw in range(70):
        tokens = foreseeing.loaded_tokens(draw)
        prompt, attempt = asking.prompt_at(draw)
        assert tokens == asking.prompt_tokens(prompt)
        assert foreseeing.response_tokens(prompt, attempt, 1) == asking.response_tokens(prompt, attempt, 1)
        assert (tokens > 50) == (asking.class_of(prompt) == 1)
