"""vLLM's statistics lines and requests' timelines, written from simulated engines, give the step law back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import engine_writers
import numpy as np
import pytest
import simulated_logs as logs
from typer.testing import CliRunner

from calibration.logs.calibrate import calibrate
from calibration.logs.engine_factor import fit_lines
from calibration.logs.engine_lines import read_stat_lines
from calibration.logs.engine_step_model import fit_stat_lines
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
        return engine_writers.write_vllm_lines(Path(folder), logs.true_run(LONG), 10.0, CAPACITY).read_text()


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


def test_statistics_lines_of_one_batch_size_tell_a_factor(tmp_path: Path) -> None:
    line = (
        "INFO Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {:.1f} tokens/s, "
        "Running: 32 reqs, Waiting: 0 reqs, GPU KV cache usage: {:.1f}%"
    )
    (tmp_path / "vllm.log").write_text("\n".join(line.format(1200 - n, 10 + n) for n in range(20)))
    lines, base = read_stat_lines(tmp_path / "vllm.log"), StepTimeModel.affine(4e-3, 2e-4, 1e-7, 2e-5)
    with pytest.raises(ParameterError, match=r"Running varies by 0\.00%"):
        fit_stat_lines(lines, CAPACITY)
    fit = fit_lines(lines, CAPACITY, base)
    (factor,) = fit.estimates
    mean_step, mean_kv = float(np.mean([32 / (1200 - n) for n in range(1, 14)])), 0.165 * CAPACITY
    assert factor.value == pytest.approx(mean_step / base.decode_seconds(32, mean_kv), rel=0.02)
    assert fit.law.decode_seconds(32, mean_kv) == pytest.approx(mean_step, rel=0.02)
    assert "Running varies" in fit.unidentified[0]


def test_more_engines_than_the_base_has_are_said(vllm_log: Path, tmp_path: Path) -> None:
    more = [vllm_log.read_text().replace("Engine 000", f"Engine {n:03d}") for n in range(1, 5)]
    vllm_log.write_text("".join([vllm_log.read_text(), *more]))
    report = calibrate(vllm_log, logs.base_scenario(LONG), tmp_path / "out")
    assert [one.kind for one in report.warnings] == ["more engines than the base"]
    assert report.text().splitlines()[1].startswith("held out: the last")


def test_a_profile_of_statistics_lines_is_a_profile(vllm_log: Path, tmp_path: Path) -> None:
    report = calibrate(vllm_log, logs.base_scenario(LONG), tmp_path / "out")
    profile = load_profile(tmp_path / "out" / "profile.json")
    assert profile.provenance.kind == "fitted"
    assert profile.kv_capacity_tokens == CAPACITY
    assert "lengths, training and publication" in report.text()


# -- lines of other engines, and of several ------------------------------------------------------------------

V0 = (
    "INFO 03-01 10:00:{:02d} metrics.py:400] Avg prompt throughput: 2.5 tokens/s, Avg generation throughput: {:.1f} "
    "tokens/s, Running: {} reqs, Swapped: 0 reqs, Pending: 3 reqs, GPU KV cache usage: 40.1%, CPU KV cache usage: 9.0%."
)
V1 = (
    "INFO 03-01 10:{:02d}:{:02d} [loggers.py:271] {}Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: "
    "{:.1f} tokens/s, Running: {} reqs, Waiting: 0 reqs, Deferred: 1 reqs, GPU KV cache usage: 25.0%"
)


def stat_file(folder: Path, lines: list[str]) -> Path:
    file = folder / "engines.log"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_lines_of_the_former_vllm_are_read(tmp_path: Path) -> None:
    lines = read_stat_lines(stat_file(tmp_path, [V0.format(5 * n, 400.0 + n, 20) for n in range(4)]))
    stat = lines.engines[""][1]
    assert (stat.running, stat.generation_rate, stat.prompt_rate, stat.kv_share) == (20, 401.0, 2.5, 0.401)
    assert len(list(lines.intervals(1000))) == 3


@pytest.mark.parametrize("names", [("Engine 000: ", "Engine 001: "), ("(A pid=1) ", "(A pid=2) "), ("", "")])
def test_lines_of_several_engines_are_never_one_engines(names: tuple[str, str], tmp_path: Path) -> None:
    prefix = ["", ""] if names[0].startswith("Engine") else list(names)
    engine = list(names) if names[0].startswith("Engine") else ["", ""]
    written = [
        prefix[rank] + V1.format(n // 6, 10 * n % 60, engine[rank], (1000.0, 60.0)[rank], (100, 3)[rank])
        for n in range(8)
        for rank in range(2)
    ]
    lines = read_stat_lines(stat_file(tmp_path, written))
    assert {round(one.step_seconds, 3) for _, one in lines.intervals(1000)} == {0.1, 0.05}
    assert ("2 engines" if names[0] else "several engines write lines without a name") in lines.notes[0]


def test_lines_that_sum_up_engines_are_divided(tmp_path: Path) -> None:
    written = [V1.format(n, 0, "4 Engines Aggregated: ", 4000.0, 100) for n in range(3)]
    lines = read_stat_lines(stat_file(tmp_path, written))
    interval = next(lines.intervals(1000))[1]
    assert (interval.running, interval.step_seconds, interval.kv_tokens) == (25.0, 0.025, 250.0)
    assert "sum up 4 engines" in lines.notes[0]


def test_speculative_decoding_gives_more_than_a_token_a_step(tmp_path: Path) -> None:
    accepted = "INFO 03-01 10:00:00 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.50, Accepted: 9"
    written = [line for n in range(3) for line in (V1.format(n, 0, "", 1000.0, 100), accepted)]
    lines = read_stat_lines(stat_file(tmp_path, written))
    assert next(lines.intervals(1000))[1].step_seconds == 0.25


def test_sglangs_lines_give_the_step_law_back(tmp_path: Path) -> None:
    file = engine_writers.write_sglang_lines(tmp_path, logs.true_run(LONG))
    assert format_of(file) == "sglang-stats"
    lines = read_stat_lines(file)
    assert set(lines.engines) == {"DP0", "DP1"}
    assert lines.decode_log_interval == engine_writers.DECODE_LOG_INTERVAL
    estimates = {one.key: one for one in fit_stat_lines(lines, CAPACITY).estimates}
    assert all(estimates[key].value == pytest.approx(value, rel=0.05) for key, value in LINES_TRUTH.items())


@pytest.mark.parametrize("batch", ["Decode batch.", "Decode batch,", "Decode batch [77],"])
def test_sglangs_lines_of_every_version_and_rank_are_read(batch: str, tmp_path: Path) -> None:
    written = [
        f"[2026-01-01 10:00:0{n}{rank}] {batch} #running-req: 8, #{full}token: {800 + n}, token usage: 0.1, "
        f"accept len: 2.00, cuda graph: True, gen throughput (token/s): 160.00, #queue-req: 0"
        for n in range(3)
        for rank, full in ((" DP0 TP0", ""), (" DP0 TP1", ""), (" DP1 TP2 EP2", "full "))
    ]
    lines = read_stat_lines(stat_file(tmp_path, written))
    assert {engine: len(stats) for engine, stats in lines.engines.items()} == {"DP0": 3, "DP1": 3}
    assert {interval for _, interval in lines.intervals(0)} == {(0.1, 8.0, 800.5, 0.0), (0.1, 8.0, 801.5, 0.0)}
    assert lines.notes[0].startswith("lines of other ranks of the same engine: 3")


def test_an_interval_in_which_sglang_had_nothing_to_do_is_left_out(tmp_path: Path) -> None:
    decode = (
        "[x TP0] Decode batch, #running-req: 1, #token: 9, token usage: 0, gen throughput (token/s): {}, #queue-req: 0"
    )
    prefill = "[x TP0] Prefill batch, #new-seq: 1, #new-token: 18, #cached-token: 0, #running-req: {}, #queue-req: 0"
    written = [decode.format(80.0), prefill.format(0), decode.format(1.0), prefill.format(1), decode.format(40.0)]
    lines = read_stat_lines(stat_file(tmp_path, written))
    assert [interval for _, interval in lines.intervals(0)] == [(1 / 40, 1.0, 9.0, 18 / 40)]


def test_a_profile_of_sglangs_lines_says_so(tmp_path: Path) -> None:
    report = calibrate(
        engine_writers.write_sglang_lines(tmp_path, logs.true_run(LONG)), logs.base_scenario(LONG), tmp_path / "out"
    )
    assert "statistics lines of sglang" in report.title
    assert load_profile(tmp_path / "out" / "profile.json").provenance.source == "sglang's statistics lines (sglang.log)"
    assert any("2 engines, lines of each: DP0" in note for note in report.notes)


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
