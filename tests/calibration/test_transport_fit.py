"""Weight paths: a known latency and bandwidth come back, shuffled timings do not, and real bytes move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from noisy_host import NoisyHost

from calibration.measure.campaign import RepeatedCampaign, TimeBudget
from calibration.measure.journal import MeasurementJournal
from calibration.measure.measurements import Timing
from calibration.transport.paths import WeightPayload, open_path
from calibration.transport.profile import TransportRequest, calibrate_transport, fit_path, payloads, report
from rlsim.core.errors import ParameterError
from rlsim.costs.profile import load_profile
from rlsim.costs.transfer import SyncCost

FIXED, RATE, TENSOR = 0.0004, 2.5e9, 0.0003
SENT = payloads(256 << 20)


def seconds(parcel: WeightPayload) -> float:
    return SyncCost(parcel.size_bytes, RATE, FIXED, parcel.tensors, TENSOR).seconds()


def timings(seed: int, folder: Path) -> np.ndarray:
    host = NoisyHost(seed)
    campaign = RepeatedCampaign(
        points=len(SENT.all),
        seconds_of=lambda index: host.run(seconds(SENT.all[index])),
        journal=MeasurementJournal(folder / "samples.jsonl", {"of": "a path"}, Timing),
        budget=TimeBudget(30.0, host.clock),
        interval=lambda table: 1.0,
        tight=0.0,
    )
    return campaign.run()


@pytest.mark.parametrize("seed", range(6))
def test_a_known_path_comes_back_within_two_per_cent(seed: int, tmp_path: Path) -> None:
    fit, error = fit_path(SENT, timings(seed, tmp_path))
    assert error.worst < 0.03
    assert error.median < 0.02
    assert 1 / fit.values[1] == pytest.approx(RATE, rel=0.02)


@pytest.mark.parametrize("seed", range(6))
def test_shuffled_parcels_are_not_fitted(seed: int, tmp_path: Path) -> None:
    table = timings(seed, tmp_path)
    fit, error = fit_path(SENT, table[:, np.random.default_rng(seed).permutation(table.shape[1])])
    assert error.median > 0.1
    assert fit.values[1] == 0 or abs(1 / fit.values[1] / RATE - 1) > 0.02


def test_parcels_are_of_every_size_whole_and_in_pieces_and_a_third_is_held_out() -> None:
    assert len(SENT.held_out) == 4
    assert {parcel.tensors for parcel in SENT.held_out} == {1, 16}
    assert not set(SENT.fitted) & set(SENT.held_out)
    with pytest.raises(ParameterError, match=r"^bytes: "):
        payloads(1000)


def test_real_paths_without_torch_are_measured_into_a_profile(tmp_path: Path) -> None:
    """Real processes, memory and files; how long they take is nobody's promise."""
    out = tmp_path / "profile.json"
    request = TransportRequest(out, TimeBudget(0.01), 32 << 20, ("shared-memory", "filesystem"), command="a test")
    calibrate_transport(request)
    profile = load_profile(str(out))
    assert sorted(profile.transport) == ["filesystem", "shared-memory"]
    assert all(path.bytes_per_second.value > 0 and path.ranks == 2 for path in profile.transport.values())
    calibrate_transport(TransportRequest(out, TimeBudget(0.01), 32 << 20, ("filesystem-uncached",)))
    assert len(load_profile(str(out)).transport) == 3, "sections that are there already are kept"
    assert sum(line.startswith("sync:") for line in report(load_profile(str(out)))) == 3
    assert not list(tmp_path.glob("*.part*"))


@pytest.mark.parametrize("path", ["shared-memory", "filesystem"])
def test_a_path_says_that_a_parcel_is_there_when_its_receiver_does(path: str, tmp_path: Path) -> None:
    with open_path(path, 4 << 20, tmp_path) as send:
        assert all(send(WeightPayload(4 << 20, pieces)) > 0 for pieces in (1, 4))
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_an_unknown_path_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="did you mean 'filesystem'"):
        calibrate_transport(TransportRequest(tmp_path / "p.json", TimeBudget(1.0), 4 << 20, ("filesytem",)))
