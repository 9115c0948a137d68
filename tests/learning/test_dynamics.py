"""What the hidden course of a run promises, whatever its parameters."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.learning.dynamics import LearningDynamics, Progress, TrainedSample
from rlsim.learning.model import (
    BatchEffect,
    Domain,
    LearningModel,
    LengthCoupling,
    Population,
    ProgressCurve,
    Reference,
    RewardValues,
)
from rlsim.learning.staleness import METHODS
from rlsim.workload.mismatch import Mismatch

SMALL = LearningModel(reference=Reference(32.0, 4))
NULL = SMALL.replace(effect=BatchEffect(information_exponent=0, breadth_exponent=0), method=METHODS["none"])
rewards = st.lists(st.floats(0, 1), min_size=1, max_size=24)


def batch(values, lag: float = 0.0, group: int = 4, tokens: int = 100) -> list[TrainedSample]:
    """Samples with these rewards, in groups of ``group``, a prompt each."""
    return [TrainedSample(i // group, i // group, value, lag, tokens) for i, value in enumerate(values)]


def first_step(model: LearningModel, values, lag: float = 0.0, updates: int = 1, epochs: int = 1) -> Progress:
    return course(model).trained(batch(values, lag), updates, epochs)


def course(model: LearningModel, seed: int = 3, prompts: int = 500) -> LearningDynamics:
    return LearningDynamics(model, seed, prompts)


MIXED = [1.0, 0.0] * 16


@settings(max_examples=20, deadline=None)
@given(st.lists(rewards, min_size=1, max_size=3))
def test_the_null_effect_counts_updates_alone(batches: list[list[float]]) -> None:
    found, plain = course(NULL), course(NULL)
    for values in batches:
        assert found.trained(batch(values), 2, 1).skill == plain.trained(batch(MIXED), 2, 1).skill


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4))
def test_groups_that_agree_teach_nothing(size: int) -> None:
    equal = [1.0] * (2 * size) + [0.0] * (2 * size)
    step = course(SMALL).trained(batch(equal, group=2 * size), 1, 1)
    assert step.information == step.gain == 0.0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 16), st.integers(0, 16))
def test_progress_grows_with_information(few: int, many: int) -> None:
    """Batches of as many samples, of which so many groups of two disagree."""
    few, many = sorted((few, many))
    steps = [course(SMALL).trained(batch([1.0, 0.0] * k + [1.0] * (32 - 2 * k), group=2), 1, 1) for k in (few, many)]
    assert (steps[0].information < steps[1].information) == (few < many)
    assert (steps[0].gain < steps[1].gain) == (few < many)


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(12)), st.integers(0, 2**62))
def test_luck_does_not_depend_on_the_order_of_questions(order: list[int], seed: int) -> None:
    asked, other = course(SMALL, seed), course(SMALL, seed)

    def everything(of: LearningDynamics, i: int) -> tuple[float, ...]:
        who = (i % 5, i % 2, i % 6)
        return (
            of.reward(*who, 0),
            of.length_factor(*who, 0),
            of.signal("quality", *who, 0.3, 0),
            of.signal("repetition", *who, 0.9, 0),
        )

    straight = [everything(asked, i) for i in range(12)]
    shuffled = {i: everything(other, i) for i in order}
    assert straight == [shuffled[i] for i in range(12)]


def test_training_changes_no_version_that_is_out() -> None:
    model = SMALL.replace(effect=BatchEffect(transfer=0.3))
    found = course(model)
    before = [found.success(prompt, 0) for prompt in range(8)]
    for version in range(1, 5):
        found.trained(batch(MIXED), 1, 1)
        found.published(version)
    found._places.clear()
    assert [found.success(prompt, 0) for prompt in range(8)] == before
    assert found.success(0, 4) > before[0]


def test_better_weights_lose_no_sample() -> None:
    found = course(SMALL.replace(population=Population(persistence=1.0)))
    for _ in range(100):
        found.trained(batch(MIXED), 1, 1)
    found.published(1)
    pairs = [(found.reward(p, 0, m, 0), found.reward(p, 0, m, 1)) for p in range(200) for m in range(4)]
    assert all(old <= new for old, new in pairs)
    assert sum(new for _, new in pairs) > sum(old for old, _ in pairs)


def test_versions_come_one_after_the_other() -> None:
    found = course(SMALL.replace(population=Population(persistence=1.0)))
    found.trained(batch(MIXED), 1, 1)
    found.published(3)
    assert found.success(0, 1) == found.success(0, 2)
    with pytest.raises(ValueError, match="published already"):
        found.published(2)
    with pytest.raises(IndexError):
        found.success(0, 4)


POPULATIONS = [
    Population(mean_success=0.2, spread=3),
    Population(mean_success=0.6, law="beta", concentration=0.6),
    Population(
        mean_success=0.4,
        domains={"easy": Domain(share=1, offset=2.0, length_ratio=0.5), "hard": Domain(share=3, offset=-1.0)},
    ),
]


@cache
def large(index: int) -> tuple[LearningModel, LearningDynamics]:
    model = SMALL.replace(population=POPULATIONS[index])
    return model, course(model, prompts=40_000)


@pytest.mark.parametrize("index", range(len(POPULATIONS)))
def test_the_untrained_population_succeeds_as_often_as_it_says(index: int) -> None:
    model, found = large(index)
    successes = np.array([found.success(prompt, 0) for prompt in range(40_000)])
    assert successes.mean() == pytest.approx(model.population.mean_success, abs=5 * successes.std() / 200)
    assert found.mean_success() == pytest.approx(model.population.mean_success, abs=1e-4)


def test_the_beta_law_is_beta() -> None:
    from scipy.stats import beta, kstest

    _, found = large(1)
    assert kstest([found.success(p, 0) for p in range(5000)], beta(0.36, 0.24).cdf).pvalue > 1e-3


@pytest.mark.parametrize("index", range(len(POPULATIONS)))
def test_lengths_keep_their_mean(index: int) -> None:
    found = course(
        large(index)[0].replace(
            lengths=LengthCoupling(failure_ratio=1.8, difficulty_ratio=1.5, success_difficulty_ratio=0.8)
        ),
        prompts=40_000,
    )
    factors = np.array([found.length_factor(prompt, 0, 0, 0) for prompt in range(40_000)])
    assert factors.mean() == pytest.approx(1.0, abs=5 * factors.std() / 200)


def test_a_kind_is_shorter_by_its_ratio() -> None:
    alike = {"as the others": Domain(share=1), "short": Domain(share=1, length_ratio=0.25)}
    found = course(
        SMALL.replace(
            population=Population(domains=alike), lengths=LengthCoupling(failure_ratio=1.0, difficulty_ratio=1.0)
        )
    )
    lengths = sorted({round(found.length_factor(prompt, 0, 0, 0), 9) for prompt in range(200)})
    assert lengths == pytest.approx([0.4, 1.6])


def test_failures_are_longer_by_the_ratio() -> None:
    found = course(SMALL.replace(lengths=LengthCoupling(failure_ratio=1.7, difficulty_ratio=1.0)))
    lengths = {found.reward(0, a, 0, 0): found.length_factor(0, a, 0, 0) for a in range(200)}
    assert lengths[0.0] / lengths[1.0] == pytest.approx(1.7)


def test_uniform_training_follows_its_curve() -> None:
    """In expectation: the batch has the advantage variance of a uniform one at every step."""
    curve = ProgressCurve(asymptote=0.9, half_updates=50, steepness=1.7)
    found = course(NULL.replace(curve=curve))
    for update in range(1, 201):
        success = found.trained(batch(MIXED), 1, 1).success
        expected = 0.4 + 0.5 / (1 + (50 / update) ** 1.7)
        assert success == pytest.approx(expected, abs=2e-3)


def test_a_uniform_batch_is_the_unit_of_information() -> None:
    model = SMALL.replace(reference=Reference(16_000.0, 4))
    found = course(model, prompts=4000)
    drawn = [TrainedSample(p, p, found.reward(p, 0, m, 0), 0.0, 100) for p in range(4000) for m in range(4)]
    assert found.trained(drawn, 1, 1).information == pytest.approx(1.0, abs=0.05)


def test_noise_is_no_information() -> None:
    model = SMALL.replace(reward=RewardValues(noise=1.0))
    found = course(model, prompts=4000)
    drawn = [TrainedSample(p, p, found.reward(p, 0, m, 0), 0.0, 100) for p in range(4000) for m in range(4)]
    assert np.std([s.reward for s in drawn]) > 1.0
    assert found.trained(drawn, 1, 1).information == pytest.approx(1.0, abs=0.2)


def test_partial_credit_is_even_among_failures() -> None:
    found = course(SMALL.replace(reward=RewardValues(partial_credit=0.5)))
    earned = np.array([found.reward(p, 0, m, 0) for p in range(2000) for m in range(4)])
    failed = earned[earned < 1]
    assert failed.max() < 0.5
    assert failed.mean() == pytest.approx(0.25, abs=0.01)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(METHODS)), st.floats(0, 2000), st.floats(0, 2000))
def test_older_samples_are_never_worth_more(name: str, first: float, second: float) -> None:
    young, old = METHODS[name].factor(np.array(sorted((first, second))))
    assert METHODS[name].floor <= old <= young <= 1.0


@pytest.mark.parametrize(("name", "harmless"), [("m2po", 256), ("vcpo", 128), ("pnpo", 16), ("ppo", 7)])
def test_methods_tolerate_what_their_sources_found_harmless(name: str, harmless: float) -> None:
    curve = METHODS[name]
    assert curve.factor(np.array([harmless]))[0] == 1.0
    assert curve.factor(np.array([20.0 * harmless]))[0] < 0.0


def test_a_collapsed_batch_unlearns() -> None:
    assert first_step(SMALL, MIXED, lag=0.0).gain > 0 > first_step(SMALL, MIXED, lag=1000.0).gain


def test_pnpo_makes_four_passes_worth_four_batches_and_grpo_does_not() -> None:
    """Systems list entry 23: 4 passes over 150 batches as good as 1 pass over 600, with 4 updates a pass."""
    for name, equal in (("pnpo", True), ("grpo", False)):
        model = NULL.replace(method=METHODS[name])
        reused, fresh = course(model), course(model)
        for _ in range(15):
            last = reused.trained(batch(MIXED), 4, 4).skill
        for _ in range(60):
            first = fresh.trained(batch(MIXED), 4, 1).skill
        assert (last == pytest.approx(first, rel=1e-9)) == equal


def test_ess_is_the_mismatch_and_scales_vcpo() -> None:
    mismatch = Mismatch(engine_variance=0.1, variance_per_step=0.01)
    ess = mismatch.ess([50.0] * 32)
    model = SMALL.replace(mismatch=mismatch, method=METHODS["m2po"])
    plain, scaled = first_step(model, MIXED, 50.0), first_step(model.replace(method=METHODS["vcpo"]), MIXED, 50.0)
    assert plain.ess == scaled.ess == pytest.approx(ess)
    assert scaled.gain / plain.gain == pytest.approx(ess, rel=0.02)


def test_lag_feeds_back_only_after_a_collapse() -> None:
    fed = SMALL.replace(effect=BatchEffect(lag_feedback=1.0))
    for model, worse in ((SMALL, False), (fed, True)):
        found = course(model)
        steps = [found.trained(batch(MIXED, 12.0), 1, 1).staleness_factor for _ in range(3)]
        assert (steps[1] < steps[0]) == worse
        calm = course(model)
        assert calm.trained(batch(MIXED, 2.0), 1, 1).staleness_factor == 1.0
        assert calm.trained(batch(MIXED, 2.0), 1, 1).staleness_factor == 1.0


def test_difficulty_persists_as_often_as_it_says() -> None:
    population = Population(persistence=0.6, drift_versions=10)
    found = course(SMALL.replace(population=population), prompts=20_000)
    found.published(500)
    scores = np.array([[found._prompts.score(p, v) for v in (0, 5, 500)] for p in range(20_000)])
    assert scores.std(0) == pytest.approx(1.0, abs=0.03)
    near, far = np.corrcoef(scores.T)[0, 1:]
    assert far == pytest.approx(0.6, abs=0.02)
    assert near > far + 0.1


def test_old_trajectories_are_accepted_less_the_more_the_model_was_updated() -> None:
    from rlsim.learning.closed_forms import mean_accepted_share

    found = course(SMALL)
    for version in (1, 2):
        found.trained(batch(MIXED), 15, 1)
        found.published(version)
    near = [found.accepted_share(p, 0, m, 1, 2) for p in range(500) for m in range(4)]
    far = [found.accepted_share(p, 0, m, 0, 2) for p in range(500) for m in range(4)]
    assert all(a >= b for a, b in zip(near, far, strict=True))
    assert np.mean(far) == pytest.approx(mean_accepted_share(30 * 0.03), abs=0.02)
    assert found.accepted_share(0, 0, 0, 2, 2) == 1.0


def test_a_value_model_learns_from_groups_of_one() -> None:
    model = SMALL.replace(effect=BatchEffect(baseline="value"), reference=Reference(4000.0, 1))
    found = course(model, prompts=4000)
    drawn = [TrainedSample(p, p, found.reward(p, 0, 0, 0), 0.0, 100) for p in range(4000)]
    assert found.trained(drawn, 1, 1).information == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("bad", [([], 1, 1), (MIXED, 0, 1), (MIXED, 1, 0)])
def test_a_step_without_samples_updates_or_passes_is_refused(bad) -> None:
    with pytest.raises(ValueError, match="trains on samples"):
        course(SMALL).trained(batch(bad[0]), *bad[1:])
