"""How many KV-cache blocks are left on a replica's GPUs once the model is loaded."""

from __future__ import annotations

from rlsim.core.errors import ParameterError
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import Device
from rlsim.costs.fields import count, fraction, non_negative

GIB = 2**30
ACTIVATION_BYTES = 0.9e9
"""Peak activations of an 8192-token step; aiconfigurator-core 0.12 estimates 0.67-1.64 GB, in proportion to tokens."""
ACTIVATION_TOKENS = 8192
OVERHEAD_BYTES = 3.5 * GIB
"""CUDA context, graphs and workspace: the safe value of aiconfigurator-core 0.12."""
COMMUNICATOR_BYTES = 0.4e9
"""NCCL buffers of a GPU in a group: 0.36-0.41 GB in aiconfigurator-core 0.12."""


def weight_bytes_per_gpu(
    architecture: Architecture,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    expert_parallel: int = 1,
    bytes_per_parameter: float = 2.0,
) -> float:
    """Weights on one GPU: tensor and pipeline ranks split all, expert ranks split the experts further."""
    shared = architecture.shared_parameters() / tensor_parallel
    experts = architecture.expert_parameters() / max(tensor_parallel, expert_parallel)
    return (shared + experts) / pipeline_parallel * bytes_per_parameter


def kv_blocks(
    architecture: Architecture,
    device: Device,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    gpu_memory_utilization: float = 0.9,
    block_size: int = 16,
    activation_bytes: float = ACTIVATION_BYTES,
    overhead_bytes: float = OVERHEAD_BYTES,
    expert_parallel: int = 1,
    bytes_per_parameter: float = 2.0,
    kv_bytes_per_element: float = 2.0,
    max_num_seqs: int = 0,
    max_num_batched_tokens: int = ACTIVATION_TOKENS,
) -> int:
    """Blocks of ``block_size`` tokens that fit a replica's KV cache (an estimate).

    KV heads are replicated when there are more tensor-parallel ranks than heads. Linear-attention layers
    set aside the constant state of ``max_num_seqs`` sequences. ``activation_bytes`` are those of a step of 8192 tokens;
    they grow with the tokens that a step may have. Raises ``ParameterError`` when the model does
    not leave room for one block, saying the GiB needed and available on a GPU.
    """
    degrees = {
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "expert_parallel": expert_parallel,
        "block_size": block_size,
    }
    for name, value in degrees.items():
        count(f"rollout.{name}", value)
    usable = device.memory_bytes * fraction("rollout.gpu_memory_utilization", gpu_memory_utilization)
    share_of_step = count("rollout.max_num_batched_tokens", max_num_batched_tokens) / ACTIVATION_TOKENS
    fixed = non_negative("activation_bytes", activation_bytes) * share_of_step
    fixed += non_negative("overhead_bytes", overhead_bytes)
    fixed += COMMUNICATOR_BYTES if tensor_parallel * pipeline_parallel > 1 else 0.0
    state = max_num_seqs * architecture.state_bytes_per_sequence() / (tensor_parallel * pipeline_parallel)
    weights = weight_bytes_per_gpu(
        architecture, tensor_parallel, pipeline_parallel, expert_parallel, bytes_per_parameter
    )
    per_token = architecture.kv_bytes_per_token_per_gpu(tensor_parallel, kv_bytes_per_element)
    block = per_token / pipeline_parallel * block_size
    needed = weights + fixed + state + block
    if needed > usable:
        raise ParameterError("rollout.gpu_memory_utilization", *_shortage(architecture, device, needed, usable))
    return int((usable - weights - fixed - state) // block)


def _shortage(architecture: Architecture, device: Device, needed: float, usable: float) -> tuple[str, str]:
    needs = (
        f"{architecture.name} needs {needed / GIB:.1f} GiB on each {device.name}, "
        f"{usable / GIB:.1f} of {device.memory_bytes / GIB:.1f} GiB are available"
    )
    return (
        needs,
        "a model that fits: more tensor_parallel or pipeline_parallel, a larger device, more utilization",
    )
