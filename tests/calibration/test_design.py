"""What a calibration asks an engine for: only what it can hold, and what the fit lacks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from noisy_bench import LIMITS, TRUTH

from calibration.fitting.step_model_robust import families, information
from calibration.measure.design import GROWTH_TOKENS, StepDesign, StepLimits, choose, make_design
from calibration.measure.points import StepPoint
from rlsim.core.errors import ParameterError


@st.composite
def limits(draw: st.DrawFn) -> StepLimits:
    block_size = draw(st.sampled_from([1, 16, 32, 128]))
    return StepLimits(
        max_num_seqs=draw(st.integers(1, 512)),
        max_num_batched_tokens=draw(st.integers(1, 16384)),
        max_model_len=draw(st.integers(2 * GROWTH_TOKENS + 1, 40_000)),
        block_size=block_size,
        kv_blocks=draw(st.integers(1, 100_000 // block_size)),
    )


def held_out_of(design: StepDesign) -> set[StepPoint]:
    return set(design.checks)


def made(engine: StepLimits) -> StepDesign:
    """The design, for engines that can hold anything worth measuring."""
    try:
        return make_design(engine)
    except ParameterError:
        assume(False)
        raise


@given(engine=limits())
def test_no_point_asks_for_more_than_the_engine_can_hold(engine: StepLimits) -> None:
    for point in made(engine).domain:
        grown = point.context + GROWTH_TOKENS if point.decodes else 0
        blocks = point.decodes * -(-grown // engine.block_size)
        blocks += point.chunks * -(-(point.cached + point.tokens) // engine.block_size)
        assert blocks <= engine.kv_blocks
        assert 1 <= point.decodes + point.chunks <= engine.max_num_seqs
        assert point.decodes + point.chunks * point.tokens <= engine.max_num_batched_tokens
        assert max(grown, point.cached + point.tokens + 1) <= engine.max_model_len


@given(engine=limits())
def test_initial_points_are_candidates_and_checks_are_not(engine: StepLimits) -> None:
    design = made(engine)
    assert set(design.initial) <= set(design.candidates)
    assert not held_out_of(design) & set(design.candidates)
    assert len(set(design.candidates)) == len(design.candidates)


def test_the_grid_reaches_the_ends_and_every_kind_is_checked() -> None:
    design = make_design(LIMITS)
    assert max(point.decodes for point in design.initial) == LIMITS.max_num_seqs
    assert max(point.chunks * point.tokens for point in design.initial) == LIMITS.max_num_batched_tokens
    assert any(point.cached for point in design.initial)
    assert {point.kind for point in design.initial} == {"decode", "prefill"}
    assert {point.kind for point in design.checks} == {"decode", "prefill", "mixed"}


def test_an_engine_that_holds_nothing_worth_measuring_is_refused() -> None:
    with pytest.raises(ParameterError, match="at least one sequence"):
        make_design(StepLimits(8, 8, 2 * GROWTH_TOKENS + 1, 1, 1))


def regressors_of(points: tuple[StepPoint, ...]) -> tuple[np.ndarray, list[float]]:
    samples = [point.sample(1.0) for point in points]
    rows = information(samples, TRUTH, families(samples)[0])
    return rows, [1.0] * len(points)


def test_the_choice_is_what_lowers_the_mean_variance_over_the_domain_most_for_its_time() -> None:
    points = make_design(LIMITS).candidates
    rows, _ = regressors_of(points)
    seconds = np.random.default_rng(0).uniform(0.5, 1.0, len(points))
    known = rows.T @ rows
    best = choose(points, rows, rows, known, seconds.tolist(), budget_seconds=1.0)[0]

    def variance(information: np.ndarray) -> float:
        return float(np.mean([row @ np.linalg.solve(information, row) for row in rows]))

    lowered = [variance(known) - variance(known + np.outer(row, row)) for row in rows]
    assert best == points[int(np.argmax(lowered / seconds))]


def test_what_is_unknown_is_asked_for() -> None:
    """With decodes alone measured, prefill attention is what lacks; with prefill alone, the KV of decodes."""
    points = make_design(LIMITS).candidates
    rows, seconds = regressors_of(points)
    for kind, lacking in (("decode", "prefill"), ("prefill", "decode")):
        seen = rows[[point.kind == kind for point in points]]
        (best,) = choose(points, rows, rows, seen.T @ seen, seconds, budget_seconds=1.0)
        assert best.kind == lacking


@given(budget=st.floats(0.0, 30.0), seed=st.integers(0, 100))
def test_a_choice_fits_its_time_and_takes_no_point_more_than_twice(budget: float, seed: int) -> None:
    points = make_design(LIMITS).candidates
    rows, _ = regressors_of(points)
    seconds = np.random.default_rng(seed).uniform(0.1, 5.0, len(points)).tolist()
    chosen = choose(points, rows, rows, 0.0 * (rows.T @ rows), seconds, budget)
    cost = dict(zip(points, seconds, strict=True))
    assert sum(cost[point] for point in chosen) <= budget + 1e-9
    assert all(chosen.count(point) <= 2 for point in chosen)
