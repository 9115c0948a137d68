"""How far training moves a prompt: closed forms, the differential equation, and what populations make of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.stats import binom

from rlsim.learning.dynamics import LearningDynamics, TrainedSample
from rlsim.learning.gains import FARTHEST, Alike, Reinforced
from rlsim.learning.model import BatchEffect, LearningModel, Population, ProgressCurve, Reference, RewardValues
from rlsim.learning.population import PopulationCurve
from rlsim.learning.staleness import METHODS

LOGITS = st.floats(-12, 12)
GAINS = st.floats(-50, 200)
OF_EIGHT = Reinforced(8, value_baseline=False)


def rate(logit: float, samples: int = 8) -> float:
    """Mean over groups of the advantage of their successes, by enumeration; 0 for a group without one."""
    success = 1 / (1 + math.exp(-logit))
    return sum(float(binom.pmf(k, samples, success)) * (1 - k / samples) for k in range(1, samples + 1))


@pytest.mark.parametrize("logit", [-6.0, -1.5, 0.0, 2.5])
@pytest.mark.parametrize("gain", [-3.0, 0.5, 20.0])
def test_pairs_have_a_closed_form(logit: float, gain: float) -> None:
    """For n = 2 the rate is p (1 - p), whose inverse is 2 + e^x + e^-x."""

    def time(x: float) -> float:
        return 2 * x + math.exp(x) - math.exp(-x)

    found = Reinforced(2, value_baseline=False).moved(logit, gain)
    assert time(found) == pytest.approx(time(logit) + gain, rel=2e-5, abs=1e-3)


def test_large_groups_have_a_closed_form() -> None:
    """Where every group holds a success the rate is 1 - p, whose inverse is 1 + e^x."""
    found = Reinforced(10**9, value_baseline=False).moved(-2.0, 5.0)
    assert found + math.exp(found) == pytest.approx(-2.0 + math.exp(-2.0) + 5.0, abs=1e-4)


@pytest.mark.parametrize("start", [-5.0, -1.0, 1.0])
def test_it_solves_the_equation(start: float) -> None:
    solved = solve_ivp(lambda _, x: [rate(x[0])], (0, 12), [start], rtol=1e-9, atol=1e-10, t_eval=[3, 12]).y[0]
    assert [OF_EIGHT.moved(start, gain) for gain in (3, 12)] == pytest.approx(solved.tolist(), abs=1e-3)


@given(LOGITS, GAINS, GAINS)
def test_gains_add_up(logit: float, first: float, second: float) -> None:
    on_the_way = OF_EIGHT.moved(logit, first)
    if abs(on_the_way) < FARTHEST - 1:
        assert OF_EIGHT.moved(on_the_way, second) == pytest.approx(OF_EIGHT.moved(logit, first + second), abs=1e-6)


@given(LOGITS, LOGITS, GAINS, GAINS)
def test_more_is_more_and_nobody_overtakes(one: float, other: float, less: float, more: float) -> None:
    easy, hard, low, high = max(one, other), min(one, other), min(less, more), max(less, more)
    assert OF_EIGHT.moved(easy, low) >= OF_EIGHT.moved(hard, low) - 1e-9
    assert OF_EIGHT.moved(easy, high) >= OF_EIGHT.moved(easy, low) - 1e-9


@settings(max_examples=30)
@given(st.lists(LOGITS, min_size=1, max_size=5), st.lists(GAINS, min_size=1, max_size=5))
def test_many_are_as_each(logits: list[float], gains: list[float]) -> None:
    for law in (OF_EIGHT, Alike()):
        table = law.all_moved(np.array(logits)[:, None], np.array(gains)[None, :])
        each = [[law.moved(logit, gain) for gain in gains] for logit in logits]
        assert table.tolist() == [pytest.approx(row, abs=1e-7) for row in each]


def test_what_never_succeeds_stays_and_what_is_hard_catches_up() -> None:
    assert OF_EIGHT.moved(-25.0, 50.0) == pytest.approx(-25.0, abs=1e-6)
    assert OF_EIGHT.moved(-FARTHEST - 5, 50.0) == -FARTHEST - 5
    moves = [OF_EIGHT.moved(logit, 1.0) - logit for logit in (-9.0, -2.0, 0.0, 2.0)]
    assert moves[1] > moves[2] > moves[3] > moves[0] > 0


def test_the_ends_of_the_table_hold() -> None:
    beyond = np.array([-FARTHEST - 5, FARTHEST + 5])
    assert OF_EIGHT.all_moved(beyond, np.array(50.0)).tolist() == beyond.tolist()
    assert [OF_EIGHT.moved(0.0, gain) for gain in (-1e20, 1e20)] == pytest.approx([-FARTHEST, FARTHEST])


@pytest.mark.parametrize("gain", [1.0, 10.0, 30.0, 1000.0])
def test_a_population_that_parts_is_integrated_exactly(gain: float) -> None:
    """Beside quadrature in many pieces, as what is stuck and what is not lie close together in score."""
    population, effect = Population(mean_success=0.2, spread=2.0), BatchEffect(gains="reinforced")
    curve = PopulationCurve(
        population, ProgressCurve(asymptote=0.99, half_updates=20.0), RewardValues(), effect, OF_EIGHT, 8
    )
    scores = np.linspace(-7, 7, 20_001)
    success = 1 / (1 + np.exp(-OF_EIGHT.all_moved(curve.level + 2.0 * scores, np.array(gain))))
    assert curve.success(gain) == pytest.approx(np.average(success, weights=np.exp(-(scores**2) / 2)), abs=2e-4)


def test_with_a_value_model_a_single_sample_teaches() -> None:
    assert Reinforced(1, value_baseline=True).moved(0.0, 1.0) > 0.1


MODEL = LearningModel(
    population=Population(mean_success=0.2, spread=1.5, persistence=1.0),
    curve=ProgressCurve(asymptote=0.9, half_updates=20.0, steepness=1.5),
    effect=BatchEffect(information_exponent=0.0, breadth_exponent=0.0, gains="reinforced"),
    method=METHODS["none"],
    reference=Reference(128, 8),
)


def trained(model: LearningModel, updates: int, prompts: int = 20_000) -> LearningDynamics:
    course = LearningDynamics(model, 5, prompts)
    for version in range(1, updates + 1):
        course.trained([TrainedSample(0, 0, reward, 0.0, 10) for reward in (0.0, 1.0)], 1, 1)
        course.published(version)
    return course


def test_uniform_training_keeps_its_curve() -> None:
    course = trained(MODEL, 30)
    curve = MODEL.curve
    for version in (0, 10, 30):
        found = np.array([course.success(prompt, version) for prompt in range(20_000)])
        way = 1 / (1 + (curve.half_updates / version) ** curve.steepness) if version else 0.0
        assert found.mean() == pytest.approx(0.2 + (curve.asymptote - 0.2) * way, abs=5 * found.std() / 20_000**0.5)
    assert course.mean_success() == pytest.approx(0.2 + 0.7 / (1 + (20 / 30) ** 1.5), abs=2e-3)


def test_a_minority_is_left_behind_and_the_others_draw_level() -> None:
    """At the same mean success there are more prompts that nothing solves, and the others are closer together."""
    shares = {}
    for gains in ("alike", "reinforced"):
        course = trained(MODEL.replace(effect=MODEL.effect.replace(gains=gains)), 40, prompts=4000)
        success = np.array([course.success(prompt, 40) for prompt in range(4000)])
        shares[gains] = (success < 0.02).mean(), np.quantile(success, 0.75) - np.quantile(success, 0.25)
    assert shares["reinforced"][0] > 3 * shares["alike"][0]
    assert shares["reinforced"][1] < shares["alike"][1]
