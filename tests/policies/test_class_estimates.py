"""Token budgets by class, corrected by what requests made: forgetting, the price of learning, and the error on runs."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_runs import served

from evidence.findings import load, markdown
from rlsim.core.errors import ParameterError
from rlsim.core.hashing import normal
from rlsim.core.loads import Loads
from rlsim.core.view import Group, RequestClass, RunSizes, Sample, View
from rlsim.policies.ordering.predictors import ClassCorrected, Expected, PredictionError, prediction_error
from rlsim.policies.ordering.priorities import ShortestFirst

DOCUMENTED = markdown(load("claims-findings"))
SHAPE = RunSizes(1, 1, 1, 8, classes=(RequestClass("chat"), RequestClass("code")))
few = settings(max_examples=20, deadline=None)


def sample_of(kind: int) -> Sample:
    return Sample(0, Group(0, 0, 0, 10, 0, 0, kind), 0)


def corrected(smoothing: float, chat: int, code: int) -> Any:
    return Expected(
        predictor="class-corrected", smoothing=smoothing, class_prior_tokens={"chat": chat, "code": code}
    ).make(SHAPE)


VIEW = View(SHAPE, Loads(1))


@few
@given(smoothing=st.floats(0.01, 1.0), prior=st.integers(1, 5000), true=st.integers(1, 5000), turns=st.integers(0, 60))
def test_a_wrong_prior_is_forgotten_by_the_same_factor_every_turn(
    smoothing: float, prior: int, true: int, turns: int
) -> None:
    predictor = corrected(smoothing, prior, 777)
    for _ in range(turns):
        predictor.learn(VIEW, sample_of(0), true)
    expected = true + (prior - true) * (1 - smoothing) ** turns
    assert predictor(VIEW, sample_of(0)) == pytest.approx(max(1.0, expected), rel=1e-9)
    assert predictor(VIEW, sample_of(1)) == 777, "what one class makes says nothing of another"


@pytest.mark.parametrize("smoothing", [0.05, 0.3, 1.0])
def test_learning_costs_the_variance_of_the_weighted_mean_and_no_more(smoothing: float) -> None:
    """E[(X - M)^2] = Var X (1 + a / (2 - a)) for independent X and its exponentially weighted mean M."""
    mean, spread, turns = 1000.0, 100.0, 20_000
    predictor = corrected(smoothing, 1000, 1)
    errors = []
    for turn in range(turns):
        made = mean + spread * normal("turn", turn)
        errors.append((predictor(VIEW, sample_of(0)) - made) ** 2)
        predictor.learn(VIEW, sample_of(0), made)
    expected = spread**2 * (1 + smoothing / (2 - smoothing))
    assert math.fsum(errors) / turns == pytest.approx(expected, rel=0.05)


def test_a_drift_is_followed_a_memory_late() -> None:
    """A mean that rises by d a turn is met d (1 - a) / a late, beside the turn that it rises until the next."""
    smoothing, rise = 0.1, 3
    predictor = corrected(smoothing, 1000, 1)
    for turn in range(400):
        predictor.learn(VIEW, sample_of(0), 1000 + rise * turn)
    behind = 1000 + rise * 399 - predictor(VIEW, sample_of(0))
    assert behind == pytest.approx(rise * (1 - smoothing) / smoothing, rel=1e-6)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"smoothing": 0.0}, "smoothing"),
        ({"smoothing": float("nan")}, "smoothing"),
        ({"class_prior_tokens": {"chatt": 5}}, "class_prior_tokens.chatt"),
        ({"class_prior_tokens": {"chat": 0}}, "class_prior_tokens.chat"),
    ],
)
def test_estimates_that_mean_nothing_are_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ParameterError) as caught:
        ShortestFirst(predictor="class-corrected", **given).start(SHAPE)
    assert caught.value.path == field


def test_a_class_without_a_prior_of_its_own_has_the_common_one_and_no_estimate_is_an_oracle() -> None:
    part = ShortestFirst(predictor="class-prior", prior_tokens=50, class_prior_tokens={"code": 9}).start(SHAPE)
    assert [part.priority(VIEW, sample_of(kind)) for kind in (0, 1)] == [50, 9]
    assert not part.oracle
    assert isinstance(ShortestFirst(predictor="class-corrected").start(SHAPE).predictor, ClassCorrected)


def test_a_known_context_ranks_by_what_is_to_be_prefilled() -> None:
    part = ShortestFirst(predictor="prefill").start(SHAPE)
    long = Sample(0, Group(0, 0, 0, 4000, 0, 0), 0)
    assert [part.priority(VIEW, sample) for sample in (sample_of(0), long)] == [10, 4000]


# -- the error on runs ---------------------------------------------------------------------------------

MEANS = {"chat": (0.6, 20), "code": (0.3, 50), "report": (0.1, 120)}
"""Share and mean response tokens of each class."""
SPREADS = (0.1, 0.3, 0.6)
CONDITIONS = {
    "right, none": (1.0, 0.0),
    "right, 5 % a version": (1.0, 0.05),
    "right, 10 % a version": (1.0, 0.1),
    "half, none": (0.5, 0.0),
    "twice, none": (2.0, 0.0),
    "twice, 10 % a version": (2.0, 0.1),
}
"""Stated over true tokens at version 0, and drift."""


def error(predictor: str, spread: float, bias: float, growth: float) -> PredictionError:
    """Of the estimates behind a run of 1,000 requests, lognormal within each class, with a publication every 100."""
    classes = {
        name: {
            "share": share,
            "response_tokens": {"law": "lognormal", "mean_tokens": mean, "sigma": spread, "cap_tokens": 8 * mean},
        }
        for name, (share, mean) in MEANS.items()
    }
    stated = {name: round(mean * bias) for name, (_, mean) in MEANS.items()}
    run = served(
        {"use": "shortest-first", "predictor": predictor, "class_prior_tokens": stated},
        30.0,
        workload__classes=classes,
        workload__drift={"growth_per_version": growth, "max_factor": 4.0},
        rollout__max_num_seqs=16,
        parts={"update": {"use": "publish", "mode": "keep"}},
    )
    return prediction_error(run.log)


def changes(spread: float, bias: float, growth: float) -> tuple[float, float]:
    """Relative change of the mean absolute and of the root mean square error by correction."""
    stated, learnt = (error(name, spread, bias, growth) for name in ("class-prior", "class-corrected"))
    return (
        learnt.mean_absolute_tokens / stated.mean_absolute_tokens - 1,
        learnt.root_mean_square_tokens / stated.root_mean_square_tokens - 1,
    )


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("spread", SPREADS)
def test_correction_mends_bias_and_drift_costs_little_without_and_is_documented(spread: float, condition: str) -> None:
    absolute, square = changes(spread, *CONDITIONS[condition])
    if condition == "right, none":
        assert max(absolute, square) <= 0.05
    else:
        assert min(absolute, square) < 0
    shown = f"| {spread} | {condition} | {absolute:+.1%} | {square:+.1%} |"
    found = re.search(rf"\| {spread} \| {re.escape(condition)} \|.*", DOCUMENTED)
    assert found, shown
    assert found.group() == shown
