"""Signals read off responses: by hand, against brute force, and against the laws of what they are read off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.core.errors import RlsimError
from rlsim.live.signals import (
    LEAST_SEEN,
    REPEATED_TOKENS,
    REPEATS,
    Discriminant,
    Readings,
    auroc,
    repeats_itself,
    statistics,
)
from rlsim.live.texts import PartialResponse

MEANS = np.array([[-1.0, 0.5, -3.0, -1.0], [-0.6, 0.4, -2.0, -0.9]])
"""Of the statistics of failures and of successes."""
MIX = np.array([[0.3, 0.0, 0.0, 0.0], [0.1, 0.2, 0.0, 0.0], [0.4, 0.1, 0.9, 0.0], [0.2, 0.0, 0.1, 0.3]])


def seen(log_probs: Sequence[float], tokens: Sequence[int] | None = None) -> PartialResponse:
    """A response to a prompt of two tokens."""
    made = tokens or [1] * len(log_probs)
    return PartialResponse((8, 9, *made), tuple(range(2, 2 + len(made))), tuple(log_probs))


def drawn(count: int, success: int, seed: int) -> np.ndarray:
    return MEANS[success] + np.random.default_rng(seed).normal(size=(count, 4)) @ MIX.T


def learnt(count: int) -> Discriminant:
    head = Discriminant()
    for success in (0, 1):
        for row in drawn(count, success, 10 + success):
            head.add(row, bool(success))
    return head


def test_a_learnt_reading_is_binormal_at_the_distance_of_the_two_laws() -> None:
    """Mahalanobis' distance D; readings at -D/2 and D/2 with deviation 1; area under the curve Phi(D / sqrt 2)."""
    head, apart = learnt(4000), MEANS[1] - MEANS[0]
    distance = math.sqrt(apart @ np.linalg.solve(MIX @ MIX.T, apart))
    lost, won = ([head.read(row) for row in drawn(4000, success, 20 + success)] for success in (0, 1))
    assert fmean(won) == pytest.approx(distance / 2, abs=0.06)
    assert fmean(lost) == pytest.approx(-distance / 2, abs=0.06)
    assert np.std(won) == pytest.approx(1, abs=0.05)
    area, half_width = auroc(lost, won)
    assert abs(area - NormalDist().cdf(distance / math.sqrt(2))) < 1.5 * half_width


@pytest.mark.parametrize("known", [0, 1])
def test_a_head_says_nothing_before_it_has_seen_both(known: int) -> None:
    head = Discriminant()
    for row in drawn(10 * LEAST_SEEN, known, 0):
        head.add(row, bool(known))
    assert head.read(MEANS[0]) is None


def test_nothing_that_tells_them_apart_is_no_reading() -> None:
    head = Discriminant()
    for success in (False, True):
        for _ in range(LEAST_SEEN):
            head.add(MEANS[0], success)
    assert head.read(MEANS[0]) is None


def test_confidence_is_a_standard_score_among_those_at_the_mark() -> None:
    readings = Readings()
    values = [readings.read("confidence", at, 4, seen([mean] * 4)) for at, mean in enumerate((-1.0, -2.0, -3.0))]
    assert values == pytest.approx([0.0, -math.sqrt(0.5), -1.0])
    assert readings.read("confidence", 9, 8, seen([-9.0] * 8)) == 0.0, "another mark"


def test_quality_is_the_confidence_until_the_head_has_learnt() -> None:
    readings, usual = Readings(), Readings()
    draw = np.random.default_rng(0)
    agreed, differs = [], []
    for sample in range(6 * LEAST_SEEN):
        success = bool(sample % 2)
        log_probs = draw.normal(-0.5 - (not success), 0.4, 8).tolist()
        quality = readings.read("quality", sample, 8, seen(log_probs))
        confidence = usual.read("confidence", sample, 8, seen(log_probs))
        (agreed if sample < 2 * LEAST_SEEN else differs).append(quality == confidence)
        readings.came_out(sample, success)
    assert all(agreed)
    assert not any(differs)


def test_what_was_cut_teaches_nothing() -> None:
    readings = Readings()
    readings.read("quality", 1, 4, seen([-1.0] * 4))
    readings.came_out(1, None)
    assert readings.known == []


def test_entropy_is_estimated_without_bias() -> None:
    law = np.array([0.5, 0.25, 0.15, 0.1])
    draw, readings = np.random.default_rng(3), Readings()
    values = []
    for sample in range(2000):
        tokens = draw.choice(4, 16, p=law)
        values.append(readings.read("entropy", sample, 16, seen(np.log(law[tokens]).tolist())))
    error = np.std(values) / math.sqrt(len(values))
    assert fmean(values) == pytest.approx(-float(law @ np.log(law)), abs=4 * error)


def test_overlap_is_estimated_without_bias() -> None:
    """The sum of the smaller probabilities of student and teacher; 1 where they are the same."""
    student, teacher = np.array([0.5, 0.25, 0.15, 0.1]), np.array([0.1, 0.5, 0.2, 0.2])
    draw, readings, values = np.random.default_rng(3), Readings(), []
    for sample in range(2000):
        tokens = draw.choice(4, 16, p=student)
        given = seen(np.log(student[tokens]).tolist())
        values.append(readings.overlap(sample, 16, given, np.log(teacher[tokens]).tolist()))
        assert readings.overlap(sample, 16, given, given.log_probs) == 1.0
    error = np.std(values) / math.sqrt(len(values))
    assert fmean(values) == pytest.approx(float(np.minimum(student, teacher).sum()), abs=4 * error)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.lists(st.integers(0, 50), max_size=30))
def test_a_text_over_and_over_is_noticed(text: list[int], before: list[int]) -> None:
    times = max(REPEATS, -(-REPEATED_TOKENS // len(text)))
    assert repeats_itself(before + text * times)


@given(st.permutations(range(200)))
def test_a_response_without_two_equal_tokens_does_not_repeat_itself(tokens: list[int]) -> None:
    assert not repeats_itself(tokens)


@given(st.lists(st.integers(0, 2), max_size=80))
def test_repeats_are_those_that_a_plain_search_finds(tokens: list[int]) -> None:
    def repeated(period: int) -> bool:
        covered = max(REPEATS * period, REPEATED_TOKENS)
        end = tokens[len(tokens) - covered :]
        return covered <= len(tokens) and all(end[at] == end[at - period] for at in range(period, covered))

    assert repeats_itself(tokens) == any(repeated(period) for period in range(1, len(tokens) // REPEATS + 1))


def test_statistics_by_hand() -> None:
    assert statistics([-1.0, -3.0, -2.0] + [-2.0] * 7).tolist() == pytest.approx([-2.0, math.sqrt(0.2), -3.0, -2.0])


def test_tokens_without_log_probabilities_end_the_run() -> None:
    with pytest.raises(RlsimError, match="confidence of 4 tokens, of which the engine scored 0"):
        Readings().read("confidence", 0, 4, seen([], [1] * 4))


@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 5), min_size=1))
def test_area_is_the_share_of_pairs_in_order(lost: list[int], won: list[int]) -> None:
    pairs = [(high > low) + (high == low) / 2 for high in won for low in lost]
    assert auroc(lost, won)[0] == pytest.approx(fmean(pairs))


def test_what_was_told_is_summed_up_by_signal_and_mark() -> None:
    readings = Readings()
    for sample, mean in enumerate((-4.0, -3.0, -2.0, -1.0)):
        readings.read("entropy", sample, 4, seen([mean] * 4))
        readings.came_out(sample, sample > 1)
    (told,) = readings.aurocs()
    assert (told.signal, told.tokens, told.responses, told.auroc) == ("entropy", 4, 4, 0.0)
