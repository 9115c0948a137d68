"""The section learning: what may be said, and what the model is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from faulty_files import faults_of

from rlsim.core.errors import ParameterError
from rlsim.learning.model import Domain, LearningModel, Reference
from rlsim.learning.staleness import METHODS
from rlsim.resolve.scenario import make_learning
from rlsim.scenario.document import load
from rlsim.scenario.schema import Scenario
from rlsim.workload.mismatch import Mismatch

FILE = "scenarios/quickstart.yaml"


def scenario(*sets: str) -> Scenario:
    """The quickstart's first arm with settings."""
    return load(FILE, sets=sets).resolve("on-policy colocated")


def made(*sets: str) -> LearningModel:
    """The model of it."""
    found = make_learning(scenario(*sets))
    assert found is not None
    return found


def test_without_the_section_nothing_is_learnt() -> None:
    assert make_learning(scenario()) is None


def test_the_defaults_of_scenarios_are_those_of_the_model() -> None:
    assert made("learning={}") == LearningModel(reference=Reference(64 * 32 / 4, 32))


def test_every_value_reaches_the_model() -> None:
    found = made(
        "learning.population={mean_success: 0.2, law: beta, domains: {code: {share: 2, offset: -1, length_ratio: 3}}}",
        "learning.reward.partial_credit=0.3",
        "learning.lengths.failure_ratio=2",
        "learning.curve.half_updates=50",
        "learning.effect.transfer=0.5",
        "learning.staleness.method=m2po",
        "learning.signals.quality={start: 0.5, end: 0.9}",
        "learning.signals.overlap.drop=0.1",
        "workload.mismatch={variance_per_step: 0.3}",
    )
    assert found.population.domains == {"code": Domain(share=2, offset=-1, length_ratio=3)}
    assert (found.population.law, found.population.mean_success) == ("beta", 0.2)
    assert found.reward.partial_credit == 0.3
    assert found.lengths.failure_ratio == 2
    assert found.curve.half_updates == 50
    assert found.effect.transfer == 0.5
    assert found.method == METHODS["m2po"]
    assert found.signals.quality.at(0.5) == pytest.approx(0.7)
    assert found.signals.overlap.drop == 0.1
    assert found.mismatch == Mismatch(engine_variance=0.0, variance_per_step=0.3)


def test_a_curve_can_be_changed_and_says_so() -> None:
    found = made("learning.staleness={method: vcpo, tolerance_updates: 64}").method
    assert found == replace(METHODS["vcpo"], tolerance_updates=64, source=found.source)
    assert found.source.endswith("tolerance_updates given")


def test_an_unknown_method_is_refused_with_the_nearest() -> None:
    with pytest.raises(ParameterError, match=r"learning\.staleness\.method.*did you mean 'm2po'"):
        made("learning.staleness.method=m2p0")


def test_groups_of_one_need_another_baseline() -> None:
    with pytest.raises(ParameterError, match=r"learning\.effect\.baseline"):
        made("learning={}", "workload.group_size=1")
    assert made("learning.effect.baseline=value", "workload.group_size=1").effect.baseline == "value"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("learning.curve.asymptote=0.3", "above population.mean_success (0.4)"),
        ("learning.population.mean_success=1.0", "mean_success"),
        ("learning.signals.quality={start: 0.4, end: 0.9}", "start"),
        ("learning.populatoin={}", "population"),
    ],
)
def test_what_cannot_be_is_refused_at_its_key(setting: str, said: str) -> None:
    (fault,) = faults_of(FILE, "on-policy colocated", (setting,))
    assert "learning" in fault
    assert said in fault


@pytest.mark.parametrize("other", ["effect.transfer=0.5", "distillation={}"])
def test_prompts_that_gain_by_their_successes_share_nothing_and_have_no_teacher(other: str) -> None:
    sets = ("learning.effect.gains=reinforced", f"learning.{other}")
    assert any("effect.gains" in fault and "alike" in fault for fault in faults_of(FILE, "on-policy colocated", sets))
    assert not faults_of(FILE, "on-policy colocated", sets[:1])
