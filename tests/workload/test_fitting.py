"""Laws from published figures and from samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.core.errors import ParameterError
from rlsim.workload.fitting import fit_gamma, fit_lognormal, fit_samples
from rlsim.workload.lengths import Gamma, LengthDistribution, Lognormal, Mixture, Pareto


def test_dora_lengths_have_the_published_spread() -> None:
    law = fit_lognormal(1097, 3536, None, 30_720)
    assert law.sigma == pytest.approx(1.69, abs=0.005)
    assert law.truncated_share() == pytest.approx(0.025, abs=0.001)
    assert law.mean_tokens() == pytest.approx(3536, rel=1e-5)


@settings(max_examples=10, deadline=None)
@given(st.floats(0.1, 2.0), st.floats(0.02, 0.9), st.integers(500, 8000))
def test_the_mean_that_is_asked_for_is_the_mean_after_the_cap(sigma: float, share: float, cap: int) -> None:
    assert fit_lognormal(None, share * cap, sigma, cap).mean_tokens() == pytest.approx(share * cap, rel=1e-5)
    assert fit_gamma(share * cap, 1 / sigma, cap).mean_tokens() == pytest.approx(share * cap, rel=1e-5)


@settings(max_examples=10, deadline=None)
@given(st.floats(100, 800), st.floats(0.2, 1.5))
def test_median_and_mean_give_back_sigma(median: float, sigma: float) -> None:
    mean = Lognormal(median, sigma, 8192).mean_tokens()
    assert fit_lognormal(median, mean, None, 8192).sigma == pytest.approx(sigma, rel=1e-3)


@pytest.mark.parametrize(
    ("median", "mean", "sigma", "fault"),
    [
        (1000, 900, None, "above the median"),
        (1000, 4000, None, "at most"),
        (None, 5000, 1.0, "mean_tokens"),
        (None, 0.5, 1.0, "mean_tokens"),
        (None, float("nan"), 1.0, "mean_tokens"),
        (None, 100, None, "two of"),
        (1000, 1200, 1.0, "two of"),
        (1000, None, -1.0, "sigma"),
    ],
)
def test_what_no_law_can_be_is_refused(
    median: float | None, mean: float | None, sigma: float | None, fault: str
) -> None:
    with pytest.raises(ParameterError, match=fault):
        fit_lognormal(median, mean, sigma, 4096)


def _sample(law: LengthDistribution, count: int = 5000) -> np.ndarray:
    return law.quantile(np.random.default_rng(4).random(count))


@pytest.mark.parametrize(
    ("law", "name"),
    [(Lognormal(900, 1.2, 4096), "lognormal"), (Gamma(500, 2.5, 4096), "gamma")],
)
def test_the_family_that_made_the_samples_is_found_although_some_are_cut(law: LengthDistribution, name: str) -> None:
    fit = fit_samples(_sample(law), 4096)
    assert type(fit.law) is type(law)
    assert fit.ks_distance < 0.02
    assert fit.law is fit.candidates[name][0]
    assert fit.law.mean_tokens() == pytest.approx(law.mean_tokens(), rel=0.05)
    assert set(fit.candidates) == {"lognormal", "gamma", "pareto", "empirical"}


def test_the_tail_index_is_found_under_the_cap() -> None:
    law = Pareto.spliced(500, 0.5, 0.2, 1.2, 16_384)
    fit = fit_samples(_sample(law, 20_000), 16_384)
    assert isinstance(fit.law, Pareto)
    assert fit.law.tail_index == pytest.approx(1.2, abs=0.15)


def test_samples_of_no_family_keep_their_own_table() -> None:
    law = Mixture((1, 1), (Lognormal(50, 0.2, 8192), Lognormal(5000, 0.2, 8192)))
    samples = _sample(law)
    fit = fit_samples(samples, 8192)
    assert fit.law is fit.candidates["empirical"][0]
    assert fit.law.mean_tokens() == pytest.approx(samples.mean())
    assert "lognormal KS" in fit.describe()


def test_the_distance_is_that_of_kolmogorov_and_smirnov() -> None:
    from scipy.stats import kstest

    samples = np.round(_sample(Lognormal(90_000, 1.0, 4_000_000), 2000))
    fit = fit_samples(samples, 4_000_000)
    law, distance = fit.candidates["lognormal"]
    expected = kstest(samples, lambda x: law.cdf(np.asarray(x)))  # type: ignore[arg-type,return-value]
    assert distance == pytest.approx(expected.statistic, abs=1e-4)


def test_samples_that_are_mostly_cut_say_nothing_of_the_law() -> None:
    with pytest.raises(ParameterError, match="fewer than half"):
        fit_samples(np.array([100.0, 4096.0, 4096.0]), 4096)
