"""The robust fit against laws that are known: exact without noise, deaf to outliers, never against physics."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_bench import BENT, LIMITS, TRUTH

from calibration.fitting.step_model import StepSample, predicted_seconds
from calibration.fitting.step_model_robust import COEFFICIENTS, RobustFit, effects, fit_samples, law_intervals
from calibration.measure.design import make_design
from calibration.measure.measurements import StepMeasurement, best_by_point, best_reference
from calibration.measure.points import StepPoint
from rlsim.core.errors import ParameterError
from rlsim.costs.evidence import Provenance
from rlsim.costs.step_model import StepTimeModel

MADE_UP = Provenance("fitted", "made-up measurements")
POINTS = make_design(LIMITS).initial


def measured(point: StepPoint, seconds: float) -> StepMeasurement:
    kv_tokens = point.decodes * point.context
    return StepMeasurement(
        point, 0, seconds, kv_tokens, steps=5, undisturbed_steps=5, reference_seconds=1e-3, used_seconds=0.0
    )


def samples_of(law: StepTimeModel, factors: np.ndarray | None = None) -> list[StepSample]:
    shares = np.ones(len(POINTS)) if factors is None else factors
    measurements = [
        measured(point, predicted_seconds(law, point.sample(1.0)) * share)
        for point, share in zip(POINTS, shares.tolist(), strict=True)
    ]
    return list(best_by_point(measurements, best_reference(measurements)).values())


def fitted(law: StepTimeModel, factors: np.ndarray | None = None) -> RobustFit:
    return fit_samples(samples_of(law, factors), MADE_UP)


def errors(law: StepTimeModel, truth: StepTimeModel) -> list[float]:
    samples = [point.sample(1.0) for point in POINTS]
    return [abs(predicted_seconds(law, at) / predicted_seconds(truth, at) - 1.0) for at in samples]


straight_laws = st.builds(
    lambda base, token, beyond, kv, pair: StepTimeModel.affine(base, token * (1 + beyond), kv, token, pair),
    st.floats(1e-4, 1e-1),
    st.floats(1e-7, 1e-3),
    st.floats(0.0, 10.0),
    st.floats(0.0, 1e-5),
    st.floats(0.0, 1e-6),
)


@given(law=straight_laws)
@settings(deadline=None, max_examples=60)
def test_without_noise_a_straight_law_is_found_exactly(law: StepTimeModel) -> None:
    assert max(errors(fitted(law).law, law)) < 1e-3


@given(seed=st.integers(0, 10_000), spread=st.floats(0.0, 0.5))
@settings(deadline=None, max_examples=60)
def test_whatever_the_noise_no_coefficient_is_negative_and_no_dense_part_falls(seed: int, spread: float) -> None:
    noise = np.exp(spread * np.random.default_rng(seed).standard_normal(len(POINTS)))
    law = fitted(TRUTH, noise).law
    assert min(*law.dense_seconds, *law.kv_seconds_per_token, law.pair_seconds, *law.sequence_seconds) >= 0
    assert all(earlier <= later for earlier, later in pairwise(law.dense_seconds))
    assert all(earlier <= later for earlier, later in pairwise(law.sequence_seconds))


@given(seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=30)
def test_points_that_were_never_undisturbed_do_not_bend_the_law(seed: int) -> None:
    """Three of 28 points at double their time: less than half of one per cent in the median."""
    factors = np.ones(len(POINTS))
    factors[np.random.default_rng(seed).choice(len(POINTS), 3, replace=False)] = 2.0
    assert float(np.median(errors(fitted(TRUTH, factors).law, TRUTH))) < 0.005


def test_a_straight_law_gets_a_straight_fit_and_a_bent_one_bends() -> None:
    noise = np.exp(0.01 * np.random.default_rng(0).standard_normal(len(POINTS)))
    assert len(fitted(TRUTH, noise).law.tokens) == 2
    assert len(fitted(BENT, noise).law.tokens) > 2


def test_intervals_hold_the_law_and_grow_with_the_noise() -> None:
    widths = []
    for spread in (0.005, 0.05):
        noise = np.exp(spread * np.random.default_rng(1).standard_normal(len(POINTS)))
        fit = fitted(TRUTH, noise)
        intervals = law_intervals(fit)
        intervals.check(fit.law)
        for name in COEFFICIENTS:
            central = np.atleast_1d(getattr(fit.law, name))
            assert np.all(np.array(intervals.low[name]) <= central * (1 + 1e-5))
            assert np.all(np.array(intervals.high[name]) >= central * (1 - 1e-5))
        widths.append(max(effects(intervals, fit.law, [point.sample(1.0) for point in POINTS]).values()))
    assert 3 * widths[0] < widths[1]


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """95 % intervals of the pair coefficient over 40 noisy campaigns: at least 31 hold it (p < 0.001 otherwise)."""
    held = 0
    for seed in range(40):
        noise = np.exp(0.02 * np.random.default_rng(seed).standard_normal(len(POINTS)))
        intervals = law_intervals(fitted(TRUTH, noise), times=100)
        held += intervals.low["pair_seconds"][0] <= TRUTH.pair_seconds <= intervals.high["pair_seconds"][0]
    assert held >= 31


def test_too_few_points_are_refused() -> None:
    with pytest.raises(ParameterError, match="larger --budget"):
        fit_samples(samples_of(TRUTH)[:4], MADE_UP)
