"""Gains that stay with who taught: what is dealt to whom, nothing lost, and uniform training on its curve."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.learning.dynamics import LearningDynamics, Progress, TrainedSample
from rlsim.learning.gains import Alike
from rlsim.learning.locality import expected_worth, uniform_training
from rlsim.learning.model import (
    BatchEffect,
    Distillation,
    LearningModel,
    Population,
    ProgressCurve,
    Reference,
    RewardValues,
)
from rlsim.learning.population import PopulationCurve, sigmoid
from rlsim.learning.staleness import METHODS

PROMPTS = 40
GROUP = 4
STEADY = LearningModel(
    population=Population(mean_success=0.3, spread=1.2, persistence=1.0),
    curve=ProgressCurve(asymptote=0.9, half_updates=30, steepness=1.5),
    method=METHODS["none"],
    reference=Reference(32.0, GROUP),
)
groups = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=GROUP, max_size=GROUP), min_size=1, max_size=12)
shares = st.floats(0, 1)
exponents = st.sampled_from([0.0, 0.5, 1.0])


def of(transfer: float, exponent: float = 1.0, **changes) -> LearningModel:
    effect = BatchEffect(information_exponent=exponent, transfer=transfer)
    return STEADY.replace(effect=effect, **changes)


def batch(rewards: list[list[float]], first: int = 0) -> list[TrainedSample]:
    """A prompt a group, from ``first`` on."""
    return [TrainedSample(first + g, g, r, 0.0, 100) for g, group in enumerate(rewards) for r in group]


def gained(model: LearningModel, trained: list[TrainedSample]) -> tuple[Progress, np.ndarray]:
    """What a step did, and the logits that each prompt gained by it."""
    found = LearningDynamics(model, 3, PROMPTS)
    step = found.trained(trained, 1, 1)
    found.published(1)
    success = np.array([[found.success(p, v) for p in range(PROMPTS)] for v in (0, 1)])
    logits = np.log(success / (1 - success))
    return step, logits[1] - logits[0]


@settings(max_examples=40, deadline=None)
@given(groups, shares, exponents)
def test_what_prompts_gain_is_the_mean_gain_of_the_step(rewards, transfer: float, exponent: float) -> None:
    step, logits = gained(of(transfer, exponent), batch(rewards))
    assert logits.mean() == pytest.approx(step.gain, rel=1e-6, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(groups, shares)
def test_groups_that_agree_gain_what_prompts_that_were_not_trained_gain(rewards, transfer: float) -> None:
    step, logits = gained(of(transfer), batch(rewards))
    learnt = [p for p, group in enumerate(rewards) if len(set(group)) > 1]
    others = np.delete(logits, learnt)
    assert others == pytest.approx(transfer * step.gain, rel=1e-6, abs=1e-9)
    assert (logits[learnt] >= transfer * step.gain - 1e-9).all()


@pytest.mark.parametrize(("exponent", "ratio"), [(0.0, 1.0), (0.5, 0.75**0.5), (1.0, 0.75)])
def test_who_teaches_more_keeps_more(exponent: float, ratio: float) -> None:
    """One of four and two of four: mean squares of 3/16 and 4/16; 40 prompts share what does not transfer."""
    step, logits = gained(of(0.25, exponent), batch([[1, 0, 0, 0], [1, 1, 0, 0]]))
    few, half = logits[0] - 0.25 * step.gain, logits[1] - 0.25 * step.gain
    assert few / half == pytest.approx(ratio, rel=1e-6)
    assert few + half == pytest.approx(0.75 * step.gain * PROMPTS, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(groups, groups, shares)
def test_without_worth_of_information_rewards_change_nothing(one, other, transfer: float) -> None:
    size = min(len(one), len(other))
    first, second = (gained(of(transfer, 0.0), batch(rewards[:size])) for rewards in (one, other))
    assert (first[1] == second[1]).all()


@settings(max_examples=20, deadline=None)
@given(groups, exponents)
def test_with_full_transfer_all_prompts_gain_alike(rewards, exponent: float) -> None:
    found = LearningDynamics(of(1.0, exponent), 3, PROMPTS)
    step = found.trained(batch(rewards), 1, 1)
    found.published(1)
    plain = [found._prompts.logit(p, found._prompts.score(p, 1)) + step.skill for p in range(PROMPTS)]
    assert [found.success(p, 1) for p in range(PROMPTS)] == pytest.approx(sigmoid(np.array(plain)), rel=1e-12)
    assert found._non_transferred == {}


@pytest.mark.parametrize("transfer", [0.0, 0.6])
def test_the_mean_success_is_that_of_the_prompts(transfer: float) -> None:
    prompts = 20_000
    found = LearningDynamics(of(transfer), 3, prompts)
    for _ in range(5):
        found.trained(batch([[1.0, 0.0, 0.0, 0.0]] * 2000), 1, 1)
    found.published(1)
    success = np.array([found.success(p, 1) for p in range(prompts)])
    assert found.mean_success() == pytest.approx(success.mean(), abs=4 * success.std() / prompts**0.5)
    assert success[:2000].mean() > success[2000:].mean()


def test_a_batch_that_does_harm_takes_it_from_those_that_taught() -> None:
    stale = [replace(sample, lag_steps=1e6) for sample in batch([[1, 1, 0, 0], [1, 1, 1, 1]])]
    step, logits = gained(of(0.5).replace(method=METHODS["grpo"]), stale)
    assert step.gain < 0
    assert logits[0] < logits[1] < 0


def test_distilled_gains_stay_where_the_tokens_were() -> None:
    model = of(0.0).replace(distillation=Distillation(fade_exponent=0.0))
    found = LearningDynamics(model, 3, PROMPTS)
    found.measure(lambda prompt, member, factor: 100)
    found.trained([TrainedSample(0, 0, 0.0, 0.0, 300), TrainedSample(1, 1, 0.0, 0.0, 100)], 1, 1)
    assert found._non_transferred[0] == pytest.approx(3 * found._non_transferred[1])


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("transfer", [0.0, 0.5, 0.9])
def test_uniform_training_follows_its_curve_whatever_transfers(transfer: float, exponent: float) -> None:
    """Every prompt is in every batch, so that luck is small; the gains are the drawn rewards'."""
    prompts, size, model = 300, 8, of(transfer, exponent)
    found = LearningDynamics(model.replace(reference=Reference(prompts * size, size)), 5, prompts)
    for version in range(40):
        rewards = [[found.reward(p, version, m, version) for m in range(size)] for p in range(prompts)]
        success = found.trained(batch(rewards), 1, 1).success
        found.published(version + 1)
        expected = 0.3 + 0.6 / (1 + (30 / (version + 1)) ** 1.5)
        assert success == pytest.approx(expected, abs=0.02)


def test_the_population_moves_apart_as_the_equation_says() -> None:
    """dx = p (1 - p) dt has the integral exp(x) - exp(-x) + 2 x, which grows alike for all."""
    logits, weights = np.linspace(-4, 1, 11), np.full(11, 1 / 11)
    table = expected_worth(8, 1.0, False)
    for gain, at in uniform_training(logits, weights, 0.0, lambda x: np.asarray(np.interp(x, *table))):
        assert weights @ at == pytest.approx(weights @ logits + gain)
        if gain > 2:
            break
    grown = (2 * np.sinh(at) + 2 * at) - (2 * np.sinh(logits) + 2 * logits)
    assert grown == pytest.approx(grown.mean(), rel=2e-3)
    assert at.std() > logits.std()


def test_expected_worth_is_the_variance_of_a_group() -> None:
    for samples in (2, 8):
        logits, worth = expected_worth(samples, 1.0, False)
        success = sigmoid(logits)
        assert worth == pytest.approx(success * (1 - success) * (samples - 1) / samples, abs=1e-12)
        assert expected_worth(samples, 1.0, True)[1] == pytest.approx(success * (1 - success), abs=1e-12)
        assert expected_worth(samples, 0.0, False)[1] == pytest.approx(1.0)


def test_what_is_nearly_all_transferred_is_as_what_is() -> None:
    """The two ways to integrate over the population meet."""
    curves = [
        PopulationCurve(STEADY.population, STEADY.curve, RewardValues(), BatchEffect(transfer=transfer), Alike(), GROUP)
        for transfer in (1.0, 1 - 1e-6)
    ]
    for updates in (-20, 0, 1, 10, 100, 1000):
        whole, part = (curve.skill(updates) for curve in curves)
        assert part == pytest.approx(whole, abs=2e-3)
        for of_state in ("success", "reward_variance"):
            assert getattr(curves[1], of_state)(part) == pytest.approx(getattr(curves[0], of_state)(whole), abs=1e-3)
