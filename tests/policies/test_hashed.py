"""Hashed chance: distributions that parts draw from, held against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rlsim.core.hashing import exponential, gamma, normal, uniform

DRAWS = 4000


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (uniform, stats.uniform()),
        (normal, stats.norm()),
        (exponential, stats.expon()),
        *((lambda *key, shape=shape: gamma(shape, *key), stats.gamma(shape)) for shape in (0.1, 0.5, 1.0, 3.7, 40.0)),
    ],
    ids=["uniform", "normal", "exponential", *(f"gamma of {shape}" for shape in (0.1, 0.5, 1.0, 3.7, 40.0))],
)
def test_hashed_draws_follow_their_law(draw, law) -> None:  # type: ignore[no-untyped-def]
    values = np.array([draw("test", 5, number) for number in range(DRAWS)])
    assert stats.kstest(values, law.cdf).pvalue > 0.001
    assert draw("test", 5, 17) == values[17]
