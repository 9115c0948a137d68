"""Laws of token counts: quantiles, caps and means."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.errors import ParameterError
from rlsim.workload.empirical import Empirical
from rlsim.workload.lengths import (
    Constant,
    Gamma,
    LengthDistribution,
    Lognormal,
    Mixture,
    Pareto,
    Uniform,
    described,
)

LAWS: list[LengthDistribution] = [
    Constant(300),
    Uniform(10, 499),
    Lognormal(800, 1.2, 4096),
    Lognormal(3, 2.0, 50),
    Gamma(600, 0.7, 4096),
    Pareto(200, 1.1, 4096),
    Pareto.spliced(500, 0.8, 0.1, 1.5, 8192),
    Mixture((0.7, 0.3), (Lognormal(200, 0.5, 8192), Lognormal(4000, 0.8, 8192))),
    Mixture((1, 1, 2), (Constant(100), Uniform(150, 160), Gamma(900, 2, 4096))),
    Empirical((5, 9, 9, 700, 3000), 2048),
]
laws = st.sampled_from(LAWS)
quantiles = st.floats(0, 1, exclude_max=True)


@given(laws, st.lists(quantiles, min_size=2, max_size=30))
def test_longer_quantiles_are_longer_and_lengths_stay_within_one_and_the_cap(
    law: LengthDistribution, u: list[float]
) -> None:
    tokens = law.quantile(np.sort(np.array(u)))
    assert tokens.dtype == np.int64
    assert np.all(np.diff(tokens) >= 0)
    assert tokens.min() >= 1
    assert tokens.max() <= law.cap_tokens


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.describe())
def test_the_mean_is_the_integral_of_the_quantiles(law: LengthDistribution) -> None:
    u = (np.arange(200_000) + 0.5) / 200_000
    tokens = law.quantile(u)
    assert law.mean_tokens() == pytest.approx(tokens.mean(), rel=2e-4)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.describe())
def test_the_truncated_share_is_the_share_of_quantiles_beyond_the_cap(law: LengthDistribution) -> None:
    u = (np.arange(200_000) + 0.5) / 200_000
    beyond = np.mean(law.uncapped(u) > law.cap_tokens + 0.5)
    assert law.truncated_share() == pytest.approx(beyond, abs=2e-5)


@given(laws, st.floats(1, 4000))
def test_the_cdf_is_the_share_of_quantiles_below(law: LengthDistribution, x: float) -> None:
    u = (np.arange(20_000) + 0.5) / 20_000
    share = np.mean(law.uncapped(u) <= x)
    assert float(law.cdf(np.array([x]))[0]) == pytest.approx(share, abs=2e-4)


def test_a_quantile_of_one_is_the_cap() -> None:
    for law in (Lognormal(800, 1.2, 4096), Gamma(600, 0.7, 4096), Pareto(200, 1.1, 4096)):
        assert law.quantile(np.array([1.0]))[0] == 4096


def test_uniform_gives_every_whole_number_the_same_share() -> None:
    tokens = Uniform(3, 12).quantile((np.arange(10_000) + 0.5) / 10_000)
    assert np.bincount(tokens)[3:].tolist() == [1000] * 10


def test_the_uncapped_lognormal_mean_is_the_closed_form() -> None:
    law = Lognormal(400, 0.8, 100_000)
    assert law.mean_tokens() == pytest.approx(400 * math.exp(0.8**2 / 2), rel=1e-5)


def test_the_capped_pareto_mean_is_the_closed_form() -> None:
    scale, index, cap = 200.0, 1.5, 10_000
    closed = scale * (index - (scale / cap) ** (index - 1)) / (index - 1)
    assert Pareto(scale, index, cap).mean_tokens() == pytest.approx(closed, rel=1e-4)


def test_a_spliced_tail_is_joined_without_a_gap_and_keeps_the_body() -> None:
    law, body = Pareto.spliced(500, 0.8, 0.1, 1.5, 8192), Lognormal(500, 0.8, 8192)
    u = np.array([0.01, 0.3, 0.5, 0.8999999])
    assert law.uncapped(u) == pytest.approx(body.uncapped(u))
    assert float(law.uncapped(np.array([0.9 + 1e-9]))[0]) == pytest.approx(law.threshold_tokens, rel=1e-6)
    twice = law.cdf(np.array([2 * law.threshold_tokens]))[0]
    assert 1 - twice == pytest.approx(0.1 * 2**-1.5)


def test_a_mixture_has_the_mean_of_its_laws() -> None:
    short, long = Lognormal(200, 0.5, 8192), Lognormal(4000, 0.8, 8192)
    mean = 0.75 * short.mean_tokens() + 0.25 * long.mean_tokens()
    assert Mixture((3, 1), (short, long)).mean_tokens() == pytest.approx(mean)


def test_a_mixture_of_two_engine_limits_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"laws\.0\.cap_tokens"):
        Mixture((1, 1), (Lognormal(200, 1.5, 1024), Lognormal(4000, 0.8, 8192)))


def test_an_empirical_law_is_its_values() -> None:
    law = Empirical((9, 5, 700, 3000))
    assert law.quantile(np.array([0.0, 0.3, 0.5, 0.99])).tolist() == [5, 9, 700, 3000]
    assert law.mean_tokens() == (5 + 9 + 700 + 3000) / 4


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0, True, "3"])
def test_a_law_refuses_parameters_that_mean_nothing(bad: object) -> None:
    makers: list[Callable[[], LengthDistribution]] = [
        lambda: Lognormal(bad, 1.0, 100),  # type: ignore[arg-type]
        lambda: Lognormal(10, bad, 100),  # type: ignore[arg-type]
        lambda: Gamma(10, bad, 100),  # type: ignore[arg-type]
        lambda: Pareto(10, bad, 100),  # type: ignore[arg-type]
        lambda: Constant(bad),  # type: ignore[arg-type]
        lambda: Uniform(bad, 5),  # type: ignore[arg-type]
    ]
    for make in makers:
        with pytest.raises(ParameterError):
            make()


def test_a_description_says_the_cap_and_how_often_it_cuts() -> None:
    assert described(Lognormal(1000, 1.0, 1000)) == "lognormal median 1,000, sigma 1, cap 1,000 (cuts 50.0%)"
