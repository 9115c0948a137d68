"""Calls of vLLM: what one is asked with, and what its pieces bring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlsim.core.events import Segments
from rlsim.live.protocols import Call, Made
from rlsim.live.vllm_setup import EngineSetup


def sampling(setup: EngineSetup, call: Call) -> Any:
    """VLLM's parameters of a call; the check of a draft asks for the log-probabilities of its context."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    stops = [setup.eos] if setup.eos is not None and not call.ignore_eos else None
    return SamplingParams(
        temperature=1.0,
        max_tokens=call.max_tokens,
        ignore_eos=call.ignore_eos,
        stop_token_ids=stops,
        detokenize=False,
        logprobs=0 if setup.log_probs else None,
        prompt_logprobs=0 if call.draft_tokens else None,
        output_kind=RequestOutputKind.DELTA,
    )


def take(piece: Any, made: Made, served: int) -> None:
    """Add the tokens of a piece, as made by the version ``served``."""
    tokens = list(piece.token_ids)
    made.tokens += tokens
    made.segments = _grown(made.segments, served, len(tokens))
    if piece.logprobs is not None:
        made.log_probs += [at[token].logprob for at, token in zip(piece.logprobs, tokens, strict=True)]


def take_draft(output: Any, call: Call, made: Made) -> None:
    """Keep what the engine says of the draft at the end of a call's context; it says it once."""
    if call.draft_tokens and output.prompt_logprobs:
        start = len(call.context) - call.draft_tokens
        told = zip(output.prompt_logprobs[start:], call.context[start:], strict=True)
        made.draft_log_probs = [at[token].logprob for at, token in told]


def segments(spans: Sequence[Any]) -> Segments:
    """VLLM's spans (version, first token, end) as (version, tokens)."""
    return tuple((int(span.version), span.end - span.start) for span in spans if span.end > span.start)


def _grown(segments: Segments, version: int, tokens: int) -> Segments:
    if segments and segments[-1][0] == version:
        return (*segments[:-1], (version, segments[-1][1] + tokens))
    return (*segments, (version, tokens))
