"""Readings are as good as their parameters say, and no better."""

import numpy as np
import pytest
from scipy.stats import rankdata

from rlsim.core.errors import ParameterError
from rlsim.learning.dynamics import LearningDynamics
from rlsim.learning.model import Auroc, LearningModel, Reference, Signals

PROMPTS, MEMBERS = 2500, 8
MODEL = LearningModel(reference=Reference(512.0, MEMBERS))


def drawn(model: LearningModel, name: str, share: float) -> tuple[np.ndarray, np.ndarray]:
    """(readings, whether the sample succeeds)."""
    course = LearningDynamics(model, 5, PROMPTS)
    who = [(prompt, 0, member) for prompt in range(PROMPTS) for member in range(MEMBERS)]
    return np.array([course.signal(name, *one, share, 0) for one in who]), np.array(
        [course.reward(*one, 0) == 1.0 for one in who]
    )


def area(readings: np.ndarray, succeeded: np.ndarray) -> float:
    """Area under the ROC curve: the share of pairs in the right order (Mann and Whitney)."""
    ranks, good = rankdata(readings), int(succeeded.sum())
    return (ranks[succeeded].sum() - good * (good + 1) / 2) / (good * (len(ranks) - good))


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("name", ["quality", "confidence"])
def test_the_measured_area_is_the_parameter(name: str, share: float) -> None:
    expected = getattr(MODEL.signals, name).at(share)
    assert area(*drawn(MODEL, name, share)) == pytest.approx(expected, abs=0.015)


def test_reading_again_averages_only_what_is_new() -> None:
    share = 0.8
    signals = MODEL.signals.replace(quality=Auroc(start=0.7, end=0.7), persistence=share)
    course = LearningDynamics(MODEL.replace(signals=signals), 5, PROMPTS)
    readings = np.array(
        [[course.signal("quality", p, 0, 0, s / 100, 0) for s in range(1, 101)] for p in range(PROMPTS)]
    )
    succeeded = np.array([course.reward(p, 0, 0, 0) == 1.0 for p in range(PROMPTS)])
    averaged = readings.mean(1)
    noise = averaged - np.where(succeeded, averaged[succeeded].mean(), averaged[~succeeded].mean())
    assert noise.var() == pytest.approx(share + (1 - share) / 100, abs=0.05)


def test_a_drift_comes_at_its_hazard() -> None:
    law = MODEL.signals.overlap
    readings, succeeded = drawn(MODEL, "teacher-overlap", 0.4)
    for which, drifts in ((succeeded, law.success_drifts), (~succeeded, law.failure_drifts)):
        fallen = (law.level - readings[which].mean()) / law.drop
        assert fallen == pytest.approx(1 - np.exp(-0.4 * drifts), abs=0.015)


def test_repetition_is_flagged_for_good_and_mostly_in_failures() -> None:
    early, succeeded = drawn(MODEL, "repetition", 0.3)
    late, _ = drawn(MODEL, "repetition", 1.0)
    assert set(np.unique(late)) == {0.0, 1.0}
    assert (early <= late).all()
    assert late[~succeeded].mean() == pytest.approx(MODEL.signals.repetition_share, abs=0.015)
    assert early[~succeeded].mean() == pytest.approx(0.3 * MODEL.signals.repetition_share, abs=0.01)
    assert late[succeeded].mean() == pytest.approx(MODEL.signals.repetition_false, abs=0.005)


def test_entropy_tells_how_open_a_prompt_is() -> None:
    course = LearningDynamics(MODEL.replace(signals=Signals(entropy_noise=0.0)), 5, PROMPTS)
    for prompt in range(20):
        success = course.success(prompt, 0)
        assert course.signal("entropy", prompt, 0, 0, 0.5, 0) == pytest.approx(4 * success * (1 - success))


def test_what_is_no_signal_is_refused() -> None:
    course = LearningDynamics(MODEL, 5, PROMPTS)
    with pytest.raises(ParameterError, match="did you mean 'quality'"):
        course.signal("qualty", 0, 0, 0, 0.5, 0)
    with pytest.raises(ValueError, match="share"):
        course.signal("quality", 0, 0, 0, 0.0, 0)
