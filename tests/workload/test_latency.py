"""Laws of time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.errors import ParameterError
from rlsim.workload.latency import (
    ConstantLatency,
    EmpiricalLatency,
    GammaLatency,
    LatencyDistribution,
    LognormalLatency,
    NormalLatency,
)

LAWS: list[LatencyDistribution] = [
    ConstantLatency(0.0),
    ConstantLatency(2.5),
    GammaLatency(3.0),
    GammaLatency(3.0, cap_seconds=4.0),
    GammaLatency(3.0, 2.5, 10.0),
    LognormalLatency(0.5, 0.7),
    LognormalLatency(0.5, 1.5, 2.0),
    NormalLatency(10.0, 1.0),
    NormalLatency(10.0, 10.0),
    EmpiricalLatency((0.1, 5.0, 0.2)),
]


@given(st.sampled_from(LAWS), st.lists(st.floats(0, 1, exclude_max=True), min_size=2))
def test_longer_quantiles_take_longer(law: LatencyDistribution, u: list[float]) -> None:
    seconds = law.quantile(np.sort(np.array(u)))
    assert np.all(np.diff(seconds) >= 0)
    assert seconds.min() >= 0


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.describe())
def test_the_expectation_is_the_integral_of_the_quantiles(law: LatencyDistribution) -> None:
    u = (np.arange(300_000) + 0.5) / 300_000
    assert law.expected_seconds() == pytest.approx(law.quantile(u).mean(), rel=1e-3)


def test_a_capped_exponential_has_the_closed_form_mean() -> None:
    assert GammaLatency(3.0, cap_seconds=4.0).expected_seconds() == pytest.approx(3 * (1 - math.exp(-4 / 3)))


def test_no_duration_passes_the_cap() -> None:
    assert LognormalLatency(0.5, 1.5, 2.0).quantile(np.array([0.999999]))[0] == 2.0


@pytest.mark.parametrize("bad", [math.nan, -1.0, math.inf])
def test_a_duration_that_cannot_be_is_refused(bad: float) -> None:
    with pytest.raises(ParameterError, match="seconds: found"):
        ConstantLatency(bad)
    with pytest.raises(ParameterError, match=r"seconds\.1"):
        EmpiricalLatency((1.0, bad))
    with pytest.raises(ParameterError, match="mean_seconds"):
        GammaLatency(bad)
    with pytest.raises(ParameterError, match="deviation_seconds"):
        NormalLatency(1.0, bad)
    if bad != math.inf:
        with pytest.raises(ParameterError, match="cap_seconds"):
            LognormalLatency(1.0, 1.0, bad)
