"""Composition of a step of vLLM's scheduler, in the terms of the step law: decodes, KV tokens, chunks, pairs.

The conventions are those of the simulated replica: a decode attends to all its tokens, the one to be computed
included; whatever ends or continues the prefill of a request, be it a single token, is a chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlsim.core.ticks import Ticks
from rlsim.engine.steptime import StepTime, attention_pairs


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The composition of one engine step."""

    decodes: int = 0
    kv_tokens: int = 0
    """KV tokens of the decodes, the tokens to be computed included."""
    chunks: int = 0
    prefill_tokens: int = 0
    pairs: int = 0
    """(query, key) pairs of the chunks."""
    preempted: int = 0
    """Requests that lost their KV when the step was decided."""
    samplers: frozenset[str] = frozenset()
    """Requests that get a token in the step: the decodes and the chunks that end a prefill."""

    def ticks(self, law: StepTime) -> Ticks:
        """How long the step lasts by a law."""
        if not self.chunks:
            return law.decode(self.decodes, self.kv_tokens)
        return law.mixed(self.decodes, self.kv_tokens, self.chunks, self.prefill_tokens, self.pairs)


class Composer:
    """Reads plans in the order in which the scheduler makes them, since only the order tells decodes from chunks."""

    def __init__(self) -> None:
        self._decoding: set[str] = set()

    def batch(self, plan: Any, requests: Mapping[str, Any]) -> StepBatch:
        """The composition of ``plan``, vLLM's ``SchedulerOutput``; ``requests`` have been advanced by it."""
        self._decoding -= {new.req_id for new in plan.scheduled_new_reqs}
        self._decoding -= set(plan.scheduled_cached_reqs.resumed_req_ids) | set(plan.finished_req_ids)
        decodes = kv_tokens = chunks = prefill_tokens = pairs = 0
        for name, tokens in plan.num_scheduled_tokens.items():
            before = requests[name].num_computed_tokens - tokens
            if name in self._decoding:
                decodes += 1
                kv_tokens += before + 1
            else:
                chunks += 1
                prefill_tokens += tokens
                pairs += attention_pairs(tokens, before)
        samplers = frozenset(name for name in plan.num_scheduled_tokens if not requests[name].is_prefill_chunk)
        self._decoding |= samplers
        preempted = len(plan.preempted_req_ids or ())
        return StepBatch(decodes, kv_tokens, chunks, prefill_tokens, pairs, preempted, samplers)
