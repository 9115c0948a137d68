"""Costs fitted to live runs: fake ones, whose costs are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from disturbed import Disturbed, random_steps, slower_steps
from policy_runs import POLICIES, scenario

from calibration.fitting.robust_regression import solve
from calibration.live_runs.fit import fit_live, fit_steps
from rlsim.core.errors import ParameterError
from rlsim.core.log import WindowRow
from rlsim.costs.step_model import StepTimeModel
from rlsim.executor.run import FinishedRun
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.override import override, paths
from rlsim.sim.simulation import simulate
from rlsim.studies.parity.study import Fitted, ParityOptions, study
from rlsim.studies.parity.trial import run_to_end

FIVE = ("sync-disaggregated", "one-step-off", "areal", "slime-april", "pipelinerl")
REAL: dict[str, Any] = {
    "workload__response_tokens": {"law": "uniform", "low_tokens": 20, "high_tokens": 200},
    "workload__prompts_per_step": 4,
    "trainer": {"gpus": 2, "mfu": 0.01, "fixed_seconds_per_step": 0.3, "seconds_per_update": 0.07},
    "sync": {"link_bytes_per_second": 2e10, "base_seconds": 0.11},
    "rollout__step_time": {
        "source": "coefficients",
        "base_seconds": 0.012,
        "per_sequence_seconds": 2e-4,
        "per_kv_token_seconds": 3e-7,
        "per_prefill_token_seconds": 2e-5,
    },
    "run__steps": 6,
    "run__warmup_steps": 1,
}
GUESS = {
    **REAL,
    "trainer": {"gpus": 2, "mfu": 0.4},
    "sync": {"base_seconds": 0.01, "link_bytes_per_second": 1e11},
    "rollout__step_time": {"source": "coefficients", "base_seconds": 0.03},
}


def planned(preset: str, changes: dict[str, Any]) -> ResolvedScenario:
    return resolve(scenario({"preset": preset, **POLICIES[preset]}, **changes))


def ran(preset: str, backend: Disturbed | None = None) -> FinishedRun:
    return run_to_end(planned(preset, REAL), backend or Disturbed()).run


def test_the_law_of_undisturbed_steps_is_found() -> None:
    found = fit_steps([row for preset in FIVE for row in ran(preset).log.windows])
    given = REAL["rollout__step_time"]
    law, truth = (
        StepTimeModel.affine(**{f"{name}_seconds": values.get(f"{name}_seconds", 0.0) for name in found.coefficients})
        for values in ({f"{name}_seconds": value for name, value in found.coefficients.items()}, given)
    )
    for batch in ((1, 60, 0, 0, 0), (8, 900, 0, 0, 0), (3, 300, 1, 24, 300), (0, 0, 6, 144, 1800)):
        assert law.mixed_seconds(*batch) == pytest.approx(truth.mixed_seconds(*batch), rel=0.005)
    assert found.scale == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("preset", FIVE)
def test_a_calibrated_guess_predicts_a_run_that_it_has_not_seen(preset: str) -> None:
    """Calibrated on the runs of all policies, the prediction is that of the costs that were hidden."""
    found = fit_live([ran(other) for other in FIVE])
    made = resolve(override(planned(preset, GUESS).scenario, paths(found.overrides)))
    from rlsim.sim.simulation import simulate
    from rlsim.studies.parity.observed import observation_of

    calibrated, truth = (observation_of(simulate(one)).step_seconds for one in (made, planned(preset, REAL)))
    guessed = observation_of(simulate(planned(preset, GUESS))).step_seconds
    assert calibrated == pytest.approx(truth, rel=0.01)
    assert abs(guessed / truth - 1) > 0.1


def test_a_parity_study_calibrates_on_runs_of_its_own() -> None:
    seen: list[FinishedRun] = []

    def calibrate(runs: Any) -> Fitted:
        seen.extend(runs)
        found = fit_live(runs)
        return Fitted(found.overrides, found.lines)

    backend = Disturbed(slower_steps(1.4))
    told = study("test", {"areal": planned("areal", REAL)}, backend, ParityOptions("fake", 2, calibrate=calibrate))
    assert backend.runs == 3
    assert abs(told.arms[0].step.error) < 0.02
    assert all(trial.run is not run for trial in told.arms[0].trials for run in seen)
    assert any("not scored" in line for line in told.calibration)


def test_what_engines_and_trainer_cost_each_other_is_found() -> None:
    hidden = {"step_factor_while_training": 1.3, "training_factor_while_generating": 1.2}
    runs = [simulate(planned(preset, {**REAL, "contention": hidden})) for preset in FIVE]
    found = fit_live(runs).overrides["contention"]
    assert found["step_factor_while_training"] == pytest.approx(1.3, abs=0.01)
    assert found["training_factor_while_generating"] == pytest.approx(1.2, abs=0.05)


def test_where_they_cost_each_other_nothing_or_never_meet_none_is_found() -> None:
    apart = fit_live([ran("sync-disaggregated")]).overrides["contention"]
    assert apart == {"step_factor_while_training": 1.0, "training_factor_while_generating": 1.0}
    free = fit_live([ran(preset) for preset in FIVE]).overrides["contention"]
    assert free["step_factor_while_training"] == pytest.approx(1, abs=0.01)
    assert free["training_factor_while_generating"] == pytest.approx(1, abs=0.05)


def test_noise_is_felt_in_the_mean() -> None:
    """Steps that take up to 40 % more or less, at random: their sum is kept."""
    windows = [row for preset in FIVE for row in ran(preset, Disturbed(random_steps(0.4))).log.windows]
    found = fit_steps(windows)
    law = StepTimeModel.affine(**{f"{name}_seconds": value for name, value in found.coefficients.items()})
    fitted = sum(law.mixed_seconds(row.decodes, row.kv_tokens, row.chunks, row.prefill_tokens, 0) for row in windows)
    measured = sum(row.end - row.start for row in windows) / 1e12
    assert fitted == pytest.approx(measured, rel=0.01)
    assert found.coefficients["base"] == pytest.approx(0.012, rel=0.1)


def test_disturbed_points_do_not_pull() -> None:
    rng = np.random.default_rng(1)
    batch = rng.integers(1, 64, 400).astype(float)
    seconds = 0.01 + 2e-4 * batch
    seconds[::10] *= 4
    found = solve(np.column_stack([np.ones(400), batch]), seconds)
    assert found == pytest.approx([0.01, 2e-4], rel=0.03)


def test_engines_that_do_not_tell_their_steps_cannot_be_calibrated() -> None:
    busy = [WindowRow(0, 0, 10**12, 0, 3, 0, 0, 0)] * 50
    with pytest.raises(ParameterError, match="engines that tell their steps"):
        fit_steps(busy)
