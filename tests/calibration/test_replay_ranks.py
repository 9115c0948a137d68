"""Recorded runs of several data-parallel ranks and of mixtures of experts, and models that no catalogue knows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.logs.exposure import fit_law
from calibration.logs.requests import reproduce_requests
from calibration.serving.engines import replay
from calibration.serving.replay import LARGEST_HOST_SECONDS, bounds_hit, engine_limits, replay_report, step_shape
from calibration.serving.score import Replayed, Terms
from calibration.serving.timelines import EngineSettings, RecordedRun, Timeline, read_run
from calibration.silicon_tables.kernels import ExpertLayers, ExpertTime, StepShape, read_kernel_tables
from rlsim.core.errors import ParameterError
from rlsim.costs.architecture import Experts
from rlsim.costs.step_model import StepTimeModel

DENSE = {
    "model_type": "qwen3",
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "intermediate_size": 1024,
    "vocab_size": 1000,
}
MIXTURE = {
    **DENSE,
    "model_type": "qwen3_moe",
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
}
LAW = StepTimeModel.affine(4e-3, 5e-4, 1e-6, 2e-5)


def run_of(folder: Path, timelines: list[Timeline], ranks: int, config: dict[str, Any] = DENSE) -> RecordedRun:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    recorded = EngineSettings("of-my-own", "0.19.0", 1, 8, 2048, data_parallel=ranks, kv_blocks=1000)
    return RecordedRun("run", recorded, tuple(timelines), config=folder / "config.json")


def asked(arrivals: list[float], prompt: int = 64, output: int = 40) -> list[Timeline]:
    return [Timeline(prompt, output, at, at, at) for at in arrivals]


def replayed(run: RecordedRun) -> Replayed:
    return replay(run, engine_limits(run), LAW, asynchronous=False)


def test_ranks_of_a_dense_model_are_engines_of_their_own(tmp_path: Path) -> None:
    alone, together, apart = (
        replayed(run_of(tmp_path, asked([0.0] * count), ranks)).timelines for count, ranks in ((1, 1), (2, 1), (2, 2))
    )
    assert apart[0] == alone[0]
    assert apart[1] == alone[0]
    assert together[0].last_token_seconds > alone[0].last_token_seconds


def test_ranks_of_a_mixture_of_experts_wait_for_each_other(tmp_path: Path) -> None:
    long, short = Timeline(1500, 40, 0.0, 0.0, 0.0), Timeline(20, 40, 0.0, 0.0, 0.0)
    dense, mixture = (replayed(run_of(tmp_path, [long, short], 2, config)).timelines[1] for config in (DENSE, MIXTURE))
    assert mixture.first_token_seconds > 1.5 * dense.first_token_seconds
    assert len(replayed(run_of(tmp_path, [long, short], 2, MIXTURE)).windows) == 1


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.floats(0, 2), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sampled_from([DENSE, MIXTURE]),
    st.booleans(),
)
def test_every_request_ends_once_and_none_before_it_began(
    tmp_path_factory: pytest.TempPathFactory, arrivals: list[float], ranks: int, config: dict[str, Any], waits: bool
) -> None:
    run = run_of(tmp_path_factory.mktemp("run"), asked(sorted(arrivals)), ranks, config)
    simulated = replay(run, engine_limits(run), LAW, waits)
    least = sum(LAW.decode_seconds(1, 64) for _ in range(39))
    for recorded, timeline in zip(run.timelines, simulated.timelines, strict=True):
        assert timeline.first_token_seconds > recorded.queued_seconds
        assert timeline.last_token_seconds - timeline.first_token_seconds >= 0.999 * least
    gauges = simulated.gauges
    assert (gauges[-1].running, gauges[-1].waiting) == (0, 0)
    assert max(gauge.running + gauge.waiting for gauge in gauges) <= len(arrivals)


def test_requests_go_to_the_least_loaded_rank(tmp_path: Path) -> None:
    simulated = replayed(run_of(tmp_path, asked([0.0, 0.01, 0.02, 0.03]), 2))
    assert simulated.engines == (0, 1, 0, 1)


def test_the_law_of_two_engines_is_fitted_from_what_each_did(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    arrivals = np.cumsum(rng.exponential(0.05, 120))
    lengths = rng.integers(20, 300, (120, 2))
    asked_for = [Timeline(int(p), int(o), float(at), 0.0, 0.0) for at, (p, o) in zip(arrivals, lengths, strict=True)]
    run = run_of(tmp_path, asked_for, 2)
    measured = replace(run, timelines=replayed(run).timelines)
    law, _, _ = fit_law(measured, engine_limits(run), asynchronous=False)
    for decodes, kv in ((1, 200), (4, 1000), (8, 2400)):
        assert law.decode_seconds(decodes, kv) == pytest.approx(LAW.decode_seconds(decodes, kv), rel=0.05)


# -- experts ----------------------------------------------------------------------------------------------


def expert_seconds(tokens: float, activated: float) -> float:
    return 1e-5 + 2e-8 * tokens + 3e-6 * activated


TABLE = tuple(ExpertTime(n, a, expert_seconds(n, a)) for n in (1, 16, 256, 4096) for a in (2, 4, 8, 16) if a <= 2 * n)


@pytest.mark.parametrize(("ranks", "data_ranks"), [(1, 1), (2, 1), (2, 2), (4, 2)])
def test_experts_cost_what_the_tokens_that_meet_touch(ranks: int, data_ranks: int) -> None:
    experts = Experts(experts=16, active=2, ffn=256)
    layers = ExpertLayers(3, experts, ranks, data_ranks)
    for tokens in (64, 200, 1000):
        met = tokens * data_ranks
        here = met * (1 - (1 - 1 / ranks) ** 2)
        touched = 16 / ranks * experts.touched(met)
        expected = 3 * expert_seconds(here, touched)
        assert layers.seconds(TABLE, np.array([tokens]))[0] == pytest.approx(expected, rel=1e-6)


def write_tables(folder: Path, experts: str | None) -> Path:
    folder.mkdir(parents=True)
    names = ("embedding", "final_layernorm", "layernorm", "qkv_proj", "o_proj")
    dense = [f"{name},{n},{10 + n / 100}" for name in names for n in (1, 64, 4096)]
    heads = [f"{name},{n},{5 * n}" for name in ("lm_head", "sampler") for n in (1, 8)]
    decodes = [f"0,0,{n},{c},{5 + n * c / 1e4}" for n in (1, 4, 8) for c in (256, 1024, 4096)]
    prefill = [f"{t},{c},0,0,{5 + t * (t + 2 * c) / 1e4}" for t in (128, 1024) for c in (0, 512)]
    for name, header, rows in (
        ("dense", "layer,tokens,time_us", dense),
        ("per_sequence", "layer,sequences,time_us", heads),
        ("attention", "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", decodes + prefill),
    ):
        (folder / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    if experts is not None:
        (folder / "moe.csv").write_text(f"tokens,activated_experts,time_us\n{experts}")
    return folder


ROWS = "".join(f"{row.tokens},{row.activated},{row.seconds * 1e6}\n" for row in TABLE)


def write_run(folder: Path, config: dict[str, Any] | None, ranks: int = 2, requests: int = 60) -> Path:
    folder.mkdir()
    kwargs = {"max_num_seqs": 8, "max_num_batched_tokens": 2048, "data_parallel_size": ranks}
    (folder / "meta.json").write_text(json.dumps({"model": "lab/of-my-own", "engine_kwargs": kwargs}))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    lines = []
    for number, tokens in enumerate(rng.integers(20, 200, requests).tolist()):
        times = {
            "queued_ts": number * 0.3,
            "first_token_ts": number * 0.3 + 0.02,
            "last_token_ts": number * 0.3 + 0.01 * tokens + 0.02,
        }
        lines.append(json.dumps({"input_toks": 100 + tokens, "output_toks": tokens, **times}))
    (folder / "requests.jsonl").write_text("\n".join(lines))
    return folder


def test_a_mixtures_run_with_ranks_is_replayed_by_its_own_config(tmp_path: Path) -> None:
    write_tables(tmp_path / "kernel-tables" / "a100_lab_of-my-own_bf16_tp1", ROWS)
    folder = write_run(tmp_path / "a100_of-my-own", MIXTURE)
    (report,) = replay_report(folder).runs
    text = "\n".join(report.lines())
    assert text.startswith("a100_of-my-own: held out: requests 31 to 60")
    assert "2 data-parallel ranks in lockstep" in text
    assert "evenly over the experts" in text
    assert max(map(len, text.splitlines())) <= 80
    shape = step_shape(read_run(folder))
    assert shape == StepShape(4, shape.capture_sizes, ExpertLayers(4, Experts(16, 2, 256), 2, 2))


def test_dense_ranks_are_said_to_be_engines_of_their_own(tmp_path: Path) -> None:
    tables = write_tables(tmp_path / "tables", None)
    folder = write_run(tmp_path / "a100_of-my-own", None)
    (tmp_path / "shape.json").write_text(json.dumps(DENSE))
    (report,) = replay_report(folder, tables, tmp_path / "shape.json").runs
    assert any("2 data-parallel ranks each an engine of its own" in said for said in report.assumptions)


@pytest.mark.parametrize(("experts", "said"), [(None, "moe.csv"), ("1,2,nan\n", "moe.csv:2: time_us")])
def test_tables_of_experts_are_asked_for(tmp_path: Path, experts: str | None, said: str) -> None:
    tables = write_tables(tmp_path / "tables", experts)
    with pytest.raises(ParameterError, match=said):
        read_kernel_tables(tables).step_law(StepShape(4, (), ExpertLayers(4, Experts(16, 2, 256))))


def test_timelines_of_ranks_make_a_scenario_with_them(tmp_path: Path) -> None:
    for name, config, ranks in (("dense", DENSE, 1), ("mixture", MIXTURE, 2)):
        (tmp_path / name).mkdir()
        folder = write_run(tmp_path / name / "a100-sxm-80gb_of-my-own", config)
        _, scenario, profile = reproduce_requests(folder)
        assert (scenario.rollout.gpus, scenario.rollout.data_parallel) == (2, ranks)
        assert scenario.model == str(folder / "config.json")
        assert profile.tensor_parallel == 1


def test_a_term_at_its_bound_is_said() -> None:
    (said,) = bounds_hit(Terms(LARGEST_HOST_SECONDS, 1e-5))
    assert "host overhead is at its bound 0.02 s" in said
    assert list(bounds_hit(Terms(0.01, 1e-5))) == []
