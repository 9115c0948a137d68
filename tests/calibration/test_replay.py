"""Replaying a recorded run: tables become the law they were made from, and a fitted term is the one that was there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibration.fitting.step_model import hold_out_by_kind
from calibration.serving.engines import replay
from calibration.serving.replay import engine_limits, find_tables, fit_terms, replay_report, with_terms
from calibration.serving.score import Replayed, ScoreRow, Terms, score
from calibration.serving.timelines import EngineSettings, Gauge, RecordedRun, Timeline, read_run
from calibration.silicon_tables.kernels import StepShape, default_capture_sizes, read_kernel_tables
from rlsim.core.errors import ParameterError
from rlsim.engine.steptime import attention_pairs

LAYERS = 28
"""Of Qwen3-0.6B."""
LAUNCH, KV, PAIR = 10e-6, 2e-9, 1e-10
"""One layer's attention: constant, a KV token, a (query, key) pair; seconds."""
HOST = 1.5e-3

ONCE = {"embedding": 4.0, "final_layernorm": 3.0}
REPEATED = {"layernorm": 2.0, "qkv_proj": 50.0, "o_proj": 40.0, "gate_up_proj": 90.0, "act_fn": 3.0, "down_proj": 60.0}
HEAD, SAMPLER = 100.0, 10.0
TOKENS = (1, 64, 2048)
CONTEXTS = (256, 1024, 4096)


def dense_seconds(tokens: int) -> float:
    """Every layer takes its time and a thousandth of it a token; the norm runs twice in a layer."""
    repeated = sum(REPEATED.values()) + REPEATED["layernorm"]
    return (sum(ONCE.values()) + LAYERS * repeated) * (1 + tokens / 1000) * 1e-6


def step_seconds(decodes: int, kv_tokens: int, chunk: int = 0) -> float:
    sequences = decodes + (chunk > 0)
    attention = LAYERS * (LAUNCH + KV * kv_tokens + PAIR * attention_pairs(chunk, 0))
    return dense_seconds(decodes + chunk) + (HEAD + SAMPLER * sequences) * 1e-6 + attention


def write_csv(file: Path, header: str, rows: Iterable[Sequence[object]]) -> None:
    file.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


def write_tables(folder: Path) -> Path:
    folder.mkdir(parents=True)
    layers = {**ONCE, **REPEATED}
    dense = [(name, n, time * (1 + n / 1000)) for name, time in layers.items() for n in TOKENS]
    write_csv(folder / "dense.csv", "layer,tokens,time_us", dense)
    heads = [("lm_head", n, HEAD) for n in (1, 8)] + [("sampler", n, SAMPLER * n) for n in (1, 8)]
    write_csv(folder / "per_sequence.csv", "layer,sequences,time_us", heads)
    decodes = [(0, 0, n, c, 1e6 * (LAUNCH + KV * n * c)) for n in (1, 4, 8) for c in CONTEXTS]
    prefill = [(t, c, 0, 0, 1e6 * (LAUNCH + PAIR * attention_pairs(t, c))) for t in (128, 1024) for c in (0, 512)]
    header = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"
    write_csv(folder / "attention.csv", header, decodes + prefill)
    return folder


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return write_tables(tmp_path / "kernel-tables" / "gpu_qwen_qwen3-0.6b_bf16_tp1")


SETTINGS = EngineSettings(
    "Qwen/Qwen3-0.6B",
    "0.19.0",
    tensor_parallel=1,
    max_num_seqs=8,
    max_num_batched_tokens=2048,
    kv_blocks=1000,
    capture_sizes=(1,),
)


def lone(arrival: float, prompt: int, output: int, host: float = HOST) -> Timeline:
    """A request that has the engine to itself: its prefill, then one decode a step."""
    first = arrival + host + step_seconds(0, 0, prompt)
    decoding = sum(host + step_seconds(1, context) for context in range(prompt + 1, prompt + output))
    return Timeline(prompt, output, arrival, first, first + decoding)


LONE_RUN = RecordedRun("lone", SETTINGS, tuple(lone(2.0 * n, 100 + 30 * n, 20 + n) for n in range(10)))


def write_run(folder: Path, run: RecordedRun, **meta: Any) -> Path:
    folder.mkdir()
    settings, clock = run.settings, 5000.0
    kwargs = {"max_num_seqs": settings.max_num_seqs, "max_num_batched_tokens": settings.max_num_batched_tokens}
    recorded = {"model": settings.model, "vllm_version": "0.19.0", "engine_kwargs": kwargs, **meta}
    (folder / "meta.json").write_text(json.dumps(recorded))
    names = ("queued_ts", "first_token_ts", "last_token_ts")
    lines = [
        {"input_toks": t[0], "output_toks": t[1], **{name: clock + at for name, at in zip(names, t[2:], strict=True)}}
        for t in run.timelines
    ]
    (folder / "requests.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    return folder


# -- tables -----------------------------------------------------------------------------------------------


def test_a_step_is_the_sum_of_its_layers(tables: Path) -> None:
    law = read_kernel_tables(tables).step_law(StepShape(LAYERS))
    for decodes, context in ((1, 300), (4, 777), (8, 4000)):
        assert law.decode_seconds(decodes, decodes * context) == pytest.approx(step_seconds(decodes, decodes * context))
    pairs = attention_pairs(700, 0)
    assert law.mixed_seconds(0, 0, 1, 700, pairs) == pytest.approx(step_seconds(0, 0, 700))


def test_the_law_of_affine_tables_reprices_every_row(tables: Path) -> None:
    kernels = read_kernel_tables(tables)
    errors = hold_out_by_kind(kernels.step_law(StepShape(LAYERS)), kernels.step_samples(StepShape(LAYERS)))
    assert errors.keys() == {"decode", "prefill"}
    assert max(error.worst for error in errors.values()) < 1e-4


def test_kv_beside_a_chunk_costs_what_the_mixed_rows_say(tables: Path) -> None:
    def row(chunk: int, decodes: int, context: int) -> tuple[object, ...]:
        time = LAUNCH + 3 * KV * decodes * context + PAIR * attention_pairs(chunk, 0)
        return (chunk, 0, decodes, context, 1e6 * time)

    mixed = [row(t, n, c) for t in (128, 1024) for n in (1, 4, 8) for c in CONTEXTS]
    with (tables / "attention.csv").open("a") as file:
        file.write("\n".join(",".join(map(str, line)) for line in mixed))
    kernels = read_kernel_tables(tables)
    law = kernels.step_law(StepShape(LAYERS))
    assert law.mixed_kv_seconds_per_token == pytest.approx([3 * LAYERS * KV] * 3, rel=1e-6)
    assert law.decode_seconds(4, 4000) == pytest.approx(step_seconds(4, 4000))
    assert hold_out_by_kind(law, kernels.step_samples(StepShape(LAYERS)))["mixed"].worst < 1e-4


def test_a_small_step_runs_padded_to_the_next_captured_size(tables: Path) -> None:
    curve = read_kernel_tables(tables).dense_curve(StepShape(LAYERS, (1, 2, 4, 8)))
    seconds = dict(zip(curve.counts, curve.seconds, strict=True))
    assert [seconds[n] for n in (3, 5, 8)] == pytest.approx([dense_seconds(n) for n in (4, 8, 8)])
    assert seconds[9] == pytest.approx(dense_seconds(9))


def test_a_larger_step_never_takes_less(tables: Path) -> None:
    rows = (tables / "dense.csv").read_text().replace("down_proj,64,", "down_proj,64,900")
    (tables / "dense.csv").write_text(rows)
    seconds = read_kernel_tables(tables).step_law(StepShape(LAYERS)).dense_seconds
    assert seconds[-1] == seconds[-2] > dense_seconds(2048)


def test_capture_sizes_grow_with_the_seats_up_to_512() -> None:
    assert default_capture_sizes(10) == (1, 2, 4, 8, 16)
    assert default_capture_sizes(256)[-4:] == default_capture_sizes(1000)[-4:] == (464, 480, 496, 512)


@pytest.mark.parametrize(
    ("file", "line", "named"),
    [
        ("dense.csv", "kv_proj,1,3.0", "dense.csv:2: layer"),
        ("dense.csv", "qkv_proj,-1,3.0", "dense.csv:2: tokens"),
        ("per_sequence.csv", "sampler,1,nan", "per_sequence.csv:2: time_us"),
        ("attention.csv", "0,0,1,256,-3", "attention.csv:2: time_us"),
    ],
)
def test_a_faulty_row_is_named(tables: Path, file: str, line: str, named: str) -> None:
    header, *rows = (tables / file).read_text().splitlines()
    (tables / file).write_text("\n".join([header, line, *rows]))
    with pytest.raises(ParameterError, match=named):
        read_kernel_tables(tables)


def test_tables_without_prefill_make_no_law(tables: Path) -> None:
    rows = (tables / "attention.csv").read_text().splitlines()
    (tables / "attention.csv").write_text("\n".join(row for row in rows if not row.startswith("1")))
    with pytest.raises(ParameterError, match="prefill"):
        read_kernel_tables(tables).step_law(StepShape(LAYERS))


# -- recorded runs ----------------------------------------------------------------------------------------


def test_a_run_is_read_back_from_its_first_arrival(tmp_path: Path) -> None:
    kv_cache = {"num_gpu_blocks": 501, "block_size": 32, "enable_prefix_caching": False}
    folder = write_run(tmp_path / "gpu_run", LONE_RUN, kv_cache=kv_cache)
    run = read_run(folder)
    for found, written in zip(run.timelines, LONE_RUN.timelines, strict=True):
        assert found == pytest.approx(written)
    assert (run.settings.kv_blocks, run.settings.block_size) == (500, 32)
    limits = engine_limits(run)
    assert (limits.kv_blocks, limits.enable_prefix_caching) == (500, False)


def test_the_sampled_series_is_moved_to_the_first_arrival(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "gpu_run", LONE_RUN, started_at="1970-01-01T00:10:00Z")
    lines = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    with_clock = [json.dumps({**line, "arrival_time": 600.25 + n}) for n, line in enumerate(lines)]
    (folder / "requests.jsonl").write_text("\n".join(with_clock))
    write_csv(folder / "timeseries.csv", "t,running,waiting", [(1.0, 3, 4)])
    assert read_run(folder).gauges == (Gauge(0.75, 3, 4),)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [("first_token_ts", 1.0, "first_token_ts"), ("input_toks", 0, "input_toks"), ("queued_ts", None, "queued_ts")],
)
def test_an_impossible_request_is_refused_by_line(tmp_path: Path, key: str, value: object, named: str) -> None:
    folder = write_run(tmp_path / "gpu_run", LONE_RUN)
    first, second, *rest = (folder / "requests.jsonl").read_text().splitlines()
    faulty = json.dumps({**json.loads(second), key: value})
    (folder / "requests.jsonl").write_text("\n".join([first, faulty, *rest]))
    with pytest.raises(ParameterError, match=rf"requests.jsonl:2: {named}"):
        read_run(folder)


def test_unrecorded_kv_blocks_never_run_short() -> None:
    settings = EngineSettings("Qwen/Qwen3-0.6B", "0.19.0", 1, max_num_seqs=8, max_num_batched_tokens=2048)
    run = RecordedRun("ample", settings, LONE_RUN.timelines)
    longest = max(t.input_tokens + t.output_tokens for t in run.timelines)
    assert engine_limits(run).kv_blocks * 16 >= 8 * longest


# -- replay -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_requests_that_never_meet_take_the_sum_of_their_steps(tables: Path, asynchronous: bool) -> None:
    law = with_terms(read_kernel_tables(tables).step_law(StepShape(LAYERS)), Terms(HOST))
    replayed = replay(LONE_RUN, engine_limits(LONE_RUN), law, asynchronous)
    for found, expected in zip(replayed.timelines, LONE_RUN.timelines, strict=True):
        assert found == pytest.approx(expected, rel=1e-6)
    assert replayed.steps == sum(t.output_tokens for t in LONE_RUN.timelines)


def test_asynchronous_scheduling_admits_an_arrival_one_step_later(tables: Path) -> None:
    decoding = lone(0.0, 200, 400, host=0.0)
    arrival = decoding.first_token_seconds + 10.5 * step_seconds(1, 205)
    run = RecordedRun("two", SETTINGS, (decoding, Timeline(64, 5, arrival, arrival, arrival)))
    law = read_kernel_tables(tables).step_law(StepShape(LAYERS))
    sooner, later = (replay(run, engine_limits(run), law, wait).timelines[1] for wait in (False, True))
    delay = later.first_token_seconds - sooner.first_token_seconds
    assert delay == pytest.approx(step_seconds(1, 212), rel=1e-4)


def test_the_all_reduce_costs_every_token_of_a_step(tables: Path) -> None:
    law = read_kernel_tables(tables).step_law(StepShape(LAYERS))
    more = with_terms(law, Terms(0.0, 1e-5))
    for decodes, chunk in ((1, 0), (8, 0), (3, 500), (0, 2048)):
        steps = [each.mixed_seconds(decodes, 900, int(chunk > 0), chunk, 0.0) for each in (law, more)]
        assert steps[1] - steps[0] == pytest.approx((decodes + chunk) * 1e-5)


def test_kv_blocks_too_few_for_a_request_are_refused(tables: Path) -> None:
    tight = RecordedRun("tight", EngineSettings("Qwen/Qwen3-0.6B", "0", 1, 8, 2048, kv_blocks=5), LONE_RUN.timelines)
    with pytest.raises(ParameterError, match="kv_blocks"):
        replay(tight, engine_limits(tight), read_kernel_tables(tables).step_law(StepShape(LAYERS)), asynchronous=True)


def test_the_fitted_host_overhead_is_the_one_of_the_run(tables: Path) -> None:
    law = read_kernel_tables(tables).step_law(StepShape(LAYERS))
    terms = fit_terms(LONE_RUN, engine_limits(LONE_RUN), law, asynchronous=True)
    assert terms.host_seconds == pytest.approx(HOST, rel=2e-3)
    assert terms.all_reduce_seconds == 0.0


def test_on_two_gpus_both_terms_are_told_apart(tables: Path) -> None:
    law, truth = read_kernel_tables(tables).step_law(StepShape(LAYERS)), Terms(2e-3, 3e-5)
    measured = replay(LONE_RUN, engine_limits(LONE_RUN), with_terms(law, truth), asynchronous=True)
    run = RecordedRun("two GPUs", replace(SETTINGS, tensor_parallel=2), measured.timelines)
    terms = fit_terms(run, engine_limits(run), law, asynchronous=True)
    assert terms.host_seconds == pytest.approx(truth.host_seconds, rel=0.01)
    assert terms.all_reduce_seconds == pytest.approx(truth.all_reduce_seconds, rel=0.01)


# -- report -----------------------------------------------------------------------------------------------


def test_the_report_scores_the_second_half_and_says_what_was_assumed(tmp_path: Path, tables: Path) -> None:
    write_run(
        tmp_path / "gpu_qwen3", LONE_RUN, resolved_config={"compilation_config": {"cudagraph_capture_sizes": [1]}}
    )
    report = replay_report(tmp_path)
    (run,) = report.runs
    assert (run.name, run.fitted, run.scored) == ("gpu_qwen3", 5, 5)
    assert max(abs(row.error) for row in run.rows) < 2e-3
    for said in ("host overhead 1.5", "KV blocks are not recorded", "asynchronous scheduling is not recorded"):
        assert said in report.table()


def test_a_score_compares_requests_and_instants() -> None:
    measured = (Timeline(10, 11, 0.0, 1.0, 3.0), Timeline(10, 11, 1.0, 3.0, 5.0), Timeline(10, 1, 1.0, 4.0, 4.0))
    slower = (Timeline(10, 11, 0.0, 1.0, 3.0), Timeline(10, 11, 1.0, 4.0, 7.0), Timeline(10, 1, 1.0, 4.0, 4.0))
    simulated = Replayed(slower, (Gauge(0.0, 2, 0), Gauge(2.0, 0, 0)), steps=1, preemptions=0, peak_kv_blocks=1)
    run = RecordedRun("made up", SETTINGS, measured, gauges=(Gauge(1.5, 1, 0), Gauge(9.0, 0, 0)))
    rows = {row.statistic: row for row in score(run, simulated, 1)}
    assert rows["TTFT mean"] == ScoreRow("TTFT mean", 2.5, 3.0, 0.5**0.5)
    assert rows["TPOT mean"].predicted == pytest.approx(0.15)
    assert rows["end-to-end mean"].error == pytest.approx(4.5 / 3.5 - 1)
    assert rows["makespan"].error == pytest.approx(0.4)
    assert rows["running, over time"] == ScoreRow("running, over time", 0.5, 1.0, 0.5**0.5)


def test_tables_are_found_by_gpu_model_and_sharding(tmp_path: Path, tables: Path) -> None:
    for other in ("gpu_qwen_qwen3-0.6b_bf16_tp2", "gpu_qwen_qwen3-8b_bf16_tp1", "gpux_qwen_qwen3-0.6b_bf16_tp1"):
        write_tables(tables.parent / other)
    assert find_tables(tmp_path / "gpu_qwen3-0.6b", SETTINGS) == tables
    with pytest.raises(ParameterError, match="exactly one folder other_"):
        find_tables(tmp_path / "other_qwen3-0.6b", SETTINGS)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"requests\.jsonl"):
        replay_report(tmp_path)
