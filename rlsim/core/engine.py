"""What a replica is told: the limits of its engine and the requests it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlsim.core.discipline import VLLM, Discipline
from rlsim.core.ticks import Ticks
from rlsim.core.travel import as_made


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The settings of one vLLM V1 engine that its scheduler obeys, under vLLM's own names."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    kv_blocks: int
    """Blocks that requests can hold: vLLM's ``num_gpu_blocks`` less its null block."""
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    discipline: Discipline = VLLM

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return as_made(self)


class Request:
    """One generate call: a turn of a sample on one replica, from submission to its end.

    ``context_tokens`` are given (the prompt, and what earlier turns or a resumed prefix hold);
    ``target_tokens`` are to be generated. The blocks of the first ``prompt_tokens`` tokens have the
    content of ``prompt`` and can be shared by the group; all later ones are the sample's own.
    """

    __slots__ = (
        "arrival",
        "blocks",
        "cached_blocks",
        "computed",
        "content",
        "context_tokens",
        "entry",
        "finish_at",
        "first_token",
        "joined_at",
        "lineage",
        "lost_tokens",
        "marks",
        "max_tokens",
        "preemptions",
        "priority",
        "prompt",
        "prompt_tokens",
        "restored_tokens",
        "runs",
        "sample",
        "segments",
        "target_tokens",
        "tokens",
    )

    def __init__(
        self,
        sample: int,
        prompt: int,
        prompt_tokens: int,
        context_tokens: int,
        target_tokens: int,
        priority: int = 0,
        arrival: int = 0,
        restored_tokens: int = 0,
        max_tokens: int = 0,
    ) -> None:
        self.sample, self.prompt = sample, prompt
        self.content: tuple[object, ...] = ("sample", sample)
        """Names what the blocks behind the prompt hold: a call with the same content can hit them."""
        self.lineage: tuple[tuple[tuple[object, ...], int], ...] = ()
        """Contents between the prompt's and its own, each with the tokens of context up to which it goes."""
        self.prompt_tokens, self.context_tokens = prompt_tokens, context_tokens
        self.target_tokens = target_tokens
        self.priority, self.arrival = priority, arrival
        self.restored_tokens = restored_tokens
        """Tokens of the context whose KV is brought back from the host instead of computed."""
        self.max_tokens = max_tokens
        """Most tokens that the caller allows, which an engine is told; 0: as many as the longest sequence leaves."""
        self.tokens = context_tokens
        """Context and output so far; while decoding, as of step ``joined_at``."""
        self.computed = 0
        self.blocks = self.cached_blocks = 0
        self.runs: list[object] = []
        self.entry = self.joined_at = self.finish_at = -1
        self.marks: tuple[int, ...] = ()
        """Numbers of output tokens, ascending, at which the caller is to be told."""
        self.segments: list[tuple[int, int]] = []
        """(weights version, tokens) of each maximal run under one version."""
        self.first_token: Ticks = -1
        self.preemptions = self.lost_tokens = 0
        """Times sent back to the queue; tokens sampled by a step during which it was aborted."""
