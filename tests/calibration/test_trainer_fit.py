"""Fitting a trainer's timings: known laws come back through noise and bursts, and shuffled timings do not."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_host import NoisyHost

from calibration.fitting.robust_regression import LinearFit, fit_linear
from calibration.measure.campaign import RepeatedCampaign, TimeBudget
from calibration.measure.journal import MeasurementJournal
from calibration.measure.measurements import Timing, halves, noise_floor, quickest, upward_bias
from calibration.trainer.bench import BUILT_IN
from calibration.trainer.fit import RATES, UNKNOWNS, TrainerFit, fit_trainer, interval_width, predicted
from calibration.trainer.points import TrainerDesign, TrainerPoint, design
from rlsim.core.errors import ParameterError
from rlsim.costs.catalogue import device, model
from rlsim.costs.evidence import Evidence, HoldOutError, Provenance
from rlsim.costs.sections import TrainingFit
from rlsim.costs.trainer import TrainerConfig
from rlsim.costs.training import TRAINER_COEFFICIENTS, TrainingCost, trainer_speeds

SMALL, PEAK = BUILT_IN["small6x512"], 2e11
LAW = np.array([1 / 1.6e11, 1 / 1.8e11, 1 / 4e10, 0.024, 0.008, 0.027])
"""As measured on one core: seconds a FLOP of three kinds, a micro-batch's and an update's seconds."""


def known(law: np.ndarray) -> LinearFit:
    return LinearFit(law, law, law)


def timings(points: TrainerDesign, host: NoisyHost, folder: Path, budget_seconds: float = 480.0) -> np.ndarray:
    """As the calibration takes them."""
    true = predicted(known(LAW), points.points, SMALL)
    campaign = RepeatedCampaign(
        points=len(true),
        seconds_of=lambda index: host.run(float(true[index])),
        journal=MeasurementJournal(folder / "samples.jsonl", {"of": "a law"}, Timing),
        budget=TimeBudget(budget_seconds, host.clock),
        interval=lambda table: interval_width(points, table, SMALL, PEAK),
        tight=0.0,
    )
    return campaign.run()


def relative_errors(fit: TrainerFit) -> np.ndarray:
    return np.abs(fit.law.values / LAW - 1)


@pytest.mark.parametrize("seed", range(6))
def test_a_known_law_comes_back_within_two_per_cent_through_noise_and_bursts(seed: int, tmp_path: Path) -> None:
    points = design(2048, 8192)
    table = timings(points, NoisyHost(seed), tmp_path)
    assert np.quantile(table / quickest(table), 0.9) > 1.2, "the bursts must be there"
    fit = fit_trainer(points, table, SMALL, PEAK)
    assert (
        np.abs(predicted(fit.law, points.points, SMALL) / predicted(known(LAW), points.points, SMALL) - 1).max() < 0.02
    )
    assert relative_errors(fit)[[0, 1, 5]].max() < 0.02
    assert fit.hold_out.median < 0.02
    assert fit.noise_floor["all"] < 0.02


def test_intervals_hold_the_law_nine_times_in_ten_and_the_scatter_of_points_alone_would_not(tmp_path: Path) -> None:
    """Noise that only adds leaves all points above their law together, which no resample of them can show."""
    points, inside, by_scatter, halves_of_rates = design(2048, 8192), [], [], []
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        table = timings(points, NoisyHost(seed), folder)
        law = fit_trainer(points, table, SMALL, PEAK).law
        inside.append((law.low <= LAW) & (law.high >= LAW))
        by_scatter.append((law.low / (1 - upward_bias(table)) <= LAW) & (law.high >= LAW))
        halves_of_rates.append(law.width((0, 1)))
    assert np.mean(inside) >= 0.9
    assert np.mean(by_scatter) < 0.85
    assert max(halves_of_rates) < 0.025, "not by being wide"


@pytest.mark.parametrize("seed", range(6))
def test_shuffled_timings_are_not_fitted(seed: int, tmp_path: Path) -> None:
    points = design(2048, 8192)
    table = timings(points, NoisyHost(seed), tmp_path)
    shuffled = table[:, np.random.default_rng(seed).permutation(table.shape[1])]
    fit = fit_trainer(points, shuffled, SMALL, PEAK)
    assert relative_errors(fit)[:2].max() > 0.02
    assert fit.hold_out.median > max(0.05, fit.noise_floor["all"])


@given(
    law=st.tuples(*[st.floats(1.2 / PEAK, 50 / PEAK)] * RATES, *[st.floats(1e-4, 1.0)] * 3),
    most=st.sampled_from([256, 512, 4096, 65536]),
)
@settings(max_examples=40, deadline=None)
def test_any_law_without_noise_comes_back_exactly(law: tuple[float, ...], most: int) -> None:
    points, true = design(most, 32768), np.array(law)
    seconds = predicted(known(true), points.points, SMALL)
    fit = fit_trainer(points, np.tile(seconds, (2, 1)), SMALL, PEAK)
    assert np.abs(predicted(fit.law, points.points, SMALL) / seconds - 1).max() < 1e-6
    assert fit.hold_out.worst < 1e-4
    assert (fit.law.low <= fit.law.values).all()
    assert (fit.law.values <= fit.law.high).all()


@given(st.floats(0.01, 100.0))
@settings(max_examples=20, deadline=None)
def test_a_machine_that_is_slower_by_a_factor_has_every_second_longer_by_it(factor: float) -> None:
    design_matrix = np.abs(np.random.default_rng(3).normal(size=(12, 3))) + 0.1
    seconds = design_matrix @ [1.0, 2.0, 0.5] * np.linspace(0.9, 1.1, 12)
    one, other = fit_linear(design_matrix, seconds), fit_linear(design_matrix, seconds * factor)
    assert other.values == pytest.approx(one.values * factor, rel=1e-6)


def test_no_coefficient_is_negative_and_no_rate_above_the_peak() -> None:
    points = design(1024, 8192)
    free = np.array([0.5 / PEAK, 0.5 / PEAK, 0.5 / PEAK, 0.0, 0.0, 0.02])
    fit = fit_trainer(points, np.tile(predicted(known(free), points.points, SMALL), (2, 1)), SMALL, PEAK)
    assert (fit.law.values >= 0).all()
    for name in UNKNOWNS[:RATES]:
        assert fit.coefficients[name].value <= PEAK * (1 + 1e-5)


@given(most=st.integers(256, 200_000), longest=st.integers(256, 200_000))
@settings(max_examples=60, deadline=None)
def test_a_design_fits_and_holds_out_both_passes_at_sizes_that_the_model_takes(most: int, longest: int) -> None:
    points = design(most, longest)
    for work in ("logprob", "train"):
        assert sum(point.work == work for point in points.fitted) >= 4
        assert sum(point.work == work for point in points.held_out) >= 2
    assert [point.work for point in points.held_out].count("step") == 1
    assert not set(points.fitted) & set(points.held_out)
    assert max(max(point.lengths, default=0) for point in points.points) <= longest


@pytest.mark.parametrize(("most", "longest", "key"), [(255, 4096, "most_tokens"), (4096, 255, "model")])
def test_sizes_without_room_for_shapes_are_refused(most: int, longest: int, key: str) -> None:
    with pytest.raises(ParameterError, match=f"^{key}: "):
        design(most, longest)


def test_padding_counts_as_tokens_of_the_longest() -> None:
    padded = TrainerPoint("train", (10, 4), "padded")
    assert (padded.tokens, padded.pairs) == (20, 2 * 55.0)
    assert TrainerPoint("train", (10, 4)).pairs == 55.0 + 10.0


def test_a_point_is_as_quick_as_its_quickest_quarter() -> None:
    table = np.array([[1.0], [9.0], [1.2], [3.0], [4.0], [5.0], [6.0], [7.0]])
    assert quickest(table) == pytest.approx([1.1])
    assert noise_floor(*halves(np.array([[1.0, 2.0], [1.1, 2.0]]))) == pytest.approx((0.1 / 1.1) / 2)


def test_fewer_than_two_passes_are_refused() -> None:
    points = design(512, 8192)
    with pytest.raises(ParameterError, match="at least two whole passes"):
        fit_trainer(points, np.ones((1, len(points.points))), SMALL, PEAK)


def test_the_keys_of_a_fit_make_the_training_cost_take_what_the_fit_predicts() -> None:
    """On a GPU of the catalogue, through the profile's section, whole steps of other shapes."""
    gpu, architecture = device("H100-SXM"), model("Qwen3-8B")
    rates = np.array([1 / 4e14, 1 / 4.6e14, 1 / 2.5e14, 0.03, 0.012, 0.2])
    points = design(16384, 40960)
    seconds = predicted(known(rates), points.points, architecture)
    fit = fit_trainer(points, np.tile(seconds, (2, 1)), architecture, gpu.bf16_flops)
    evidence = Evidence(Provenance("measured", "a test"), HoldOutError(0, 0, 0, ""))
    speeds = trainer_speeds(TrainingFit(fit.coefficients, evidence, {"data_parallel": 1}), architecture, gpu)
    cost = TrainingCost(TrainerConfig(gpus=1, micro_batch_tokens=8192, **asdict(speeds)), architecture, gpu)
    step = TrainerPoint("step", (6144, 2048) * 5, micro_batches=5)
    expected = predicted(known(rates), [step], architecture)[0]
    assert cost.step_seconds([(100, length - 100) for length in step.lengths]) == pytest.approx(expected, rel=1e-4)
    assert set(TRAINER_COEFFICIENTS) == set(UNKNOWNS)
