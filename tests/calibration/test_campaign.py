"""Calibration campaigns on a bench whose law is known, on a machine as noisy as shared ones are."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from noisy_bench import BENT, LIMITS, TRUTH, NoisyBench

from calibration.campaign import Campaign
from calibration.design import make_design
from calibration.robustfit import fit_visits, predicted_seconds
from calibration.samplestore import SampleStore
from calibration.stepfit import hold_out_by_kind
from calibration.visits import Visit, best_by_point, best_reference, noise_floor
from rlsim.core.errors import RlsimError
from rlsim.costs.steplaw import StepLaw

DESIGN = make_design(LIMITS)


def campaign(bench: NoisyBench, file: Path, budget_seconds: float = 900, tolerance: float = 0.015) -> Campaign:
    store = SampleStore(file, {"of": "a made-up bench"})
    return Campaign(bench, DESIGN, store, budget_seconds, tolerance, clock=bench.clock, report=lambda line: None)


def worst_error(law: StepLaw, truth: StepLaw) -> float:
    """Over every composition that the campaign may visit, those never fitted included."""
    samples = [point.sample(1.0) for point in DESIGN.domain]
    return max(abs(predicted_seconds(law, at) / predicted_seconds(truth, at) - 1.0) for at in samples)


@pytest.mark.parametrize("seed", range(4))
def test_a_straight_law_is_recovered_within_two_percent_through_bursts(tmp_path: Path, seed: int) -> None:
    ran = campaign(NoisyBench(TRUTH, seed), tmp_path / "samples.jsonl")
    assert ran.run(), "never tight"
    law = ran.fit().law
    assert worst_error(law, TRUTH) < 0.02
    assert law.kv_seconds_per_token[0] == pytest.approx(8.0e-7, rel=0.02)
    assert law.pair_seconds == pytest.approx(1.7e-7, rel=0.03)
    slope = (law.dense_seconds[-1] - law.dense_seconds[0]) / (law.tokens[-1] - law.tokens[0])
    assert slope == pytest.approx(2.1e-4, rel=0.02)


@pytest.mark.parametrize("seed", range(2))
def test_a_bent_law_is_recovered_within_two_percent_in_all_but_few_places(tmp_path: Path, seed: int) -> None:
    """Between its knots a piecewise linear law of other knots is off by its curvature too."""
    ran = campaign(NoisyBench(BENT, seed), tmp_path / "samples.jsonl", tolerance=0.03)
    assert ran.run(), "never tight"
    law, samples = ran.fit().law, [point.sample(1.0) for point in DESIGN.domain]
    errors = [abs(predicted_seconds(law, at) / predicted_seconds(BENT, at) - 1.0) for at in samples]
    assert float(np.quantile(errors, 0.95)) < 0.02
    assert max(errors) < 0.04


def test_shuffled_timings_recover_nothing_and_the_hold_out_says_so(tmp_path: Path) -> None:
    ran = campaign(NoisyBench(TRUTH, 0), tmp_path / "samples.jsonl")
    ran.run()
    shuffled = shuffle(ran.fitted())
    law = fit_visits(shuffled, ran.fit().law.provenance).law
    assert worst_error(law, TRUTH) > 0.02
    errors = hold_out_by_kind(law, list(best_by_point(ran.held_out(), best_reference(ran.store.visits)).values()))
    floor = noise_floor(ran.store.visits)
    for kind in ("decode", "prefill"):
        assert errors[kind].median > max(0.05, floor[kind])


def shuffle(visits: list[Visit]) -> list[Visit]:
    times = [visit.seconds for visit in visits]
    random.Random(0).shuffle(times)
    return [replace(visit, seconds=seconds) for visit, seconds in zip(visits, times, strict=True)]


def test_the_noise_is_as_on_shared_machines_and_the_fit_is_better_than_it(tmp_path: Path) -> None:
    """Single visits to a point are tens of per cent apart, which neither the floor nor the held-out errors are."""
    ran = campaign(NoisyBench(TRUTH, 1), tmp_path / "samples.jsonl")
    ran.run()
    by_point: dict[object, list[float]] = {}
    for visit in ran.store.visits:
        by_point.setdefault(visit.point, []).append(visit.seconds)
    spreads = [max(times) / min(times) - 1.0 for times in by_point.values() if len(times) > 3]
    assert float(np.median(spreads)) > 0.2
    floor = noise_floor(ran.store.visits)
    assert max(floor["decode"], floor["prefill"]) < 0.05
    held_out = list(best_by_point(ran.held_out(), best_reference(ran.store.visits)).values())
    errors = hold_out_by_kind(ran.fit().law, held_out)
    assert errors["decode"].median <= max(0.05, floor["decode"])
    assert errors["prefill"].median <= max(0.05, floor["prefill"])
    assert errors["mixed"].points > 0


def test_checks_are_visited_but_never_fitted(tmp_path: Path) -> None:
    ran = campaign(NoisyBench(TRUTH, 2), tmp_path / "samples.jsonl")
    ran.run()
    checks = set(DESIGN.checks)
    assert checks <= {visit.point for visit in ran.held_out()}
    assert not checks & {visit.point for visit in ran.fitted()}


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
    assert len(resumed.store.visits) == 50
    assert resumed.used_seconds == pytest.approx(resumed.store.visits[-1].used_seconds)
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
    assert ran.store.visits
    with pytest.raises(RlsimError, match="larger --budget"):
        ran.fit()


def test_a_loose_tolerance_ends_a_campaign_and_an_impossible_one_never(tmp_path: Path) -> None:
    loose = campaign(NoisyBench(TRUTH, 7), tmp_path / "loose.jsonl", tolerance=0.5)
    assert loose.run()
    strict = campaign(NoisyBench(TRUTH, 7), tmp_path / "strict.jsonl", budget_seconds=200, tolerance=0.0)
    assert not strict.run()
    assert loose.used_seconds < strict.used_seconds
    assert len(loose.store.visits) < len(strict.store.visits)
