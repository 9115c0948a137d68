"""The figure of a profile shows every stored point where it lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.fitting.step_model import StepSample, point_columns, predicted_seconds, samples_of
from calibration.profiles.plot import fit_figure
from rlsim.core.errors import ParameterError
from rlsim.costs.profile import load_profile

PROFILE = load_profile("llama-3.1-8b_h100-sxm_tp1")


def test_points_are_measured_against_fitted_in_milliseconds_with_residuals_below() -> None:
    assert PROFILE.step is not None
    figure = fit_figure(replace(PROFILE, scale=3.0))
    samples = samples_of(PROFILE.step.held_out_points)
    for column, kind in enumerate(("decode", "prefill", "mixed")):
        upper, lower = figure.axes[column], figure.axes[column + 3]
        of_kind = [sample for sample in samples if sample.kind == kind]
        measured = [1e3 * sample.seconds for sample in of_kind]
        fitted = [1e3 * predicted_seconds(PROFILE.step.law, sample) for sample in of_kind]
        drawn = np.asarray(upper.collections[-1].get_offsets())
        assert drawn == pytest.approx(np.column_stack([measured, fitted]))
        residuals = np.asarray(lower.collections[-1].get_offsets())[:, 1]
        assert residuals == pytest.approx(100 * (np.array(fitted) / np.array(measured) - 1))
        assert upper.get_xlabel() == "tabulated step time (ms)"
    assert figure.axes[3].get_ylabel() == "fitted over tabulated (%)"


def test_a_profile_without_points_cannot_be_drawn() -> None:
    assert PROFILE.step is not None
    with pytest.raises(ParameterError, match="held-out points"):
        fit_figure(replace(PROFILE, step=replace(PROFILE.step, held_out_points={})))


def test_stored_points_are_an_even_choice_of_each_kind_and_come_back_as_samples() -> None:
    decodes = [StepSample(0.001 * n, decodes=n, kv_tokens=100 * n) for n in range(1, 501)]
    prefill = [StepSample(0.002, chunks=1, prefill_tokens=64, pairs=2080.0)]
    kept = samples_of(point_columns(decodes + prefill, limit=100))
    assert [sample.decodes for sample in kept if sample.kind == "decode"] == list(range(1, 501, 10))
    assert [sample for sample in kept if sample.kind == "prefill"] == prefill
