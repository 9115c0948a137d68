"""Closed forms of groups and allocation, held against numerical optimisers, simulation and published figures."""

import numpy as np
import pytest
from scipy.optimize import minimize

from rlsim.learning import closed_forms as forms


@pytest.mark.parametrize("samples", [2, 4, 16])
@pytest.mark.parametrize("success", [0.1, 0.5])
def test_gradient_variances_are_those_of_simulated_estimators(success: float, samples: int) -> None:
    draw = np.random.default_rng(samples)
    rewards = np.where(draw.random((400_000, samples)) < success, 1.0, -1.0)
    scores = draw.normal(0, 0.7, rewards.shape)
    advantages = rewards - rewards.mean(1, keepdims=True)
    dr_grpo = (advantages * scores).mean(1)
    assert dr_grpo.var() == pytest.approx(forms.dr_grpo_variance(success, samples, 0.7), rel=0.03)
    rloo = dr_grpo * samples / (samples - 1)
    assert rloo.var() == pytest.approx(forms.rloo_variance(success, samples, 0.7), rel=0.03)


def optimum(objective, cost: np.ndarray, budget: float, least: float) -> np.ndarray:
    """Allocation that a general optimiser finds."""
    start = np.full(len(cost), budget / cost.sum())
    limits = {"type": "eq", "fun": lambda n: cost @ n - budget}
    found = minimize(objective, start, bounds=[(least, None)] * len(cost), constraints=[limits], tol=1e-12)
    assert found.success
    return found.x


@pytest.mark.parametrize("seed", range(4))
def test_the_square_root_rule_is_the_optimum(seed: int) -> None:
    draw = np.random.default_rng(seed)
    variances, shares, costs = draw.uniform(0.05, 1, 5), draw.dirichlet(np.ones(5)), draw.uniform(0.5, 3, 5)
    best = optimum(lambda n: (shares * variances / n).sum(), shares * costs, 8.0, 0.1)
    assert forms.square_root_allocation(variances, 8.0, shares, costs) == pytest.approx(best, rel=1e-3)


def test_equal_costs_leave_the_rule_of_gdro() -> None:
    shares, variances = np.array([0.5, 0.3, 0.2]), np.array([0.01, 0.25, 0.09])
    expected = 6 * np.sqrt(variances) / (shares @ np.sqrt(variances))
    assert forms.square_root_allocation(variances, 6, shares) == pytest.approx(expected)


def test_the_rloo_allocation_is_the_optimum() -> None:
    successes = np.array([0.05, 0.3, 0.5, 0.9])
    best = optimum(lambda n: (successes * (1 - successes) / (n - 1)).sum(), np.ones(4), 32.0, 1.01)
    assert forms.rloo_allocation(successes, 32) == pytest.approx(best, rel=1e-3)


def test_useful_groups_are_as_often_as_simulated() -> None:
    rewards = np.random.default_rng(0).random((200_000, 6)) < 0.2
    mixed = rewards.any(1) & ~rewards.all(1)
    assert mixed.mean() == pytest.approx(forms.useful_group(0.2, 6), abs=0.004)


def test_over_sampling_of_mimo() -> None:
    """MiMo keeps 41 % of the groups, and without dynamic sampling is 2.45 times as fast."""
    assert forms.over_sampling(0.41) == pytest.approx(2.45, abs=0.02)


def test_the_inverse_success_is_the_mean_wait_for_a_success() -> None:
    assert np.random.default_rng(1).geometric(0.3, 400_000).mean() == pytest.approx(
        forms.inverse_success_group(0.3), rel=0.01
    )
    assert forms.pass_at(0.3, 4) == pytest.approx(1 - 0.7**4)


def test_largest_of_several() -> None:
    draw = np.random.default_rng(2)
    assert draw.exponential(3, (300_000, 8)).max(1).mean() == pytest.approx(
        forms.expected_max_exponential(3, 8), rel=0.01
    )
    pareto = 2 * (1 + draw.pareto(4, (300_000, 8)))
    assert pareto.max(1).mean() == pytest.approx(forms.expected_max_pareto(2, 4, 8), rel=0.01)
    assert forms.expected_max_pareto(2, 4, 1) == pytest.approx(2 * 4 / 3)


@pytest.mark.parametrize(("rounds", "kept"), [(1, 0.5), (2, 0.5), (4, 0.25)])
def test_refining_rounds_gain_what_simulated_rounds_gain(rounds: int, kept: float) -> None:
    variances = np.sort(1 + np.random.default_rng(3).pareto(3, 1_000_000))[::-1]
    means = [variances[: round(len(variances) * kept**done)].mean() for done in range(rounds)]
    speedup = np.mean(means) / variances.mean()
    assert speedup == pytest.approx(forms.refined_rounds_speedup(3, rounds, kept), rel=0.02)


def test_accepted_shares_are_those_of_a_constant_hazard() -> None:
    shares = np.minimum(1, np.random.default_rng(4).exponential(1 / 0.9, 400_000))
    assert shares.mean() == pytest.approx(forms.mean_accepted_share(0.9), abs=0.002)
    assert forms.mean_accepted_share(0.0) == 1.0


@pytest.mark.parametrize(("made", "without"), [(419.1, 554.8), (182.7, 554.8), (114.4, 554.8)])
def test_rejections_from_the_tokens_of_spec_rl(made: float, without: float) -> None:
    accepted = 1 - made / without
    assert forms.mean_accepted_share(forms.rejections_for_share(accepted)) == pytest.approx(accepted, abs=1e-9)
