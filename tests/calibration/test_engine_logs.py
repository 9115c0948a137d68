"""vLLM's statistics lines and requests' timelines, written from simulated engines, give the step law back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import simulated_logs as logs
from typer.testing import CliRunner

from calibration.logs.calibrate import calibrate
from calibration.logs.engine_law import fit_stat_lines
from calibration.logs.engine_lines import read_stat_lines
from calibration.logs.formats import format_of
from calibration.logs.requests import reproduce_requests
from calibration.serving.engines import replay
from calibration.serving.replay import engine_limits
from calibration.serving.timelines import EngineSettings, RecordedRun, Timeline
from rlsim.cli.main import app
from rlsim.core.errors import ParameterError
from rlsim.costs.profile import load_profile
from rlsim.costs.step_model import StepTimeModel
from rlsim.resolve import resolve
from rlsim.scenario.document import load

KEY = "rollout.step_time"

# -- statistics lines -------------------------------------------------------------------------------------

LONG: logs.Settings = (
    ("workload.response_tokens.mean_tokens", 6000),
    ("workload.response_tokens.sigma", 0.8),
    ("workload.response_tokens.cap_tokens", 24000),
    ("workload.prompt_tokens.tokens", 2000),
    ("workload.prompts_per_step", 16),
    ("rollout.kv_blocks", 30_000),
    ("run.steps", 4),
)
"""Responses that take minutes: statistics come every ten seconds."""
CAPACITY = 30_000 * 16
LINES_TRUTH = {
    f"{KEY}.base_seconds": logs.SCALE * logs.COEFFICIENTS["base_seconds"] + logs.OFFSET,
    f"{KEY}.per_sequence_seconds": logs.SCALE * logs.COEFFICIENTS["per_sequence_seconds"],
    f"{KEY}.per_kv_token_seconds": logs.SCALE * logs.COEFFICIENTS["per_kv_token_seconds"],
}


@cache
def stat_lines() -> str:
    with TemporaryDirectory() as folder:
        return logs.write_vllm_lines(Path(folder), logs.true_run(LONG), 10.0, CAPACITY).read_text()


@pytest.fixture
def vllm_log(tmp_path: Path) -> Path:
    file = tmp_path / "vllm.log"
    file.write_text(stat_lines())
    return file


def lines_missed(file: Path) -> list[str]:
    fit = fit_stat_lines(read_stat_lines(file), CAPACITY)
    keys = {one.key for one in fit.estimates}
    wrong = [str(one) for one in fit.estimates if not one.contains(LINES_TRUTH.get(one.key, -1.0))]
    return [*wrong, *(keys ^ LINES_TRUTH.keys())]


def test_statistics_lines_give_the_step_law_back(vllm_log: Path) -> None:
    assert format_of(vllm_log) == "vllm-stats"
    assert read_stat_lines(vllm_log).kv_tokens == CAPACITY
    assert lines_missed(vllm_log) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [("Avg prompt throughput", "Avg generation throughput"), ("Running", "Waiting")],
)
def test_mixed_up_fields_of_statistics_lines_are_refused_or_miss(vllm_log: Path, first: str, second: str) -> None:
    pattern = rf"({first}: )([\d.]+)(.*{second}: )([\d.]+)"
    vllm_log.write_text(re.sub(pattern, r"\1\4\3\2", vllm_log.read_text()))
    assert vllm_log.read_text() != stat_lines()
    try:
        missed = lines_missed(vllm_log)
    except ParameterError:
        return
    assert missed


def test_statistics_lines_of_one_batch_size_are_refused(tmp_path: Path) -> None:
    line = (
        "INFO Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {:.1f} tokens/s, "
        "Running: 32 reqs, Waiting: 0 reqs, GPU KV cache usage: {:.1f}%"
    )
    (tmp_path / "vllm.log").write_text("\n".join(line.format(1200 - n, 10 + n) for n in range(20)))
    with pytest.raises(ParameterError, match=r"Running varies by 0\.00%"):
        fit_stat_lines(read_stat_lines(tmp_path / "vllm.log"), CAPACITY)


def test_a_profile_of_statistics_lines_is_a_profile(vllm_log: Path, tmp_path: Path) -> None:
    report = calibrate(vllm_log, logs.base_scenario(LONG), tmp_path / "out")
    profile = load_profile(tmp_path / "out" / "profile.json")
    assert profile.provenance.kind == "fitted"
    assert profile.kv_capacity_tokens == CAPACITY
    assert "lengths, training and publication" in report.text()


# -- timelines --------------------------------------------------------------------------------------------

LAW = (8e-3, 4e-4, 2e-7, 6e-5)
"""Base, sequence, KV token, prefill token."""
SETTINGS = EngineSettings(
    "Qwen/Qwen3-0.6B", "0.19.0", tensor_parallel=1, max_num_seqs=24, max_num_batched_tokens=1024, kv_blocks=4000
)


@cache
def serving_run() -> RecordedRun:
    """A hundred requests whose load comes and goes, through an engine with the law."""
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(np.where(np.arange(100) // 20 % 2, 0.9, 0.15)))
    prompts, outputs = rng.integers(50, 2000, 100), rng.integers(20, 400, 100)
    timelines = tuple(
        Timeline(int(prompt), int(output), float(at), float(at), float(at))
        for prompt, output, at in zip(prompts, outputs, arrivals - arrivals[0], strict=True)
    )
    asked = RecordedRun("l4_qwen3-0.6b", SETTINGS, timelines)
    served = replay(asked, engine_limits(asked), StepTimeModel.affine(*LAW), asynchronous=True)
    return replace(asked, timelines=served.timelines)


def write_timelines(parent: Path, keys: tuple[str, ...] = ()) -> Path:
    folder = parent / "l4_qwen3-0.6b"
    folder.mkdir()
    kwargs = {"max_num_seqs": SETTINGS.max_num_seqs, "max_num_batched_tokens": SETTINGS.max_num_batched_tokens}
    meta = {"model": SETTINGS.model, "vllm_version": "0.19.0", "engine_kwargs": kwargs}
    cache_config = {"num_gpu_blocks": 4001, "block_size": 16, "enable_prefix_caching": True}
    (folder / "meta.json").write_text(json.dumps({**meta, "kv_cache": cache_config}))
    names = keys or ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")
    rows = [json.dumps(dict(zip(names, timeline, strict=True))) for timeline in serving_run().timelines]
    (folder / "requests.jsonl").write_text("\n".join(rows))
    return folder


def timelines_missed(folder: Path) -> list[str]:
    report, _, _ = reproduce_requests(folder)
    names = ("base_seconds", "per_sequence_seconds", "per_kv_token_seconds", "per_prefill_token_seconds")
    truth = {f"{KEY}.{name}": value for name, value in zip(names, LAW, strict=True)}
    lost = {f"{KEY}.base_seconds", f"{KEY}.per_prefill_token_seconds"} - {one.key for one in report.estimates}
    return [*lost, *(str(one) for one in report.estimates if not one.contains(truth.get(one.key, -1.0)))]


def test_timelines_give_the_step_law_back(tmp_path: Path) -> None:
    folder = write_timelines(tmp_path)
    assert format_of(folder) == "timelines"
    assert timelines_missed(folder) == []


def test_mixed_up_columns_of_timelines_miss(tmp_path: Path) -> None:
    folder = write_timelines(tmp_path, ("output_toks", "input_toks", "queued_ts", "first_token_ts", "last_token_ts"))
    assert timelines_missed(folder)


def test_a_serving_run_becomes_a_scenario_that_runs(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["calibrate", "logs", str(write_timelines(tmp_path)), "--out", str(tmp_path / "o")]
    )
    assert result.exit_code == 0, result.output
    assert "1 to 50 fitted" in result.output
    scenario = load(str(tmp_path / "o" / "scenario.yaml")).resolve()
    made = resolve(scenario)
    assert made.pools[0].law.decode_seconds(8, 8000) == pytest.approx(
        StepTimeModel.affine(*LAW).decode_seconds(8, 8000), rel=0.02
    )
    assert scenario.cluster.device == "L4"


def test_alike_requests_are_refused(tmp_path: Path) -> None:
    folder = write_timelines(tmp_path)
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    (folder / "requests.jsonl").write_text("\n".join(json.dumps({**row, "output_toks": 100}) for row in rows))
    with pytest.raises(ParameterError, match="output_toks varies"):
        reproduce_requests(folder)


def test_a_gpu_that_is_not_known_asks_for_a_base(tmp_path: Path) -> None:
    folder = write_timelines(tmp_path).rename(tmp_path / "mystery_qwen3-0.6b")
    with pytest.raises(ParameterError, match="--base"):
        reproduce_requests(folder)
