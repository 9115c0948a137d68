"""What real weights accept of a draft: token by token, in the share that the ratio of probabilities says."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.errors import RlsimError
from rlsim.live.texts import Acceptance

LOG_PROBS = st.lists(st.floats(-20, 0), max_size=40)


@given(LOG_PROBS, st.integers(0, 1000))
def test_weights_that_have_not_changed_accept_all(log_probs: list[float], sample: int) -> None:
    assert Acceptance(1).tokens(sample, log_probs, log_probs) == len(log_probs)


@given(LOG_PROBS, st.floats(0, 5), st.integers(0, 1000))
def test_tokens_that_have_become_likelier_stand(log_probs: list[float], more: float, sample: int) -> None:
    assert Acceptance(1).tokens(sample, [value + more for value in log_probs], log_probs) == len(log_probs)


@pytest.mark.parametrize(("ratio", "lenience"), [(0.8, 1.0), (0.5, 1.0), (0.5, 1.5), (0.1, 1.0), (0.6, 2.0)])
def test_a_token_stands_as_often_as_the_ratio_says(ratio: float, lenience: float) -> None:
    """A geometric number of tokens: the mean over samples against its law."""
    chance, length, count = min(1.0, lenience * ratio), 12, 4000
    old, new = [-1.0] * length, [-1.0 + math.log(ratio)] * length
    kept = [Acceptance(3, lenience).tokens(sample, new, old) for sample in range(count)]
    expected = sum(chance**at for at in range(1, length + 1))
    assert sum(kept) / count == pytest.approx(expected, abs=0.15 * max(0.3, expected))
    assert kept == [Acceptance(3, lenience).tokens(sample, new, old) for sample in range(count)]


@given(st.floats(1, 4), st.integers(0, 300))
def test_more_lenience_never_keeps_less(lenience: float, sample: int) -> None:
    old, new = [-1.0] * 20, [-1.6] * 20
    assert Acceptance(0, lenience).tokens(sample, new, old) >= Acceptance(0, 1.0).tokens(sample, new, old)


def test_a_check_that_scored_something_else_ends_the_run() -> None:
    with pytest.raises(RlsimError, match="the draft of sample 7 has 2 tokens, the engine scored 1"):
        Acceptance().tokens(7, [-1.0], [-1.0, -1.0])
