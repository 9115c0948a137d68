"""Frameworks that are launched by flags or overrides: what a command means, at the version that its keys betray."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlsim.core.errors import ParameterError, ScenarioError
from rlsim.frameworks.exporting import export_config
from rlsim.frameworks.imported import Imported, scenario_yaml
from rlsim.frameworks.importing import import_config, nested
from rlsim.frameworks.registry import FRAMEWORKS
from rlsim.frameworks.writing import yaml_text
from rlsim.scenario.schema import Scenario


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def read(folder: Path, text: str, framework: str, suffix: str = ".sh") -> Imported:
    path = folder / f"config{suffix}"
    path.write_text(text, encoding="utf-8")
    return import_config(path, framework)


def at(made: Imported, path: str) -> Any:
    node: Any = made.tree
    for key in path.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    return node


def says(made: Imported, **expected: Any) -> None:
    assert {path: at(made, path.replace("__", ".")) for path in expected} == expected


SLIME = """
BATCH=(
   --rollout-batch-size 40
   --n-samples-per-prompt 5
   --rollout-max-response-len 2500
)
python3 train.py --hf-checkpoint /data/Qwen3-8B --actor-num-nodes 1 --actor-num-gpus-per-node 4 --colocate ${BATCH[@]}
"""


def test_a_flag_before_an_array_does_not_take_its_words(folder: Path) -> None:
    made = read(folder, SLIME, "slime")
    says(made, policy__preset="slime-sync", cluster__gpus=4, rollout__gpus=4, workload__prompts_per_step=40)
    assert made.ignored == []


def test_steps_of_a_rollout_are_its_updates(folder: Path) -> None:
    flags = "--num-steps-per-rollout 4 --use-dynamic-batch-size --max-tokens-per-gpu 3000 --context-parallel-size 2"
    made = read(folder, SLIME.replace("--colocate", f"--colocate {flags} --kl-coef 0.01"), "slime")
    says(made, trainer__updates_per_step=4, trainer__micro_batch_tokens=6000, trainer__context_parallel=2)
    says(made, trainer__reference=True, trainer__optimizer_offload=False)
    both = SLIME.replace("--colocate", "--colocate --num-steps-per-rollout 4 --global-batch-size 50")
    says(read(folder, both, "slime"), trainer__updates_per_step=4)


def test_engines_of_slime_may_be_more_than_its_trainer_and_those_of_miles_never(folder: Path) -> None:
    text = SLIME.replace(
        "--colocate", "--colocate --rollout-num-gpus 8 --rollout-num-gpus-per-engine 4 --sglang-pp-size 2"
    )
    made = read(folder, text, "slime")
    says(made, cluster__gpus=8, trainer__gpus=4, rollout__tensor_parallel=2, rollout__pipeline_parallel=2)
    other = read(folder, text, "miles")
    says(other, cluster__gpus=4, rollout__gpus=4)
    assert other.unmodelled == ["rollout-num-gpus = 8: without effect with colocate"]


def test_the_training_backend_decides_which_offload_counts(folder: Path) -> None:
    text = SLIME.replace("--colocate", "--colocate --optimizer-cpu-offload --train-backend fsdp")
    made = read(folder, text, "miles")
    assert (made.backends, made.inactive) == (("FSDP",), {"Megatron": ["optimizer-cpu-offload"]})
    says(made, trainer__optimizer_offload=False)
    full = read(folder, text.replace("--optimizer-cpu-offload", "--fsdp-cpu-offload"), "miles")
    says(full, trainer__optimizer_offload=True, trainer__weights_offload=True)
    says(read(folder, text.replace("fsdp", "megatron"), "miles"), trainer__optimizer_offload=True)


def test_the_model_is_that_of_the_script_that_is_sourced_where_the_checkpoint_does_not_tell(folder: Path) -> None:
    text = f'source "$HERE/models/qwen3-8B.sh"\n{SLIME}'
    says(read(folder, text.replace("/data/Qwen3-8B", "$CHECKPOINT"), "slime"), model="qwen3-8B")
    says(read(folder, text.replace("/data/Qwen3-8B", "/data/Llama-3.1-8B/"), "slime"), model="Llama-3.1-8B")


FULLY_ASYNC = (
    "python3 train_async.py --rollout-function-path fully_async_rollout.generate_rollout_fully_async "
    "--hf-checkpoint m/Qwen3-4B --actor-num-gpus-per-node 2 --rollout-num-gpus 6 --rollout-batch-size 24 "
    "--n-samples-per-prompt 4 --max-weight-staleness 3"
)


def test_a_bound_of_miles_is_honoured_by_miles_and_said_by_slime(folder: Path) -> None:
    made = read(folder, FULLY_ASYNC, "miles")
    says(made, policy__preset="miles-fully-async", policy__max_weight_staleness=3, rollout__gpus=6, trainer__gpus=2)
    says(made, policy__pause_generation_mode="retract")
    flag = FULLY_ASYNC.replace(
        "--rollout-function-path fully_async_rollout.generate_rollout_fully_async", "--fully-async"
    )
    says(read(folder, flag, "miles"), policy__preset="miles-fully-async")
    says(
        read(folder, FULLY_ASYNC.replace("fully_async_rollout.gen", "plain.gen_"), "miles"),
        policy__preset="slime-train-async",
    )
    told = read(folder, FULLY_ASYNC, "slime").unmodelled
    assert told == ["max-weight-staleness = 3: a key of miles: import with --from miles"]


SKYRL = """
: "${GPUS:=4}"
: "${STALE:=2}"
uv run -m examples.train.fully_async.main_fully_async \\
  trainer.fully_async.max_staleness_steps=${STALE} trainer.placement.colocate_all=false \\
  trainer.fully_async.num_parallel_generation_workers=$(( 64 * (STALE + 1) )) \\
  trainer.policy.model.path="Qwen/Qwen2.5-7B" trainer.placement.policy_num_gpus_per_node=$GPUS \\
  generator.inference_engine.num_engines=2 generator.inference_engine.tensor_parallel_size=2 \\
  trainer.train_batch_size=128 trainer.policy_mini_batch_size=64 generator.n_samples_per_prompt=6
"""


def test_a_step_of_fully_asynchronous_skyrl_is_a_mini_batch(folder: Path) -> None:
    made = read(folder, SKYRL, "skyrl")
    says(
        made,
        policy__preset="skyrl-fully-async",
        policy__max_staleness_steps=2,
        policy__num_parallel_generation_workers=192,
        workload__prompts_per_step=64,
        trainer__updates_per_step=1,
        workload__group_size=6,
        rollout__gpus=4,
        trainer__gpus=4,
        trainer__reference=True,
        cluster__gpus=8,
    )
    assert made.refused == []


def test_modes_of_skyrl_are_told_by_program_and_placement(folder: Path) -> None:
    plain = SKYRL.replace("examples.train.fully_async.main_fully_async", "skyrl.train.entrypoints.main_base")
    plain = plain.replace("trainer.fully_async.", "trainer.other_").replace("_steps=${STALE}", "=1")
    split = read(folder, plain, "skyrl")
    says(split, policy__preset="sync-disaggregated", workload__prompts_per_step=128, trainer__updates_per_step=2)
    together = read(folder, plain.replace("colocate_all=false", "colocate_all=true"), "skyrl")
    says(together, policy__preset="sync-colocated", cluster__gpus=4)
    ahead = read(folder, plain.replace("skyrl.train.entrypoints.main_base", "examples.train.async.main_async"), "skyrl")
    says(ahead, policy__preset="one-step-off")


def test_earlier_names_of_skyrl_are_read_and_said(folder: Path) -> None:
    older = SKYRL.replace("inference_engine.num_engines", "num_inference_engines")
    older = older.replace("inference_engine.tensor_parallel_size", "inference_engine_tensor_parallel_size")
    made = read(folder, f"{older.rstrip()} generator.gpu_memory_utilization=0.6\n", "skyrl")
    says(made, rollout__gpus=4, rollout__tensor_parallel=2, rollout__gpu_memory_utilization=0.6)
    assert any(
        "generator.num_inference_engines is generator.inference_engine.num_engines" in note for note in made.notes
    )


def test_gpus_of_a_reference_of_its_own_are_counted(folder: Path) -> None:
    text = f"{SKYRL.rstrip()} trainer.placement.colocate_policy_ref=false trainer.placement.ref_num_gpus_per_node=2\n"
    says(read(folder, text, "skyrl"), cluster__gpus=10, trainer__gpus=4)
    without = f"{text.rstrip()} trainer.algorithm.use_kl_loss=false\n"
    says(read(folder, without, "skyrl"), cluster__gpus=8, trainer__reference=False)


OPENRLHF = """
python3 -m openrlhf.cli.train_ppo_ray \\
   --actor.num_nodes 1 --actor.num_gpus_per_node 8 --ref.num_nodes 1 --ref.num_gpus_per_node 8 \\
   --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --train.colocate_all --actor.model_name_or_path org/Qwen3-8B \\
   --train.batch_size 96 --rollout.batch_size 48 --rollout.n_samples_per_prompt 6 --data.max_len 3000 \\
   --algo.advantage.estimator group_norm --reward.remote_url f.py --algo.kl.init_coef 0.001 --ds.adam_offload
"""


def test_a_batch_of_openrlhf_counts_samples(folder: Path) -> None:
    says(
        read(folder, OPENRLHF, "openrlhf"),
        policy__preset="sync-colocated",
        workload__prompts_per_step=48,
        workload__group_size=6,
        trainer__updates_per_step=3,
        rollout__max_model_len=3000,
        rollout__gpu_memory_utilization=0.95,
        trainer__reference=True,
        trainer__critic=False,
        trainer__packing="padded",
        trainer__optimizer_offload=True,
        cluster__gpus=8,
    )


def test_engines_of_asynchronous_openrlhf_have_gpus_of_their_own(folder: Path) -> None:
    text = OPENRLHF.replace("--train.colocate_all", "--train.colocate_all --train.async_enable")
    says(read(folder, text, "openrlhf"), policy__preset="openrlhf-async", cluster__gpus=16, rollout__gpus=8)
    partial = text.replace("async_enable", "async_enable --train.partial_rollout_enable --train.async_queue_size 3")
    says(read(folder, partial, "openrlhf"), policy__preset="openrlhf-async-partial", policy__async_queue_size=3)


def test_every_role_of_openrlhf_that_is_not_colocated_has_gpus(folder: Path) -> None:
    text = OPENRLHF.replace("--train.colocate_all", "--train.colocate_actor_ref --critic.num_gpus_per_node 4")
    says(read(folder, text, "openrlhf"), policy__preset="sync-disaggregated", cluster__gpus=16)
    critic = text.replace("group_norm", "gae")
    says(read(folder, critic, "openrlhf"), cluster__gpus=20, trainer__critic=True)
    reward = critic.replace("--reward.remote_url f.py", "--reward.num_gpus_per_node 2")
    says(read(folder, reward, "openrlhf"), cluster__gpus=22)
    shared = f"{reward.rstrip()} --train.colocate_critic_reward\n"
    says(read(folder, shared, "openrlhf"), cluster__gpus=20)


def test_earlier_names_of_openrlhf_mean_the_same(folder: Path) -> None:
    older = OPENRLHF.replace("actor.model_name_or_path", "pretrain").replace(
        "train.colocate_all", "colocate_all_models"
    )
    for newer, name in (
        ("algo.advantage.estimator", "advantage_estimator"),
        ("reward.remote_url", "remote_rm_url"),
        ("algo.kl.init_coef", "init_kl_coef"),
        ("ds.adam_offload", "adam_offload"),
        ("rollout.n_samples", "n_samples"),
        ("--data.max_len 3000", "--prompt_max_len 1000 --generate_max_len 2000"),
        ("actor.", "actor_"),
        ("ref.", "ref_"),
        ("vllm.", "vllm_"),
        ("train.batch", "train_batch"),
        ("rollout.batch", "rollout_batch"),
    ):
        older = older.replace(newer, name)
    assert "." not in older.partition("pretrain")[2].replace("f.py", "").replace("0.001", "")
    made = read(folder, older.replace("openrlhf_cli", "openrlhf.cli"), "openrlhf")
    newer = read(folder, OPENRLHF, "openrlhf")
    for section in ("model", "cluster", "rollout", "trainer", "policy"):
        assert made.tree[section] == newer.tree[section], section
    says(made, workload__prompt_tokens__cap_tokens=1000, workload__response_tokens__cap_tokens=2000)


INSTRUCT = """
python mason.py --num_nodes 3 --gpus 8 -- source setup.sh \\&\\& uv run open_instruct/grpo_fast.py \\
    --model_name_or_path Qwen/Qwen3-8B --num_unique_prompts_rollout 24 --num_samples_per_prompt_rollout 12 \\
    --num_mini_batches 3 --max_prompt_token_length 700 --response_length 3000 --pack_length 4000 --beta 0.0 \\
    --num_learners_per_node 6 4 --vllm_num_engines 7 --vllm_tensor_parallel_size 2 --deepspeed_stage 3
"""


def test_learners_of_open_instruct_are_the_sum_over_its_nodes(folder: Path) -> None:
    says(
        read(folder, INSTRUCT, "open-instruct"),
        policy__preset="open-instruct-async",
        policy__async_steps=8,
        policy__max_result_age_steps=8,
        trainer__gpus=10,
        rollout__gpus=14,
        cluster__gpus=24,
        trainer__updates_per_step=3,
        trainer__micro_batch_tokens=4000,
        rollout__max_model_len=3700,
        trainer__reference=True,
    )
    fewer = INSTRUCT.replace("--num_learners_per_node 6 4", "--num-learners-per-node 6 --load_ref_policy false")
    says(read(folder, fewer, "open-instruct"), trainer__gpus=6, trainer__reference=False)
    faulty = read(folder, INSTRUCT.replace("6 4", "6 many"), "open-instruct")
    assert any("allowed: whole numbers, one a node" in fault for fault in faulty.faults)


def test_one_gpu_of_open_instruct_is_shared(folder: Path) -> None:
    text = INSTRUCT.replace("6 4", "1").replace("engines 7", "engines 1").replace("size 2", "size 1 --single_gpu_mode")
    made = read(folder, text, "open-instruct")
    says(made, policy__preset="sync-colocated", cluster__gpus=1)
    assert any("single_gpu_mode" in note for note in made.notes)


def test_a_batch_of_a_rank_in_earlier_open_instruct(folder: Path) -> None:
    older = INSTRUCT.replace("num_samples_per_prompt_rollout", "number_samples_per_prompt")
    older = older.replace("num_learners_per_node", "actor_num_gpus_per_node").replace("--num_mini_batches 3", "")
    older = older.replace("num_unique_prompts_rollout 24", "local_rollout_batch_size 4 --local_mini_batch_size 24")
    says(
        read(folder, older, "open-instruct"),
        workload__prompts_per_step=40,
        workload__group_size=12,
        trainer__updates_per_step=2,
        trainer__gpus=10,
    )


TRL = """
model_name_or_path: Qwen/Qwen2.5-7B
num_processes: 4
use_vllm: true
per_device_train_batch_size: 6
gradient_accumulation_steps: 2
num_generations: 4
"""


def test_a_generation_batch_of_trl_is_its_samples(folder: Path) -> None:
    made = read(folder, f"{TRL}generation_batch_size: 240\nvllm_mode: colocate\n", "trl", ".yaml")
    says(made, workload__prompts_per_step=60, workload__group_size=4, trainer__updates_per_step=5, trainer__gpus=4)
    assert made.ignored == []
    uneven = read(folder, f"{TRL}generation_batch_size: 242\n".replace("4\n", "5\n"), "trl", ".yaml")
    assert uneven.faults
    says(uneven, workload__group_size=5)


def test_several_generations_of_trl_make_up_an_update(folder: Path) -> None:
    made = read(folder, f"{TRL}steps_per_generation: 1\n", "trl", ".yaml")
    says(made, workload__prompts_per_step=6 * 4 * 2 // 4, trainer__updates_per_step=1)


def test_an_engine_of_earlier_trl_has_a_gpu_of_its_own(folder: Path) -> None:
    made = read(folder, f"{TRL}vllm_device: auto\n", "trl", ".yaml")
    says(made, policy__preset="trl-server", trainer__gpus=4, rollout__gpus=1, cluster__gpus=5)
    says(made, rollout__gpu_memory_utilization=0.9, trainer__reference=True)
    says(made, workload__response_tokens__cap_tokens=256, workload__prompt_tokens__cap_tokens=512)


def test_defaults_of_trl_are_those_of_the_version_that_its_keys_betray(folder: Path) -> None:
    says(
        read(folder, TRL, "trl", ".yaml"),
        policy__preset="trl-colocate",
        workload__response_tokens__cap_tokens=512,
        rollout__gpu_memory_utilization=0.3,
        trainer__activation_recompute=True,
    )
    older = read(folder, f"{TRL}max_prompt_length: 300\n", "trl", ".yaml")
    says(older, policy__preset="trl-server", workload__response_tokens__cap_tokens=256)
    said = read(folder, f"{TRL}max_prompt_length: 300\nvllm_mode: colocate\n", "trl", ".yaml")
    says(said, policy__preset="trl-colocate", workload__response_tokens__cap_tokens=256)
    slow = read(folder, TRL.replace("use_vllm: true", ""), "trl", ".yaml")
    assert any("transformers generates" in note for note in slow.notes)


def test_processes_that_only_the_launcher_knows_are_assumed(folder: Path) -> None:
    made = read(folder, TRL.replace("num_processes: 4", ""), "trl", ".yaml")
    assert made.faults == []
    says(made, workload__group_size=4, trainer__updates_per_step=1)
    assert {"trainer.gpus", "workload.prompts_per_step"} <= {guess.path for guess in made.assumed}


ACCELERATE = """
deepspeed_config: {zero_stage: 3, offload_optimizer_device: cpu, offload_param_device: none}
num_processes: 6
"""


def test_the_files_that_a_command_of_trl_names_count_where_it_says_nothing(folder: Path) -> None:
    (folder / "accelerate").mkdir()
    (folder / "accelerate" / "zero.yaml").write_text(ACCELERATE)
    (folder / "run.yaml").write_text(TRL.replace("num_processes: 4", "beta: 0.1"))
    nested = folder / "scripts"
    nested.mkdir()
    text = "accelerate launch --config_file accelerate/zero.yaml grpo.py --config run.yaml --num_generations 3"
    made = read(nested, text, "trl")
    says(made, trainer__gpus=6, trainer__optimizer_offload=True, trainer__weights_offload=False)
    says(made, model="Qwen2.5-7B", workload__group_size=3, trainer__reference=True)
    more = read(nested, text.replace("zero.yaml", "zero.yaml --num_processes 12"), "trl")
    says(more, trainer__gpus=12)
    for elsewhere in (folder / "run.yaml", "../run.yaml"):
        kept = read(nested, text.replace("--config run.yaml", f"--config {elsewhere}"), "trl")
        assert "model" not in kept.tree, "files are looked for below the folders of the script alone"
    (folder / "accelerate" / "zero.yaml").unlink()
    assert any("is not beside" in note for note in read(nested, text, "trl").notes)


def test_an_engine_that_a_script_starts_beside_the_training_is_the_rollout(folder: Path) -> None:
    text = (
        "srun --nodes=1 trl vllm-serve --model Qwen/Qwen2.5-7B --tensor-parallel-size 2 --data_parallel_size 3 "
        "--gpu_memory_utilization 0.7 &\n"
        "accelerate launch --num_processes 16 train.py --per_device_train_batch_size 2 --num_generations 8 &\nwait\n"
    )
    made = read(folder, text, "trl")
    says(made, policy__preset="trl-server", rollout__gpus=6, rollout__tensor_parallel=2, trainer__gpus=16)
    says(made, rollout__gpu_memory_utilization=0.7, cluster__gpus=22, model="Qwen2.5-7B")


@pytest.mark.parametrize(
    "launch",
    ["CUDA_VISIBLE_DEVICES=2,3,4 accelerate launch", "torchrun --nproc_per_node 3", "torchrun --nproc-per-node=3"],
)
def test_processes_are_those_of_the_launcher_or_of_the_gpus_that_it_sees(folder: Path, launch: str) -> None:
    text = (
        "CUDA_VISIBLE_DEVICES=0,1 trl vllm-serve --model Qwen/Qwen3-8B --tensor_parallel_size 2 &\n"
        f"{launch} train.py --use_vllm --vllm_mode server --num_generations 8\n"
    )
    says(read(folder, text, "trl"), trainer__gpus=3, rollout__gpus=2, workload__prompts_per_step=3)


def test_a_mode_alone_is_an_import_that_says_what_is_missing(folder: Path) -> None:
    made = read(folder, "python train.py --vllm-mode server", "trl")
    says(made, policy__preset="trl-server")
    assert any(fault.startswith("model: missing") for fault in made.refused)


PYTHON = """
import os
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

name = "Qwen/Qwen3-4B"
size = int(os.environ["SIZE"])
arguments = GRPOConfig(
    output_dir="out", use_vllm=True, vllm_mode="colocate", num_generations=6, beta=0.02,
    per_device_train_batch_size=size, max_completion_length=1500, vllm_gpu_memory_utilization=0.4,
)
os.mkdir("trap")
trainer = GRPOTrainer(model=name, args=arguments, peft_config=LoraConfig(r=8))
"""


def test_keyword_arguments_of_a_python_file_are_read_and_nothing_is_run(folder: Path) -> None:
    made = read(folder, PYTHON, "trl", ".py")
    says(
        made,
        policy__preset="trl-colocate",
        model="Qwen3-4B",
        workload__group_size=6,
        workload__response_tokens__cap_tokens=1500,
        rollout__gpu_memory_utilization=0.4,
        trainer__reference=True,
    )
    assert made.unresolved == {"per_device_train_batch_size": "`size`"}
    assert any(line.startswith("peft_config = `LoraConfig(r=8)`: LoRA") for line in made.unmodelled)
    assert not (folder / "trap").exists()
    loaded = PYTHON.replace("model=name", "model=AutoModel.from_pretrained('Qwen/Qwen3-8B')")
    says(read(folder, loaded, "trl", ".py"), model="Qwen3-8B")
    given = read(folder, PYTHON.replace("model=name", "model=options.model_name"), "trl", ".py")
    assert given.refused == [f"model: missing: {folder}/config.py:13: model = `options.model_name` is not worked out"]


def test_defaults_of_a_python_files_own_options_are_its_values(folder: Path) -> None:
    text = """
parser.add_argument("-g", "--num-generations", type=int, default=6)
parser.add_argument("--model", required=True)
args = parser.parse_args()
GRPOTrainer(model=args.model, args=GRPOConfig(num_generations=args.num_generations, beta=args.beta))
"""
    made = read(folder, text, "trl", ".py")
    says(made, workload__group_size=6)
    assert made.unresolved == {"model": "`args.model`", "beta": "`args.beta`"}


def test_an_asynchronous_trainer_of_trl_is_told_by_its_class(folder: Path) -> None:
    text = 'AsyncGRPOTrainer(model="Qwen/Qwen3-8B", args=AsyncGRPOConfig(num_generations=4))'
    says(read(folder, text, "trl", ".py"), policy__preset="trl-async-grpo", policy__max_staleness=4)


def test_python_without_calls_and_of_other_frameworks_is_refused(folder: Path) -> None:
    with pytest.raises(ScenarioError, match=r"found no call of GRPOConfig"):
        read(folder, "print(1)", "trl", ".py")
    with pytest.raises(ScenarioError, match="not valid Python"):
        read(folder, "def (", "trl", ".py")
    with pytest.raises(ParameterError, match="programs are not run"):
        read(folder, PYTHON, "slime", ".py")


def test_an_export_writes_switches_as_its_parser_takes_them(folder: Path) -> None:
    scenario = Scenario.model_validate(read(folder, OPENRLHF, "openrlhf").tree)
    text = export_config(scenario, "openrlhf").text
    assert "--train.colocate_all \\" in text
    assert "--vllm.enable_prefix_caching" not in text
    learners = Scenario.model_validate(read(folder, INSTRUCT, "open-instruct").tree)
    again = export_config(learners, "open-instruct").text
    assert "--num_learners_per_node 5 5 \\" in again
    assert "--inflight_updates True\n" in again
    unlimited = scenario.model_copy(update={"rollout": scenario.rollout.model_copy(update={"max_model_len": None})})
    with pytest.raises(ParameterError, match=r"rollout\.max_model_len: found .*null.*a number"):
        export_config(unlimited, "openrlhf")


JUNK = st.sampled_from([None, True, 0, -3, 7, 2.5, "text", "8 8", [1, 2], [], {"a": 1}, 10**30, "", float("inf")])


@pytest.mark.parametrize("name", FRAMEWORKS)
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_of_a_wrong_kind_are_told_and_stop_nothing(name: str, data: st.DataObject) -> None:
    found = FRAMEWORKS[name]
    rows = (*found.rows, *(row for mode in found.modes for row in mode.rows))
    keys = sorted({key.name for row in rows for key in row.keys if not key.name.startswith("(")})
    flat = data.draw(st.dictionaries(st.sampled_from(keys), JUNK, min_size=1, max_size=12))
    preset = data.draw(st.sampled_from([None, *found.presets()]))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.yaml"
        path.write_text(yaml_text(nested(flat)), encoding="utf-8")
        try:
            made = import_config(path, name, preset)
        except (ParameterError, ScenarioError):
            return
    assert list(made.report())
    assert scenario_yaml(made)
