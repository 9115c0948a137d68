"""AReaL: one YAML file; parallelism by engine, or in the allocation strings of earlier versions."""

from __future__ import annotations

import math
import re
from typing import Any

from rlsim.frameworks.codecs import KL, MODEL, divided
from rlsim.frameworks.mapping import (
    Backend,
    Codec,
    Condition,
    Flat,
    Framework,
    Key,
    Mode,
    Row,
    Unmodelled,
    legacy,
    same,
)

Ranks = dict[str, int]
"""Ranks by letter: d(ata), t(ensor; m in the first versions), p(ipeline), c(ontext), e(xpert)."""
_DIMENSIONS = re.compile(r"(?:[dtmpce][1-9]\d*)+")
_COMPONENT = re.compile(r"(?:([A-Za-z]\w*)?(?:\[[A-Za-z_]\w*\])?[:.])?(.*)")
_SECTIONS = re.compile(r"\(?\s*attn:\s*([a-z0-9]+)\s*\|\s*ffn:\s*([a-z0-9]+)\s*\)?")
_ENGINES = ("sglang", "vllm")
_ALLOWED = "backend:d4t2, ranks by letter (d data, t tensor, p pipeline, c context, e expert), or attn:...|ffn:..."
_SPLIT = ("rollout.gpus", "rollout.tensor_parallel", "rollout.pipeline_parallel")
_RANKS = (
    "trainer.gpus",
    "trainer.tensor_parallel",
    "trainer.pipeline_parallel",
    "trainer.context_parallel",
    "trainer.expert_parallel",
)


def _ranks(text: str) -> Ranks:
    """Ranks of ``d4p1t2``, or of ``(attn:...|ffn:...)``: attention's, and the experts' own number."""
    sections = _SECTIONS.fullmatch(text)
    if sections is not None:
        return {**_ranks(sections[1]), "e": _ranks(sections[2]).get("e", 1)}
    if _DIMENSIONS.fullmatch(text) is None:
        raise ValueError(_ALLOWED)
    ranks = {letter: int(size) for letter, size in re.findall(r"([a-z])(\d+)", text)}
    return {**ranks, "t": ranks.get("t", ranks.get("m", 1))}


def _component(text: str) -> tuple[str, Ranks]:
    """The backend (empty where it is not said) and the ranks of one engine."""
    match = _COMPONENT.fullmatch(text.strip())
    backend, dimensions = (match[1] or "", match[2]) if match else ("", "")
    if text.lstrip("(").startswith("attn"):
        backend, dimensions = "", text
    return backend, _ranks(dimensions.strip())


def _rollout_split(ranks: Ranks) -> tuple[int, int, int]:
    tensor, pipeline = ranks["t"], ranks.get("p", 1)
    return ranks.get("d", 1) * tensor * pipeline, tensor, pipeline


def _trainer_split(ranks: Ranks) -> tuple[int, ...]:
    sizes = [ranks.get(letter, 1) for letter in "dtpc"]
    return math.prod(sizes), *sizes[1:], ranks.get("e", 1)


def _allocated(text: Any) -> tuple[int, ...]:
    """The rollout's and the trainer's split of an allocation string, the engines on GPUs of their own or shared."""
    parts = re.split(r"\+|\|(?![^(]*\))", str(text))
    components = [_component(part) for part in parts]
    rollout = [ranks for backend, ranks in components if backend in _ENGINES]
    trainer = [ranks for backend, ranks in components if backend not in _ENGINES]
    if len(rollout) != 1 or not trainer:
        raise ValueError(
            f"sglang:{_ALLOWED.removeprefix('backend:')} for the rollout, + (or | where shared), a trainer's"
        )
    return (*_rollout_split(rollout[0]), *_trainer_split(trainer[0]))


def _rollout_backend(gpus: int, tensor: int, pipeline: int) -> tuple[str]:
    return (f"vllm:d{divided(gpus, tensor * pipeline, 'a split')}p{pipeline}t{tensor}",)


def _actor_backend(gpus: int, tensor: int, pipeline: int, context: int, experts: int) -> tuple[str]:
    data = divided(gpus, tensor * pipeline * context, "a split")
    if experts > 1:
        ffn = divided(gpus, pipeline * experts, "expert ranks")
        return (f"megatron:(attn:d{data}p{pipeline}t{tensor}c{context}|ffn:d{ffn}p{pipeline}e{experts})",)
    return (f"{'megatron' if pipeline > 1 else 'fsdp'}:d{data}p{pipeline}t{tensor}c{context}",)


_ALLOCATION = Codec(_allocated, lambda *ranks: ("",), "both splits")
_ROLLOUT = Codec(
    lambda text: _rollout_split(_component(str(text))[1]), _rollout_backend, "backend:d(ata)p(ipeline)t(ensor)"
)
_ACTOR = Codec(
    lambda text: _trainer_split(_component(str(text))[1]),
    _actor_backend,
    "backend:d(ata)p(ipeline)t(ensor)c(ontext), or attn:...|ffn:... with e(xpert)",
)


_STRATEGY = "actor.scheduling_strategy.type"


def _shares(flat: Flat) -> bool:
    """Trainer and engines in one component of the allocation, or scheduled onto the same GPUs."""
    text = re.sub(r"\([^)]*\)", "", str(flat.get("allocation_mode", "")))
    strategy = str(flat.get(_STRATEGY, flat.get("rollout.scheduling_strategy.type", "")))
    return ("|" in text and "attn" not in text) or strategy == "colocation"


def _engine(flat: Flat) -> str:
    return re.split(r"[:.\[]", str(flat.get("rollout.backend", flat.get("allocation_mode", ""))))[0]


def _by_trainer(*kinds: str) -> Condition:
    def holds(flat: Flat) -> bool:
        text = str(flat.get("actor.backend", flat.get("allocation_mode", "")))
        return any(f"{kind}:" in text or f"{kind}[" in text for kind in kinds)

    return Condition(f"a backend of {' or '.join(kinds)}", holds)


AREAL = Framework(
    name="areal",
    version="4aef98d",
    format="yaml",
    rows=(
        Row((Key("actor.path"),), ("model",), MODEL),
        Row((Key("rollout.backend"),), _SPLIT, _ROLLOUT),
        Row((Key("actor.backend"),), _RANKS, _ACTOR),
        Row((Key("allocation_mode"),), _SPLIT + _RANKS, _ALLOCATION, legacy=True),
        same("cluster.n_gpus_per_node", "cluster.gpus_per_node", 8),
        same("train_dataset.batch_size", "workload.prompts_per_step"),
        same("gconfig.n_samples", "workload.group_size", 1),
        same("train_dataset.max_length", "workload.prompt_tokens.cap_tokens"),
        same("gconfig.max_new_tokens", "workload.response_tokens.cap_tokens"),
        same("actor.ppo_n_minibatches", "trainer.updates_per_step", 4),
        same("actor.mb_spec.max_tokens_per_mb", "trainer.micro_batch_tokens"),
        same("actor.gradient_checkpointing", "trainer.activation_recompute"),
        legacy("actor.use_decoupled_loss", "trainer.old_log_prob"),
        same("actor.recompute_logprob", "trainer.old_log_prob", False),
        Row((Key("actor.kl_ctl", 0.1),), ("trainer.reference",), KL),
    ),
    trainers=(
        Backend(
            "Megatron",
            (legacy("actor.megatron.offload", "trainer.optimizer_offload"),),
            (_by_trainer("megatron"),),
            ("actor.megatron.",),
        ),
        Backend("Archon", (), (_by_trainer("archon"),), ("actor.archon.",)),
        Backend("FSDP", (legacy("actor.fsdp.offload_params", "trainer.optimizer_offload"),), (), ("actor.fsdp.",)),
    ),
    engines=(
        Backend(
            "SGLang",
            (
                legacy("sglang.max_running_requests", "rollout.max_num_seqs"),
                legacy("sglang.mem_fraction_static", "rollout.gpu_memory_utilization"),
                legacy("sglang.context_length", "rollout.max_model_len"),
            ),
            (Condition("a rollout backend of sglang", lambda flat: _engine(flat) == "sglang"),),
            ("sglang.",),
        ),
        Backend(
            "vLLM",
            (
                same("vllm.max_model_len", "rollout.max_model_len"),
                same("vllm.max_num_seqs", "rollout.max_num_seqs"),
                same("vllm.gpu_memory_utilization", "rollout.gpu_memory_utilization"),
            ),
            (),
            ("vllm.",),
        ),
    ),
    unmodelled=(
        Unmodelled("actor.use_lora", "LoRA: trained and sent as full weights here"),
        Unmodelled("dynamic_bs", "dynamic sampling: needs a learning section"),
    ),
    modes=(
        Mode(
            "sync-colocated",
            (Condition("both engines on the same GPUs", _shares, ((_STRATEGY, "colocation"),)),),
            shares_gpus=True,
        ),
        Mode(
            "areal",
            (),
            (
                same("rollout.max_head_offpolicyness", "policy.max_head_offpolicyness", 0),
                same("rollout.max_concurrent_rollouts", "policy.max_concurrent_rollouts", None),
            ),
        ),
    ),
)
