"""Calibration campaigns on a bench whose law is known, on a machine as noisy as shared ones are."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from noisy_bench import BENT, KINKED, LIMITS, TRUTH, NoisyBench

from calibration.fitting.step_model import StepSample, hold_out_by_kind, predicted_seconds
from calibration.fitting.step_model_robust import fit_samples
from calibration.measure.campaign import TimeBudget
from calibration.measure.design import make_design
from calibration.measure.journal import MeasurementJournal
from calibration.measure.measurements import (
    StepMeasurement,
    best_by_point,
    best_reference,
    noise_floor_by_kind,
    split,
)
from calibration.vllm.campaign import FEWEST_ROUNDS, StepCampaign, fitted_measurements
from rlsim.core.errors import RlsimError
from rlsim.costs.step_model import StepTimeModel

DESIGN = make_design(LIMITS)
WITHIN_TWO_PERCENT_SECONDS = 900
"""Of the made-up machine, of which a third is stolen by its bursts; less where the intervals are tight before."""

CI_SECONDS = 170
"""The budget with which the real engine is calibrated on CI."""


def campaign(
    bench: NoisyBench,
    file: Path,
    budget_seconds: float = 900,
    tolerance: float = 0.01,
    report: Callable[[str], None] = lambda line: None,
) -> StepCampaign:
    return StepCampaign(
        bench=bench,
        design=DESIGN,
        journal=MeasurementJournal(file, {"of": "a made-up bench"}, StepMeasurement),
        budget=TimeBudget(budget_seconds, bench.clock),
        tolerance=tolerance,
        report=report,
    )


def worst_error(law: StepTimeModel, truth: StepTimeModel) -> float:
    """Over every composition that the campaign may visit, those never fitted included."""
    samples = [point.sample(1.0) for point in DESIGN.domain]
    return max(abs(predicted_seconds(law, at) / predicted_seconds(truth, at) - 1.0) for at in samples)


@pytest.mark.parametrize("seed", range(6))
def test_a_straight_law_is_recovered_within_two_percent_through_bursts(tmp_path: Path, seed: int) -> None:
    ran = campaign(NoisyBench(TRUTH, seed), tmp_path / "samples.jsonl", WITHIN_TWO_PERCENT_SECONDS)
    ran.run()
    law = ran.fit().law
    assert worst_error(law, TRUTH) < 0.02
    assert law.kv_seconds_per_token == pytest.approx([8.0e-7] * len(law.decodes), rel=0.02)
    assert law.pair_seconds == pytest.approx(1.7e-7, rel=0.02)
    slope = (law.dense_seconds[-1] - law.dense_seconds[0]) / (law.tokens[-1] - law.tokens[0])
    assert slope == pytest.approx(2.1e-4, rel=0.02)


@pytest.mark.parametrize("truth", [BENT, KINKED], ids=["bends where the fit may", "bends elsewhere"])
@pytest.mark.parametrize("seed", range(3))
def test_a_bent_law_is_recovered_within_two_percent_at_every_step(
    tmp_path: Path, seed: int, truth: StepTimeModel
) -> None:
    ran = campaign(NoisyBench(truth, seed), tmp_path / "samples.jsonl", WITHIN_TWO_PERCENT_SECONDS)
    ran.run()
    law = ran.fit().law
    assert worst_error(law, truth) < 0.02
    assert law.pair_seconds == pytest.approx(truth.pair_seconds, rel=0.02)


def judged(ran: StepCampaign) -> list[StepSample]:
    """The points of the passes that no fit has seen."""
    measurements = ran.journal.measurements
    return list(best_by_point(split(measurements)[1], best_reference(measurements)).values())


def test_shuffled_timings_recover_nothing_and_the_hold_out_says_so(tmp_path: Path) -> None:
    ran = campaign(NoisyBench(TRUTH, 0), tmp_path / "samples.jsonl")
    ran.run()
    shuffled = shuffle(fitted_measurements(ran.journal.measurements, DESIGN))
    best = best_by_point(shuffled, best_reference(shuffled))
    law = fit_samples(list(best.values()), ran.fit().law.provenance).law
    assert worst_error(law, TRUTH) > 0.02
    errors = hold_out_by_kind(law, judged(ran))
    floor = noise_floor_by_kind(ran.journal.measurements)
    for kind in ("decode", "prefill"):
        assert errors[kind].median > max(0.05, floor[kind])


def shuffle(measurements: list[StepMeasurement]) -> list[StepMeasurement]:
    times = [measurement.seconds for measurement in measurements]
    random.Random(0).shuffle(times)
    pairs = zip(measurements, times, strict=True)
    return [replace(measurement, seconds=seconds) for measurement, seconds in pairs]


def test_the_noise_is_as_on_shared_machines_and_the_fit_is_better_than_it(tmp_path: Path) -> None:
    """Single visits to a point are tens of per cent apart, which neither the floor nor the held-out errors are."""
    ran = campaign(NoisyBench(TRUTH, 1), tmp_path / "samples.jsonl")
    ran.run()
    by_point: dict[object, list[float]] = {}
    for measurement in ran.journal.measurements:
        by_point.setdefault(measurement.point, []).append(measurement.seconds)
    spreads = [max(times) / min(times) - 1.0 for times in by_point.values() if len(times) > 3]
    assert float(np.median(spreads)) > 0.2
    floor = noise_floor_by_kind(ran.journal.measurements)
    assert max(floor["decode"], floor["prefill"]) < 0.05
    errors = hold_out_by_kind(ran.fit().law, judged(ran))
    assert errors["decode"].median <= max(0.05, floor["decode"])
    assert errors["prefill"].median <= max(0.05, floor["prefill"])
    assert errors["mixed"].points > 0


def test_checks_are_visited_but_never_fitted(tmp_path: Path) -> None:
    ran = campaign(NoisyBench(TRUTH, 2), tmp_path / "samples.jsonl")
    ran.run()
    checks = set(DESIGN.checks)
    assert checks <= {measurement.point for measurement in split(ran.journal.measurements)[1]}
    assert not checks & {measurement.point for measurement in fitted_measurements(ran.journal.measurements, DESIGN)}


def test_an_interrupted_campaign_goes_on_where_it_stopped(tmp_path: Path) -> None:
    class Interrupted(NoisyBench):
        def measure(self, point, repeats):  # type: ignore[no-untyped-def]
            if len(self.asked) == 50:
                raise KeyboardInterrupt
            return super().measure(point, repeats)

    file = tmp_path / "samples.jsonl"
    with pytest.raises(KeyboardInterrupt):
        campaign(Interrupted(TRUTH, 3), file).run()
    resumed = campaign(NoisyBench(TRUTH, 4), file)
    assert len(resumed.journal.measurements) == 50
    assert resumed.used_seconds == pytest.approx(resumed.journal.measurements[-1].used_seconds)
    assert resumed.run()
    assert worst_error(resumed.fit().law, TRUTH) < 0.02


def test_the_budget_ends_a_campaign_and_counts_over_resumptions(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    longest = 64 * predicted_seconds(TRUTH, DESIGN.initial[-1].sample(1.0))
    for budget in (30.0, 60.0):
        ran = campaign(NoisyBench(TRUTH, 5), file, budget_seconds=budget, tolerance=0.0)
        assert not ran.run()
        assert budget <= ran.used_seconds < budget + longest


def test_a_budget_without_a_second_visit_is_refused_but_keeps_the_samples(tmp_path: Path) -> None:
    ran = campaign(NoisyBench(TRUTH, 6), tmp_path / "samples.jsonl", budget_seconds=2.0)
    ran.run()
    assert ran.journal.measurements
    with pytest.raises(RlsimError, match="larger --budget"):
        ran.fit()


def test_on_a_quiet_machine_a_campaign_ends_early_and_prints_the_interval_that_ended_it(tmp_path: Path) -> None:
    quiet = NoisyBench(TRUTH, 7, slow_share=0.0, interrupted=0.0, jitter=0.002)
    ran, told = told_by(quiet, tmp_path / "samples.jsonl")
    assert ran.run()
    assert ran.used_seconds < 0.7 * CI_SECONDS
    assert ran.journal.next_number == 2 * FEWEST_ROUNDS
    before_last = re.search(r"widest interval ±(\S+)% of a step \(\w+\), wanted ±5.0%; 0 points", told[-2])
    assert before_last, told[-2]
    assert float(before_last[1]) <= 5.0
    assert told[-1] == f"tight: ends after {ran.used_seconds:.0f} s of {CI_SECONDS} s"
    assert worst_error(ran.fit().law, TRUTH) < 0.01


def test_on_a_noisy_machine_the_budget_ends_it_and_the_intervals_say_that_they_are_wide(tmp_path: Path) -> None:
    ran, told = told_by(NoisyBench(TRUTH, 7, jitter=0.3), tmp_path / "samples.jsonl")
    assert not ran.run()
    assert ran.used_seconds >= CI_SECONDS
    widest = [float(found[1]) for line in told if (found := re.search(r"widest interval ±(\S+)%", line))]
    assert widest
    assert min(widest) > 5.0
    assert told[-1] == f"the budget of {CI_SECONDS} s is used before every interval is tight"


def told_by(bench: NoisyBench, file: Path) -> tuple[StepCampaign, list[str]]:
    """A campaign with the command's own tolerance, and what it reports."""
    told: list[str] = []
    return campaign(bench, file, CI_SECONDS, 0.05, told.append), told


def test_a_loose_tolerance_ends_a_campaign_and_an_impossible_one_never(tmp_path: Path) -> None:
    loose = campaign(NoisyBench(TRUTH, 7), tmp_path / "loose.jsonl", tolerance=0.5)
    assert loose.run()
    strict = campaign(NoisyBench(TRUTH, 7), tmp_path / "strict.jsonl", budget_seconds=200, tolerance=0.0)
    assert not strict.run()
    assert loose.used_seconds < strict.used_seconds
    assert len(loose.journal.measurements) < len(strict.journal.measurements)
