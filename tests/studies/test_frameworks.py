"""Scenarios as configurations of frameworks, and back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evidence.docs_pages import frameworks_page
from evidence.site import generated
from rlsim.core.errors import ParameterError
from rlsim.frameworks.exporting import backends_for, export_config, scenario_values
from rlsim.frameworks.imported import Imported
from rlsim.frameworks.importing import import_config
from rlsim.frameworks.mapping import Mode
from rlsim.frameworks.registry import FRAMEWORKS
from rlsim.presets import load_preset, preset_names
from rlsim.resolve import resolve
from rlsim.scenario.schema import Scenario

SUFFIX = {"yaml": ".yaml", "toml": ".toml", "hydra": ".sh", "flags": ".sh"}
MODES = [(name, mode) for name, found in FRAMEWORKS.items() for mode in found.modes]


def read(text: str, framework: str, suffix: str) -> Imported:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"config{suffix}"
        path.write_text(text, encoding="utf-8")
        return import_config(path, framework)


def sized(preset: str, shared: bool, **changes: Any) -> dict[str, Any]:
    """A scenario that every framework can express, as nested mappings."""
    tree: dict[str, Any] = {
        "name": "exported",
        "model": "Qwen3-8B",
        "cluster": {"device": "H100-SXM", "gpus": 8 if shared else 16},
        "rollout": {"gpus": 8, "max_model_len": 8192, "step_time": {"source": "roofline"}},
        "trainer": {"gpus": 8, "mfu": 0.4},
        "workload": {
            "prompts_per_step": 32,
            "group_size": 8,
            "prompt_tokens": {"law": "constant", "tokens": 100, "cap_tokens": 512},
            "response_tokens": {"law": "lognormal", "mean_tokens": 800, "sigma": 0.8, "cap_tokens": 4096},
        },
        "policy": {"preset": preset},
        "run": {"steps": 3, "warmup_steps": 1},
    }
    for path, value in changes.items():
        section, _, key = path.partition("__")
        tree[section][key] = value
    return tree


@st.composite
def scenarios(draw: st.DrawFn, mode: Mode) -> Scenario:
    """Scenarios of a mode: sizes are powers of two, so that whatever must divide does."""
    split = draw(st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 1, 2)]))
    train = draw(st.sampled_from([4, 8, 16]))
    infer = train if mode.shares_gpus else draw(st.sampled_from([2, 4, 24]))
    tree = sized(mode.preset, mode.shares_gpus)
    tree["cluster"]["gpus"] = train if mode.shares_gpus else train + infer
    tree["model"] = draw(st.sampled_from(["Qwen3-8B", "Llama-3.1-8B", "Qwen2.5-7B"]))
    tree["rollout"] |= {
        "gpus": infer,
        "tensor_parallel": draw(st.sampled_from([1, 2])),
        "max_num_seqs": draw(st.sampled_from([64, 256, 1024])),
        "gpu_memory_utilization": draw(st.sampled_from([0.5, 0.85])),
        "max_model_len": draw(st.sampled_from([5000, 8192])),
        "enable_prefix_caching": draw(st.booleans()),
        "scheduling_policy": draw(st.sampled_from(["fcfs", "priority"])),
    }
    tree["trainer"] |= {
        "gpus": train,
        **dict(zip(("tensor_parallel", "pipeline_parallel", "context_parallel"), split, strict=True)),
        "updates_per_step": draw(st.sampled_from([1, 2, 4])),
        "epochs": draw(st.sampled_from([1, 2])),
        "micro_batch_tokens": draw(st.sampled_from([8192, 16384])),
        "old_log_prob": draw(st.booleans()),
        "reference": draw(st.booleans()),
        "activation_recompute": draw(st.booleans()),
        "balance": draw(st.sampled_from(["none", "lpt"])),
        "critic": draw(st.booleans()),
    }
    tree["workload"] |= {
        "prompts_per_step": draw(st.sampled_from([32, 64, 128])),
        "group_size": draw(st.sampled_from([4, 16])),
    }
    tree["policy"] |= {
        name: draw(values(name, found.default)) for name, found in load_preset(mode.preset).parameters.items()
    }
    fit_mini_batch(tree)
    return Scenario.model_validate(tree)


def values(name: str, default: Any) -> st.SearchStrategy[Any]:
    """Values of a parameter of the kind of its default."""
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, str):
        return st.sampled_from(["drop", "wait"])
    if isinstance(default, float):
        return st.sampled_from([1.0, 1.5, 3.0])
    if name in ("over_sampling_batch_size", "max_concurrent_rollouts"):
        return st.sampled_from([128, 256])
    return st.sampled_from([1, 2])


def fit_mini_batch(tree: dict[str, Any]) -> None:
    """verl's asynchronous modes: a step is so many mini-batches, and as many updates."""
    policy = tree["policy"]
    if "ppo_mini_batch_size" in policy:
        parts = policy.get("trigger_parameter_sync_step", 1) * policy.get("require_batches", 1)
        parts *= policy.get("parameter_sync_step", 1)
        policy["ppo_mini_batch_size"] = tree["workload"]["prompts_per_step"] // parts
        tree["trainer"]["updates_per_step"] = parts


@pytest.mark.parametrize(("framework", "mode"), MODES, ids=lambda value: getattr(value, "preset", value))
@given(data=st.data())
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_exported_is_imported_as_the_same_scenario(framework: str, mode: Mode, data: st.DataObject) -> None:
    found = FRAMEWORKS[framework]
    scenario = data.draw(scenarios(mode))
    exported = export_config(scenario, framework)
    made = read(exported.text, framework, SUFFIX[found.format])
    assert made.preset == mode.preset, exported.text
    again = scenario_values(Scenario.model_validate(made.tree))
    before = scenario_values(scenario)
    rows = found.rows_of(found.mode(mode.preset) or mode, backends_for(found, before))
    written = {path for row in rows if not row.legacy for path in row.paths}
    assert {path: again[path] for path in written} == {path: before[path] for path in written}
    assert not made.ignored
    assert not made.unresolved


@pytest.mark.parametrize(("framework", "mode"), MODES, ids=lambda value: getattr(value, "preset", value))
def test_every_mode_is_a_preset_and_every_key_stands_for_one_that_is_there(framework: str, mode: Mode) -> None:
    assert mode.preset in preset_names()
    parameters = {f"policy.{name}" for name in load_preset(mode.preset).parameters}
    schema = scenario_values(Scenario.model_validate(sized(mode.preset, mode.shares_gpus))).keys() | parameters
    found = FRAMEWORKS[framework]
    for row in found.rows_of(mode, (*found.trainers, *found.engines)):
        assert schema >= set(row.paths)


@pytest.mark.parametrize(("framework", "mode"), MODES, ids=lambda value: getattr(value, "preset", value))
def test_a_mode_with_the_defaults_of_its_preset_can_be_planned_after_the_round_trip(framework: str, mode: Mode) -> None:
    overs = {"policy__over_sampling_batch_size": 48} if mode.preset == "slime-april" else {}
    scenario = Scenario.model_validate(sized(mode.preset, mode.shares_gpus, **overs))
    made = read(export_config(scenario, framework).text, framework, SUFFIX[FRAMEWORKS[framework].format])
    assert made.refused == []
    resolve(Scenario.model_validate(made.tree))


def test_a_policy_of_another_framework_is_refused_with_those_that_can_be_expressed() -> None:
    scenario = Scenario.model_validate(sized("areal", False))
    with pytest.raises(ParameterError, match=r"policy\.preset: found 'areal'.*verl-fully-async"):
        export_config(scenario, "verl")
    own = sized("areal", False, policy__parts={"dispatch": {"use": "round-robin"}})
    with pytest.raises(ParameterError, match=r"policy\.parts: found 'dispatch'"):
        export_config(Scenario.model_validate(own), "areal")
    with pytest.raises(ParameterError, match="did you mean 'verl'"):
        export_config(scenario, "verll")


def test_sizes_that_a_framework_cannot_have_are_refused() -> None:
    uneven = sized("verl-fully-async", False, workload__prompts_per_step=30)
    with pytest.raises(ParameterError, match="trigger_parameter_sync_step prompts a step"):
        export_config(Scenario.model_validate(uneven), "verl")
    plain = sized("slime-april", True, policy__partial_rollout=False)
    with pytest.raises(ParameterError, match="the preset slime-sync"):
        export_config(Scenario.model_validate(plain), "slime")


def test_what_a_framework_has_no_key_for_is_told() -> None:
    scenario = Scenario.model_validate(sized("areal", False, rollout__block_size=32))
    told = list(export_config(scenario, "areal").report())
    assert "no key for: rollout.block_size" in told
    assert "no key for: trainer.mfu" in told
    assert not any("cluster.gpus" in line or "rollout.gpus" in line or "run." in line for line in told)


def test_the_documentation_is_the_tables() -> None:
    documented = generated()["reference/frameworks.md"]()
    assert documented == frameworks_page()
    assert not [row for found in FRAMEWORKS.values() for row in found.rows if f"`{row.keys[0].name}`" not in documented]
