"""open-instruct: flags of ``open_instruct/grpo_fast.py`` and ``grpo.py``.

Read from open-instruct e6c3044: ``open_instruct/grpo_utils.py``, ``open_instruct/data_loader.py``,
``open_instruct/grpo_fast_resource_plan.py``; the batch of a rank is that of
``grpo_vllm_thread_ray_gtrl.py`` before 2025-05.
"""

from __future__ import annotations

from typing import Any

from rlsim.frameworks.codecs import ENGINE_GPUS, MODEL, NOT, mini_batches, nodes_of, whole
from rlsim.frameworks.mapping import Codec, Framework, Key, Mark, Mode, Row, Unmodelled, lora, same

_PROGRAM = "open_instruct/grpo_fast.py"


def _learners(nodes: Any) -> int:
    """GPUs that train, from their number on each node."""
    each = str(nodes).split() if isinstance(nodes, str) else nodes if isinstance(nodes, list) else [nodes]
    if not each or not all(str(size).isdigit() for size in each):
        raise ValueError("whole numbers, one a node")
    return sum(whole(int(size)) for size in each)


def _written_learners(gpus: int) -> list[int]:
    nodes, each = nodes_of(gpus)
    return [each] * nodes


def _of_ranks(prompts: Any, mini: Any, group: Any, nodes: Any) -> tuple[int, int]:
    total = whole(prompts) * _learners(nodes)
    return total, mini_batches(whole(prompts) * whole(group), mini, total)


def _longest(prompt: Any, response: Any, evaluation: Any) -> tuple[int, int, int]:
    return whole(prompt), whole(response), prompt + max(response, evaluation or 0)


def _caps(prompt: int, response: int, longest: int | None) -> tuple[int, int, int | None]:
    room = (longest or prompt + response) - prompt
    if room < response:
        raise ValueError("at least both caps")
    return prompt, response, None if room == response else room


_ROWS = (
    Row((Key("model_name_or_path"),), ("model",), MODEL),
    same("num_unique_prompts_rollout", "workload.prompts_per_step", 16),
    same("num_samples_per_prompt_rollout", "workload.group_size", 4),
    same("num_mini_batches", "trainer.updates_per_step", 1),
    Row(
        (
            Key("local_rollout_batch_size"),
            Key("local_mini_batch_size", 64),
            Key("num_samples_per_prompt_rollout", 1),
            Key("num_learners_per_node", 1),
        ),
        ("workload.prompts_per_step", "trainer.updates_per_step"),
        Codec(_of_ranks, lambda prompts, updates: (None,) * 4, "prompts of a rank x ranks; mini-batch in samples"),
        legacy=True,
    ),
    Row(
        (Key("max_prompt_token_length", 256), Key("response_length", 256), Key("eval_response_length", None)),
        ("workload.prompt_tokens.cap_tokens", "workload.response_tokens.cap_tokens", "rollout.max_model_len"),
        Codec(_longest, _caps, "both caps; the engine holds a prompt and the longest response, of evaluations too"),
    ),
    same("vllm_gpu_memory_utilization", "rollout.gpu_memory_utilization", 0.9),
    same("vllm_enable_prefix_caching", "rollout.enable_prefix_caching", False),
    Row(
        (Key("pack_length", 512), Key("per_device_train_batch_size", 1)),
        ("trainer.micro_batch_tokens",),
        Codec(lambda pack, packs: (whole(pack) * whole(packs),), lambda tokens: (tokens, 1), "packs x their length"),
    ),
    same("sequence_parallel_size", "trainer.context_parallel", 1),
    same("num_epochs", "trainer.epochs", 1),
    same("gradient_checkpointing", "trainer.activation_recompute", False),
    same("deepspeed_offload_optimizer", "trainer.optimizer_offload", False),
    same("deepspeed_offload_param", "trainer.weights_offload", False),
    same("load_ref_policy", "trainer.reference", True),
    Row((Key("use_vllm_logprobs", False),), ("trainer.old_log_prob",), NOT),
)
_GPUS = (
    Row(
        (Key("num_learners_per_node", 1),),
        ("trainer.gpus",),
        Codec(lambda nodes: (_learners(nodes),), lambda gpus: (_written_learners(gpus),), "the sum over the nodes"),
    ),
    Row(
        (Key("vllm_num_engines", 1), Key("vllm_tensor_parallel_size", 1)),
        ("rollout.gpus", "rollout.tensor_parallel"),
        ENGINE_GPUS,
    ),
)

OPEN_INSTRUCT = Framework(
    name="open-instruct",
    version="e6c3044",
    format="flags",
    command="python {program}",
    rows=_ROWS,
    modes=(
        Mode(
            "sync-colocated",
            (Mark("single_gpu_mode", True, False),),
            _GPUS,
            shares_gpus=True,
            program=_PROGRAM,
            notes=("with single_gpu_mode both roles work at once on a GPU; they are simulated as taking turns",),
        ),
        Mode("sync-disaggregated", (Mark("async_mode", False),), _GPUS, program=_PROGRAM),
        Mode(
            "open-instruct-async",
            rows=(
                *_GPUS,
                same("async_steps", "policy.async_steps", 8),
                Row((Key("async_steps", 8),), ("policy.max_result_age_steps",), legacy=True),
                same("inflight_updates", "policy.inflight_updates", True),
            ),
            program=_PROGRAM,
        ),
    ),
    unmodelled=(
        lora("lora_r"),
        Unmodelled("active_sampling", "groups that it drops are generated and not trained"),
        Unmodelled("tools", "turns; their tools and lengths are not in the file"),
        Unmodelled("ref_policy_update_freq", "steps between updates of the reference model"),
    ),
    renamed={
        "actor_num_gpus_per_node": "num_learners_per_node",
        "number_samples_per_prompt": "num_samples_per_prompt_rollout",
    },
    hyphens=True,
)
