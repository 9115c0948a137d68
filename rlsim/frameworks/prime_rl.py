"""prime-rl: one TOML file. Its names move quickly; earlier ones are read as well."""

from __future__ import annotations

from typing import Any

from rlsim.frameworks.codecs import GPUS, MODEL, NODE_GPUS, divided, whole
from rlsim.frameworks.mapping import Codec, Framework, Key, Mode, Row, Unmodelled, legacy, same

_EACH = Key("deployment.gpus_per_node", 8)
_INFERENCE = "inference.deployment"


def _batch(samples: Any, group: Any, older: Any) -> tuple[int, int]:
    members = whole(group if group is not None else older if older is not None else 1)
    return divided(whole(samples), members, "a group"), members


def _nodes(each: Any, replicas: Any, prefill: Any, decode: Any, prefills: Any, decodes: Any) -> tuple[int]:
    """GPUs of replicas that prefill and decode on nodes of their own."""
    return (whole(each) * whole(replicas) * (whole(prefill) * whole(prefills) + whole(decode) * whole(decodes)),)


def _expert_ranks(split: Any, tensor: Any, data: Any, each: Any, nodes: Any) -> tuple[int, int, int]:
    """A replica that spans nodes has their GPUs as data-parallel ranks."""
    ranks = whole(data)
    if nodes is not None and ranks == 1:
        ranks = divided(whole(nodes) * (each or NODE_GPUS), whole(tensor), "tensor ranks")
    return whole(tensor) * ranks if split else 1, whole(tensor), ranks


def _expert_keys(experts: int, tensor: int, data: int) -> tuple[bool, int, int, None, None]:
    if experts not in (1, tensor * data):
        raise ValueError("1, or tensor_parallel x data_parallel")
    return experts > 1, tensor, data, None, None


def _models(*names: str) -> tuple[Row, ...]:
    return tuple(Row((Key(name),), ("model",), MODEL, legacy=True) for name in names)


_BY_NODES = (
    Row((Key("deployment.num_train_nodes"), _EACH), ("trainer.gpus",), GPUS, legacy=True),
    Row((Key("deployment.num_infer_nodes"), _EACH), ("rollout.gpus",), GPUS, legacy=True),
    Row(
        (
            _EACH,
            Key("deployment.num_infer_replicas", 1),
            Key(f"{_INFERENCE}.prefill_nodes_per_replica"),
            Key(f"{_INFERENCE}.decode_nodes_per_replica", 1),
            Key(f"{_INFERENCE}.num_prefill_replicas", 1),
            Key(f"{_INFERENCE}.num_decode_replicas", 1),
        ),
        ("rollout.gpus",),
        Codec(_nodes, lambda gpus: (None,) * 6, "replicas x (prefill + decode nodes) x GPUs of a node"),
        legacy=True,
    ),
)

PRIME_RL = Framework(
    name="prime-rl",
    version="559b447",
    format="toml",
    rows=(
        Row((Key("model.name"),), ("model",), MODEL),
        *_models("trainer.model.name", "orchestrator.model.name", "inference.model.name", "inference.vllm.model"),
        Row(
            (
                Key("orchestrator.batch_size", 128),
                Key("orchestrator.group_size", None),
                Key("orchestrator.rollouts_per_example", None),
            ),
            ("workload.prompts_per_step", "workload.group_size"),
            Codec(_batch, lambda prompts, group: (prompts * group, group, None), "samples = prompts x group"),
        ),
        same("orchestrator.train.sampling.max_completion_tokens", "workload.response_tokens.cap_tokens"),
        legacy("orchestrator.sampling.max_completion_tokens", "workload.response_tokens.cap_tokens"),
        legacy("orchestrator.sampling.max_tokens", "workload.response_tokens.cap_tokens"),
        same("inference.vllm.max_model_len", "rollout.max_model_len"),
        legacy("inference.model.max_model_len", "rollout.max_model_len"),
        legacy("orchestrator.seq_len", "rollout.max_model_len"),
        legacy("seq_len", "rollout.max_model_len"),
        Row(
            (
                Key("inference.vllm.enable_expert_parallel", False),
                Key("inference.vllm.tensor_parallel_size", 1),
                Key("inference.vllm.data_parallel_size", 1),
                Key("deployment.gpus_per_node", None),
                Key(f"{_INFERENCE}.prefill_nodes_per_replica", None),
            ),
            ("rollout.expert_parallel", "rollout.tensor_parallel", "rollout.data_parallel"),
            Codec(_expert_ranks, _expert_keys, "expert ranks: tensor x data ranks, where enabled"),
        ),
        legacy("inference.parallel.tp", "rollout.tensor_parallel"),
        legacy("inference.parallel.dp", "rollout.data_parallel"),
        same("inference.vllm.gpu_memory_utilization", "rollout.gpu_memory_utilization", 0.9),
        legacy("inference.gpu_memory_utilization", "rollout.gpu_memory_utilization"),
        same("inference.vllm.max_num_seqs", "rollout.max_num_seqs"),
        legacy("inference.max_num_seqs", "rollout.max_num_seqs"),
        same("trainer.model.cp", "trainer.context_parallel", 1),
        same("trainer.model.tp", "trainer.tensor_parallel", 1),
        legacy("trainer.model.ep", "trainer.expert_parallel"),
        Row(
            (Key("trainer.model.ac.freq"),),
            ("trainer.activation_recompute",),
            Codec(lambda every: (every == 1,), lambda kept: (1 if kept else None,), "1: every layer"),
            legacy=True,
        ),
        legacy("trainer.model.optim_cpu_offload", "trainer.optimizer_offload"),
        same("orchestrator.max_off_policy_steps", "policy.max_off_policy_steps", 8),
        legacy("orchestrator.async_level", "policy.max_off_policy_steps"),
        legacy("max_async_level", "policy.max_off_policy_steps"),
    ),
    unmodelled=(
        Unmodelled("trainer.model.lora.rank", "LoRA: trained and sent as full weights here"),
        Unmodelled("orchestrator.token_batch_size", "steps of a number of tokens: prompts are assumed", (None,)),
        Unmodelled("orchestrator.oversampling_factor", "samples beyond the batch", (None, 1, 1.0)),
        Unmodelled(f"{_INFERENCE}.prefill_nodes_per_replica", "prefill and decode apart: see rollout.pools", (None,)),
        Unmodelled("weight_broadcast.quantize_in_weight_transfer", "weights sent in 8 bits"),
    ),
    modes=(
        Mode(
            "prime-rl",
            (),
            (
                *_BY_NODES,
                same("deployment.num_train_gpus", "trainer.gpus"),
                same("deployment.num_infer_gpus", "rollout.gpus"),
            ),
        ),
    ),
)
