"""Configurations of frameworks: what they mean here, and what is never done with them."""

from __future__ import annotations

import re
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rlsim.core.errors import ParameterError, ScenarioError
from rlsim.frameworks.imported import Imported, scenario_yaml
from rlsim.frameworks.importing import import_config
from rlsim.scenario.document import load
from rlsim.scenario.schema import Scenario


def read(text: str, framework: str, suffix: str) -> Imported:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"config{suffix}"
        path.write_text(text, encoding="utf-8")
        return import_config(path, framework)


def at(made: Imported, path: str) -> Any:
    node: Any = made.tree
    for key in path.split("."):
        node = node[key]
    return node


def says(made: Imported, **expected: Any) -> None:
    found = {path: at(made, path.replace("__", ".")) for path in expected}
    assert found == expected


VERL = """
max_response_length=$((1024 * 8))
max_tokens=$((max_response_length + 1024))
export n_gpus=4
python3 -m verl.experimental.fully_async_policy.fully_async_main \\
    data.max_prompt_length=1024 \\
    # data.max_prompt_length=2048 \\
    data.max_response_length=${max_response_length} \\
    actor_rollout_ref.model.path="${MODEL:-~/models/Qwen2.5-7B-Instruct}" \\
    actor_rollout_ref.rollout.n=16 \\
    ++actor_rollout_ref.actor.ppo_mini_batch_size=32 \\
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=${max_tokens} \\
    actor_rollout_ref.rollout.gpu_memory_utilization=${MEMORY} \\
    trainer.nnodes=2 trainer.n_gpus_per_node=$n_gpus \\
    rollout.nnodes=3 rollout.n_gpus_per_node=8 \\
    trainer.logger=['console','wandb'] \\
    async_training.staleness_threshold=0.5
"""


def test_a_script_of_verl_is_read_with_its_variables_and_the_defaults_of_verl() -> None:
    made = read(VERL, "verl", ".sh")
    says(
        made,
        policy__preset="verl-fully-async",
        policy__staleness_threshold=0.5,
        policy__trigger_parameter_sync_step=4,
        workload__prompts_per_step=32 * 1 * 4,
        workload__group_size=16,
        workload__response_tokens__cap_tokens=8192,
        trainer__gpus=8,
        trainer__micro_batch_tokens=9216,
        rollout__gpus=24,
        rollout__max_num_seqs=1024,
        cluster__gpus=32,
        model="Qwen2.5-7B-Instruct",
    )
    assert made.unresolved == {"actor_rollout_ref.rollout.gpu_memory_utilization": "$MEMORY"}
    assert at(made, "rollout.gpu_memory_utilization") == 0.5, "what is not worked out is left to the default"
    assert made.ignored == ["trainer.logger"]


AREAL = """
actor: {path: Qwen/Qwen3-8B, ppo_n_minibatches: 4, backend: "megatron:d2p2t2", kl_ctl: 0.0}
rollout:
  backend: "sglang:d4t2"
  max_concurrent_rollouts: 256
  consumer_batch_size: ${train_dataset.batch_size}
  max_head_offpolicyness: ${lag}
lag: 2
gconfig: {n_samples: 4, max_new_tokens: "${actor.longest}"}
train_dataset: {batch_size: 256, max_length: 1024}
"""


def test_a_file_of_areal_is_read_and_references_inside_it_are_followed() -> None:
    made = read(AREAL, "areal", ".yaml")
    says(
        made,
        policy__preset="areal",
        policy__max_head_offpolicyness=2,
        policy__max_concurrent_rollouts=256,
        rollout__gpus=8,
        rollout__tensor_parallel=2,
        trainer__gpus=8,
        trainer__pipeline_parallel=2,
        trainer__updates_per_step=4,
        workload__prompts_per_step=256,
        trainer__reference=False,
    )
    assert made.unresolved == {"gconfig.max_new_tokens": "${actor.longest}"}


def test_the_older_allocation_of_areal_means_the_same() -> None:
    older = AREAL.replace(', backend: "megatron:d2p2t2"', "").replace('backend: "sglang:d4t2"', "x: 1")
    made = read(f"allocation_mode: sglang:d4t2+d2p2t2\n{older}", "areal", ".yaml")
    says(made, rollout__gpus=8, rollout__tensor_parallel=2, trainer__gpus=8, trainer__pipeline_parallel=2)


SLIME = """
ROLLOUT_ARGS=(
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   # --n-samples-per-prompt 4
   --rollout-max-response-len 8192
   --global-batch-size 128
   --balance-data
)
ray job submit -- python3 train_async.py --hf-checkpoint models/Qwen3-4B \\
   --actor-num-gpus-per-node 4 --rollout-num-gpus 12 ${ROLLOUT_ARGS[@]}
"""


def test_the_flags_of_slime_are_read_from_arrays_and_its_program_tells_the_mode() -> None:
    made = read(SLIME, "slime", ".sh")
    says(
        made,
        policy__preset="slime-train-async",
        model="Qwen3-4B",
        workload__prompts_per_step=32,
        trainer__updates_per_step=2,
        trainer__balance="lpt",
        trainer__gpus=4,
        rollout__gpus=12,
    )
    april = SLIME.replace("train_async.py", "train.py --colocate --partial-rollout --over-sampling-batch-size 48")
    assert read(april, "slime", ".sh").preset == "slime-april"
    assert read(SLIME.replace("train_async.py", "train.py --colocate"), "slime", ".sh").preset == "slime-sync"
    assert read(SLIME.replace("train_async.py", "train.py"), "slime", ".sh").preset == "sync-disaggregated"


NEMO = """
grpo:
  num_prompts_per_step: 64
  num_generations_per_prompt: 32
  async_grpo: {enabled: true, max_trajectory_age_steps: 1, in_flight_weight_updates: true}
policy:
  model_name: meta-llama/Llama-3.1-8B-Instruct
  max_total_sequence_length: 4096
  generation:
    max_new_tokens: ${policy.max_total_sequence_length}
    vllm_cfg: {max_model_len: "${policy.max_total_sequence_length}"}
    colocated: {enabled: false, resources: {num_nodes: 1, gpus_per_node: 8}}
  sequence_packing: {train_mb_tokens: "${mul:${policy.max_total_sequence_length}, 4}"}
data: {max_input_seq_length: "${policy.max_total_sequence_length}"}
cluster: {num_nodes: 2, gpus_per_node: 8}
"""


def test_a_file_of_nemo_rl_gives_the_nodes_left_to_the_trainer_and_caps_that_fit_the_engine() -> None:
    made = read(NEMO, "nemo-rl", ".yaml")
    says(
        made,
        policy__preset="nemo-rl-async",
        policy__in_flight_weight_updates=True,
        rollout__gpus=8,
        trainer__gpus=8,
        trainer__updates_per_step=64 * 32 // 512,
        rollout__max_model_len=4096,
    )
    caps = [at(made, f"workload.{name}_tokens.cap_tokens") for name in ("prompt", "response")]
    assert caps == [4096, 4096], "as written: the engine cuts at its own limit"
    says(made, trainer__micro_batch_tokens=4 * 4096)
    assert not made.unresolved
    assert made.refused == []


def test_a_file_of_prime_rl_counts_samples_and_its_older_names_are_read() -> None:
    newer = '[model]\nname = "Qwen/Qwen3-4B"\n'
    newer += "[orchestrator]\nbatch_size = 512\ngroup_size = 16\nmax_off_policy_steps = 16\n"
    newer += '[deployment]\ntype = "multi_node"\nnum_train_nodes = 2\nnum_infer_nodes = 3\n'
    made = read(newer + "[inference.vllm]\ntensor_parallel_size = 8\n", "prime-rl", ".toml")
    says(made, workload__prompts_per_step=32, policy__max_off_policy_steps=16, trainer__gpus=16, rollout__gpus=24)
    assert at(made, "rollout.tensor_parallel") == 8
    older = read(newer + "[inference.parallel]\ntp = 4\n", "prime-rl", ".toml")
    assert at(older, "rollout.tensor_parallel") == 4, "a name of earlier versions wins over a default of later ones"


def test_a_command_of_trl_gives_the_batch_from_devices_and_steps() -> None:
    text = (
        "accelerate launch --num_processes 4 grpo.py --model_name_or_path Qwen/Qwen3-8B --vllm_mode colocate "
        "--per_device_train_batch_size 8 --gradient_accumulation_steps 2 --steps_per_generation 8 "
        "--num_generations 16 --beta 0.04 --num_iterations 2"
    )
    says(
        read(text, "trl", ".sh"),
        policy__preset="trl-colocate",
        workload__prompts_per_step=8 * 8 * 4 // 16,
        trainer__updates_per_step=8 // 2,
        trainer__epochs=2,
        trainer__reference=True,
        rollout__gpus=4,
        workload__response_tokens__cap_tokens=512,
    )


def test_a_key_that_says_nothing_alone_is_told_with_what_it_needs() -> None:
    made = read("rollout_batch_size: 512\npretrain: Qwen/Qwen3-4B\n", "roll", ".yaml")
    assert made.incomplete == {"rollout_batch_size": "actor_train.device_mapping"}
    assert {"workload.prompts_per_step", "workload.group_size", "trainer.gpus"} <= {one.path for one in made.assumed}


def test_asynchronous_trl_is_told_by_its_bound() -> None:
    text = (
        "async_grpo.py --model_name_or_path Qwen/Qwen3-8B --num_processes 2 --max_staleness 3 --max_inflight_tasks 64"
    )
    made = read(text, "trl", ".sh")
    says(made, policy__preset="trl-async-grpo", policy__max_staleness=3, policy__max_inflight_tasks=64)
    assert at(made, "workload.response_tokens.cap_tokens") == 2048


def test_devices_of_roll_are_counted_without_running_the_expression() -> None:
    text = """
pretrain: Qwen/Qwen3-8B
rollout_batch_size: 64
num_return_sequences_in_group: 8
response_length: 4096
prompt_length: 2048
async_generation_ratio: 1
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 32}
  strategy_args: {strategy_config: {tensor_model_parallel_size: 2}}
  device_mapping: list(range(0,16))
actor_infer: {device_mapping: [16, 17, 18, 19], num_gpus_per_worker: 2}
"""
    made = read(text, "roll", ".yaml")
    says(made, policy__preset="roll-rlvr-async", trainer__gpus=16, rollout__gpus=4, trainer__updates_per_step=2)
    unread = read(text.replace("list(range(0,16))", "__import__('os').getpid()"), "roll", ".yaml")
    assert any("allowed: a list of devices, or list(range(first,end))" in fault for fault in unread.faults)
    assert at(unread, "workload.response_tokens.cap_tokens") == 4096, "the rest is read"


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    script = VERL.replace("${max_response_length}", f"$(touch {trap})").replace("=2 ", f"=`touch {trap}` ")
    script += f"\nX=$((__import__('os').mkdir('{trap}')))\n"
    made = read(script, "verl", ".sh")
    assert not trap.exists()
    assert made.unresolved["data.max_response_length"].startswith("$(touch")
    target = AREAL.replace("lag: 2", f"lag: ${{oc.env:HOME}}\nx: {{_target_: os.mkdir, path: {trap}}}")
    made = read(target, "areal", ".yaml")
    assert not trap.exists()
    assert made.unresolved["rollout.max_head_offpolicyness"] == "${lag}"
    assert "x._target_" in made.ignored
    with pytest.raises(ScenarioError, match="tag"):
        read(f"actor: !!python/object/apply:os.mkdir [{trap}]", "areal", ".yaml")
    with pytest.raises(ParameterError, match="programs are not run"):
        read("config = {}", "verl", ".py")
    assert not trap.exists()


def test_references_in_a_circle_end() -> None:
    made = read(AREAL.replace("lag: 2", "lag: ${rollout.max_head_offpolicyness}"), "areal", ".yaml")
    assert "rollout.max_head_offpolicyness" in made.unresolved


def test_what_is_assumed_is_marked_in_the_file_and_told_and_varied(tmp_path: Path) -> None:
    made = read(VERL, "verl", ".sh")
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario_yaml(made))
    scenario = load(path).resolve()
    assert scenario == Scenario.model_validate(made.tree)
    lines = path.read_text().splitlines()
    for guess in made.assumed:
        key = guess.path.rpartition(".")[2]
        assert any(key in line and "# assumed" in line for line in lines), guess
        assert any(line.startswith(f"ASSUMED: {guess.path} = ") for line in made.report())
    assert {one.key for one in scenario.sensitivity} == {
        "workload.response_tokens.mean_tokens",
        "workload.response_tokens.sigma",
    }


def test_a_contradiction_names_the_keys_of_the_framework() -> None:
    made = read(SLIME.replace("128", "100"), "slime", ".sh")
    assert len(made.faults) == 1
    assert re.search(r"config\.sh:3: rollout-batch-size = 32.*allowed: a mini-batch that divides 256", made.faults[0])


def test_a_file_of_something_else_is_refused_with_what_it_has() -> None:
    with pytest.raises(ScenarioError, match=r"found lights\.on; allowed: a configuration of areal with actor\.path"):
        read("lights: {on: 1}", "areal", ".yaml")


MEGATRON = "a.b.main_ppo actor_rollout_ref.actor.megatron.optimizer_offload=True data.train_batch_size=64"


def test_the_active_backend_decides_which_keys_count() -> None:
    made = read(f"{MEGATRON} actor_rollout_ref.actor.fsdp_config.optimizer_offload=False", "verl", ".sh")
    says(made, trainer__optimizer_offload=True)
    assert made.backends[0] == "Megatron"
    assert made.inactive == {"FSDP": ["actor_rollout_ref.actor.fsdp_config.optimizer_offload"]}
    other = read(f"{MEGATRON} actor_rollout_ref.actor.strategy=fsdp2", "verl", ".sh")
    says(other, trainer__optimizer_offload=False)
    assert other.inactive == {"Megatron": ["actor_rollout_ref.actor.megatron.optimizer_offload"]}


def test_micro_batches_of_verl_are_tokens_or_samples_and_padded_where_padding_stays() -> None:
    lengths = "data.max_prompt_length=1000 data.max_response_length=6000 data.train_batch_size=64"
    sizes = f"m.py {lengths} actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"
    packing = "actor_rollout_ref.model.use_remove_padding"
    padded = read(f"{sizes} {packing}=False actor_rollout_ref.actor.use_dynamic_bsz=False", "verl", ".sh")
    says(padded, trainer__micro_batch_tokens=2 * 7000, trainer__packing="padded")
    dynamic = (
        f"{sizes} actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=9000"
    )
    says(read(dynamic, "verl", ".sh"), trainer__micro_batch_tokens=9000, trainer__packing="packed")


def test_an_optimizer_on_the_host_is_told_by_either_key_of_megatron() -> None:
    host = "actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True"
    made = read(f"m.py data.train_batch_size=256 actor_rollout_ref.actor.strategy=megatron +{host}", "verl", ".sh")
    says(made, trainer__optimizer_offload=True, trainer__activation_recompute=False)


def test_the_shipped_profile_of_model_gpu_and_split_is_chosen_over_a_roofline() -> None:
    path = "m.py data.train_batch_size=256 actor_rollout_ref.model.path=Qwen/Qwen2.5-Math-7B"
    split = "actor_rollout_ref.rollout.tensor_model_parallel_size"
    made = read(f"{path} {split}=2", "verl", ".sh")
    says(made, rollout__step_time__source="profile", rollout__step_time__profile="qwen2.5-7b_h100-sxm_tp2")
    assert at(read(f"{path} {split}=4", "verl", ".sh"), "rollout.step_time.source") == "roofline"


def test_a_model_in_a_folder_that_only_the_environment_knows_is_told_by_its_name() -> None:
    made = read("m.py data.train_batch_size=256 actor_rollout_ref.model.path=$HOME/models/Qwen3-8B", "verl", ".sh")
    says(made, model="Qwen3-8B")
    assert not made.unresolved


@pytest.mark.parametrize(
    ("words", "preset"),
    [
        ("verl.experimental.fully_async_policy.fully_async_main", "verl-fully-async"),
        ("verl.experimental.one_step_off_policy.main_ppo", "verl-one-step-off"),
        ("verl.trainer.main_ppo", "verl-sync"),
        ("verl.trainer.main_ppo rollout.nnodes=1", "verl-one-step-off"),
    ],
)
def test_the_program_of_verl_tells_the_mode(words: str, preset: str) -> None:
    assert read(f"python3 -m {words} data.max_prompt_length=256", "verl", ".sh").preset == preset


def test_what_is_missing_is_one_sentence() -> None:
    made = read("m.py data.train_batch_size=64 actor_rollout_ref.model.path=$BASE_MODEL", "verl", ".sh")
    assert len(made.refused) == 1
    assert made.refused[0].startswith("model: missing: ")
    assert "BASE_MODEL" in made.refused[0]
    assert not made.ignored
    assert len(made.refused[0]) < 200


def test_a_scenario_that_cannot_run_is_written_with_the_reason() -> None:
    made = read(AREAL.replace("Qwen/Qwen3-8B", "acme/Nemo-9B"), "areal", ".yaml")
    assert any("Nemo-9B" in fault for fault in made.refused)
    assert at(made, "rollout.step_time.source") == "roofline"


BASE = "policy: {model_name: Qwen/Qwen3-8B, max_total_sequence_length: 512, megatron_cfg: {enabled: false}}\n"
CHILD = """
defaults: ../base.yaml
grpo: {num_prompts_per_step: 16, num_generations_per_prompt: 8}
policy:
  train_global_batch_size: 64
  max_total_sequence_length: 2048
  megatron_cfg: {enabled: true, expert_model_parallel_size: 4, tensor_model_parallel_size: 2}
  dtensor_cfg: {tensor_parallel_size: 8}
  generation:
    max_new_tokens: ${policy.max_total_sequence_length}
    colocated: {enabled: false, resources: {gpus_per_node: 4}}
cluster: {gpus_per_node: 8, num_nodes: 1}
"""


def test_a_recipe_is_read_over_its_parent_and_the_backend_that_is_enabled_counts(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "base.yaml").write_text(BASE)
    child = tmp_path / "recipes" / "child.yaml"
    child.write_text(CHILD)
    made = import_config(child, "nemo-rl")
    says(
        made,
        model="Qwen3-8B",
        policy__preset="sync-disaggregated",
        trainer__tensor_parallel=2,
        trainer__expert_parallel=4,
        trainer__gpus=4,
        rollout__gpus=4,
        trainer__updates_per_step=2,
        workload__response_tokens__cap_tokens=2048,
        rollout__max_model_len=2048,
    )
    assert made.inactive == {"DTensor": ["policy.dtensor_cfg.tensor_parallel_size"]}
    child.write_text(CHILD.replace("../base.yaml", "absent.yaml"))
    alone = import_config(child, "nemo-rl")
    assert any("absent.yaml is not beside the file" in fault for fault in alone.faults)
    assert any(fault.startswith("model: missing") for fault in alone.refused)


EXPERTS = """
rollout: {backend: "sglang:d2t4p1"}
actor: {backend: "megatron:(attn:d1p1t2c2|ffn:d1p1e4)"}
"""


def test_anchors_and_merge_keys_of_yaml_are_followed() -> None:
    text = "x: &base {n_samples: 4, max_new_tokens: 2000}\ngconfig: {<<: *base, n_samples: 8}\n"
    says(read(text, "areal", ".yaml"), workload__group_size=8, workload__response_tokens__cap_tokens=2000)
    bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{below}'] * 10)}]\n" for below, name in pairwise("abcdefgh")
    )
    with pytest.raises(ScenarioError, match="more values than a scenario needs; allowed: at most 100000"):
        read(bomb, "areal", ".yaml")


@pytest.mark.parametrize(
    ("text", "rollout", "trainer"),
    [
        ("allocation_mode: sglang.d4p1m1+d2p2m1", (4, 1, 1), (4, 1, 2, 1, 1)),
        ("allocation_mode: vllm:d2t4+megatron:d1p2t2c2", (8, 4, 1), (8, 2, 2, 2, 1)),
        ("allocation_mode: 'sglang[rollout]:d8|fsdp[actor]:d8'", (8, 1, 1), (8, 1, 1, 1, 1)),
        (
            "rollout: {backend: 'sglang:d2t4p1'}\nactor: {backend: 'megatron:(attn:d1p1t2c2|ffn:d1p1e4)'}",
            (8, 4, 1),
            (4, 2, 1, 2, 4),
        ),
    ],
)
def test_allocation_strings_of_areal_of_all_versions(
    text: str, rollout: tuple[int, ...], trainer: tuple[int, ...]
) -> None:
    made = read(f"{text}\ntrain_dataset: {{batch_size: 16}}\n", "areal", ".yaml")
    assert tuple(at(made, f"rollout.{key}") for key in ("gpus", "tensor_parallel", "pipeline_parallel")) == rollout
    keys = ("gpus", "tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
    assert tuple(at(made, f"trainer.{key}") for key in keys) == trainer
    assert made.preset == ("sync-colocated" if "|fsdp" in text else "areal")


def test_an_allocation_that_is_not_understood_is_a_line_and_the_rest_is_read() -> None:
    made = read("allocation_mode: warp9\ntrain_dataset: {batch_size: 16}\n", "areal", ".yaml")
    assert any(re.search(r"config\.yaml:1: allocation_mode = 'warp9'; allowed: ", fault) for fault in made.faults)
    says(made, workload__prompts_per_step=16)


ROLL = """
pretrain: Qwen/Qwen3-8B
rollout_batch_size: 32
num_return_sequences_in_group: 4
actor_train:
  training_args: {per_device_train_batch_size: 1, gradient_accumulation_steps: 32}
  strategy_args:
    strategy_name: megatron_train
    strategy_config: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2}
  device_mapping: [0, 1, 2, 3]
actor_infer: {device_mapping: "list(range(4,6))"}
"""


def test_the_devices_of_roll_tell_who_shares_them() -> None:
    apart = read(ROLL, "roll", ".yaml")
    says(apart, policy__preset="sync-disaggregated", trainer__gpus=4, rollout__gpus=2, trainer__updates_per_step=4)
    assert apart.refused == []
    shared = read(ROLL.replace("list(range(4,6))", "list(range(0,2))+[3]"), "roll", ".yaml")
    says(shared, policy__preset="roll-rlvr-sync-queue", trainer__gpus=4, rollout__gpus=3, cluster__gpus=4)
    assert shared.refused == []
    agentic = read(
        f"{ROLL}async_generation_ratio: 1\ntrain_env_manager: {{group_size: 8, num_env_groups: 4}}", "roll", ".yaml"
    )
    says(agentic, policy__preset="roll-agentic", workload__prompts_per_step=4, workload__group_size=8)


def test_a_model_that_does_not_fit_the_assumed_gpu_is_put_on_a_larger_one() -> None:
    large = "m.py data.train_batch_size=256 actor_rollout_ref.model.path=Qwen/Qwen2.5-72B"
    split = (
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.gpu_memory_utilization=0.7"
    )
    made = read(f"{large} {split}", "verl", ".sh")
    says(made, cluster__device="H200-SXM")
    assert made.refused == []


def test_a_model_that_fits_no_gpu_in_two_bytes_is_assumed_to_have_smaller_weights() -> None:
    rollout = "actor_rollout_ref.rollout"
    large = "m.py data.train_batch_size=256 actor_rollout_ref.model.path=moonshotai/Kimi-K2-Instruct"
    made = read(f"{large} {rollout}.tensor_model_parallel_size=8 {rollout}.gpu_memory_utilization=0.9", "verl", ".sh")
    assert made.refused == []
    assert [one.reason for one in made.assumed if one.path == "rollout.kv_blocks"] == [
        "weights of 1 bytes a parameter: with 2 nothing fits"
    ]


def test_older_names_of_prime_rl_count_and_a_replica_may_span_nodes() -> None:
    older = "[orchestrator]\nbatch_size = 96\nrollouts_per_example = 12\n[inference]\ngpu_memory_utilization = 0.7\n"
    says(
        read(older, "prime-rl", ".toml"),
        workload__prompts_per_step=8,
        workload__group_size=12,
        rollout__gpu_memory_utilization=0.7,
    )
    nodes = "[deployment]\nnum_train_nodes = 2\nnum_infer_replicas = 2\ngpus_per_node = 4\n"
    nodes += "[inference.deployment]\nprefill_nodes_per_replica = 1\ndecode_nodes_per_replica = 1\n"
    nodes += "[inference.vllm]\nenable_expert_parallel = true\n"
    made = read(nodes, "prime-rl", ".toml")
    says(made, rollout__gpus=16, trainer__gpus=8, rollout__data_parallel=4, rollout__expert_parallel=4)
