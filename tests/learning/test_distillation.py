"""What tokens teach where a teacher scores each of them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from rlsim.learning.distillation import sample_worth, worth_up_to
from rlsim.learning.dynamics import LearningDynamics
from rlsim.learning.information import TrainedSample
from rlsim.learning.model import BatchEffect, Distillation, LearningModel, Reference
from rlsim.learning.staleness import METHODS
from rlsim.resolve import ResolveError, resolve
from rlsim.scenario.schema import Scenario

TOKENS, PROMPTS, MEMBERS = 1000, 500, 4
MODEL = LearningModel(
    reference=Reference(2000.0, MEMBERS), method=METHODS["none"], distillation=Distillation(fade_tokens=300)
)
FLAT = MODEL.replace(
    distillation=Distillation(fade_exponent=0.0, fade_tokens=1.0, after_drift=1.0, after_repetition=1.0)
)
laws = st.builds(
    Distillation,
    fade_exponent=st.floats(0, 4),
    fade_tokens=st.floats(10, 5000),
    after_drift=st.floats(0, 1),
    after_repetition=st.floats(0, 1),
)
lengths = st.integers(1, 20_000)
places = st.one_of(st.floats(0, 20_000), st.just(math.inf))


def measured(model: LearningModel) -> LearningDynamics:
    course = LearningDynamics(model, 3, PROMPTS)
    course.measure(lambda prompt, member, factor: round(TOKENS * factor))
    return course


def uniform(course: LearningDynamics, cut: int | None = None) -> list[TrainedSample]:
    """Every prompt with all its members, each made up to ``cut`` tokens."""
    made = []
    for prompt in range(PROMPTS):
        for member in range(MEMBERS):
            full = round(TOKENS * course.length_factor(prompt, 0, member, 0))
            drift, repeats = course.soundness(prompt, 0, member, 0)
            tokens = full if cut is None else min(cut, full)
            made.append(TrainedSample(prompt, prompt, 0.0, 0.0, tokens, drift * full, repeats * full))
    return made


@given(laws, lengths, places, places)
def test_the_worth_of_a_sample_is_the_integral_over_its_tokens(
    law: Distillation, tokens: int, drift: float, repeats: float
) -> None:
    def worth(at: float) -> float:
        factor = law.after_repetition if at >= repeats else law.after_drift if at >= drift else 1.0
        return factor * (1 + at / law.fade_tokens) ** -law.fade_exponent

    breaks = sorted({0.0, *(place for place in (drift, repeats) if place < tokens), float(tokens)})
    expected = sum(quad(worth, a, b, limit=200)[0] for a, b in pairwise(breaks))
    found = sample_worth(TrainedSample(0, 0, 0.0, 0.0, tokens, drift, repeats), law)
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(lengths)
def test_without_fading_every_token_is_worth_one(tokens: int) -> None:
    assert worth_up_to(tokens, Distillation(fade_exponent=0.0)) == pytest.approx(tokens)


def test_a_fading_exponent_of_one_is_the_limit_of_its_neighbours() -> None:
    near = [
        worth_up_to(700, Distillation(fade_exponent=exponent, fade_tokens=200))
        for exponent in (1 - 1e-7, 1.0, 1 + 1e-7)
    ]
    assert near[0] == pytest.approx(near[1], rel=1e-5)
    assert near[2] == pytest.approx(near[1], rel=1e-5)


def test_a_uniform_batch_that_is_not_cut_is_the_unit() -> None:
    course = measured(MODEL)
    assert course.trained(uniform(course), 1, 1).information == pytest.approx(1.0, abs=0.03)


def test_a_cut_keeps_the_front_which_is_worth_more_than_its_share_of_tokens() -> None:
    course, flat = measured(MODEL), measured(FLAT)
    whole, cut = uniform(course), uniform(course, 200)
    tokens = sum(s.tokens for s in cut) / sum(s.tokens for s in whole)
    assert flat.trained(cut, 1, 1).information == pytest.approx(tokens, abs=0.01)
    found = course.trained(cut, 1, 1).information
    assert tokens + 0.1 < found < 1.0


def test_rewards_teach_nothing_and_neither_does_a_group() -> None:
    batch = uniform(measured(MODEL))
    earned = [replace(sample, reward=float(i % 2), group=i) for i, sample in enumerate(batch)]
    first, second = measured(MODEL).trained(batch, 1, 1), measured(MODEL).trained(earned, 1, 1)
    assert first == second


def test_samples_that_did_not_drift_teach_more_than_those_that_did() -> None:
    course = measured(MODEL)
    batch = uniform(course)
    sound = [sample for sample in batch if sample.drift_tokens > sample.tokens]
    drifted = [sample for sample in batch if sample.drift_tokens <= sample.tokens]
    assert len(sound) > 100 < len(drifted)
    assert measured(MODEL).trained(sound, 1, 1).information > measured(MODEL).trained(drifted, 1, 1).information


def test_the_null_effect_counts_updates_alone() -> None:
    null = MODEL.replace(effect=BatchEffect(information_exponent=0, breadth_exponent=0))
    cut, whole = measured(null), measured(null)
    batch = uniform(whole)
    assert cut.trained(uniform(cut, 50), 1, 1).gain == whole.trained(batch, 1, 1).gain > 0


def test_drift_and_repetition_are_where_the_readings_turn() -> None:
    course = measured(MODEL)
    read = [
        (course.soundness(p, 0, 0, 0), [course.signal("repetition", p, 0, 0, at / 50, 0) for at in range(1, 51)])
        for p in range(PROMPTS)
    ]
    for (_, repeats), flags in read:
        assert flags == [float(at / 50 >= repeats) for at in range(1, 51)]
    overlaps = np.array(
        [[course.signal("teacher-overlap", p, 0, 0, s, 0) for s in (0.01, 1.0)] for p in range(PROMPTS)]
    )
    drifted = np.array([0.01 < drift <= 1.0 for (drift, _), _ in read])
    fall = overlaps[:, 0] - overlaps[:, 1]
    assert fall[drifted].mean() == pytest.approx(0.3, abs=0.03)
    assert fall[~drifted].mean() == pytest.approx(0.0, abs=0.03)


def test_the_unit_must_be_taken_first() -> None:
    course = LearningDynamics(MODEL, 3, PROMPTS)
    with pytest.raises(ValueError, match="measure"):
        course.trained(uniform(measured(MODEL)), 1, 1)


SCENARIO: dict[str, Any] = {
    "name": "distilled",
    "model": "Qwen2.5-0.5B",
    "cluster": {"device": "H100-SXM", "gpus": 2},
    "rollout": {"gpus": 1, "max_num_seqs": 64, "step_time": {"source": "coefficients", "base_seconds": 0.01}},
    "trainer": {"gpus": 1, "mfu": 0.4},
    "workload": {"prompts_per_step": 4, "group_size": 1, "prompt_tokens": 10, "response_tokens": 100},
    "policy": {"preset": "sync-disaggregated"},
    "run": {"steps": 3, "warmup_steps": 0, "replications": 1},
}


def test_groups_of_one_can_be_distilled_and_turns_cannot() -> None:
    alone = {**SCENARIO, "learning": {"distillation": {}}}
    assert resolve(Scenario.model_validate(alone)).learning is not None
    turns = {"count": 2, "tool_latency_seconds": 0.1, "tool_output_tokens": 5}
    with pytest.raises(ResolveError) as caught:
        resolve(Scenario.model_validate({**alone, "workload": {**SCENARIO["workload"], "turns": turns}}))
    assert caught.value.path == "learning.distillation"
