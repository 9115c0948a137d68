"""Protocols of a generate call over HTTP: bodies of requests, and the content of their chunks.

Sampling is at temperature 1 without truncation wherever a server lets it be set, so that log-probs are those of the
policy that is trained.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlsim.live.openai.capabilities import ApiProtocol, Prompt

PATHS: dict[ApiProtocol, str] = {
    "tokens": "/inference/v1/generate",
    "completions": "/v1/completions",
    "text": "/v1/completions",
    "chat": "/v1/chat/completions",
}
"""Below the server's root."""

OPTIONAL = (
    "ignore_eos",
    "min_tokens",
    "top_p",
    "top_k",
    "min_p",
    "return_token_ids",
    "logprobs",
    "stream_options",
    "timings_per_token",
    "priority",
    "request_id",
)
"""Fields that a server may refuse; tried one by one at the start."""


class MalformedAnswerError(ValueError):
    """An answer that is not what the protocol says."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A generate call as it is sent to a server."""

    prompt: Sequence[int] | str
    max_tokens: int
    ignore_eos: bool
    priority: int = 0
    name: str = ""
    """Request id of ours."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Content of one chunk of the answer."""

    tokens: tuple[int, ...] | None
    """None where the server does not say which."""
    has_text: bool
    log_probs: tuple[float, ...]
    reason: str
    """Empty while the call runs."""
    output_tokens: int | None
    """Count of the call so far: in OpenAI's ``usage``, or in llama.cpp's ``timings``."""
    prompt_tokens: int | None
    spans: tuple[tuple[str, int], ...]
    """(version, tokens) of the whole call, in the last chunk of servers that tell."""
    name: str
    """The server's own id of the call."""


def text_prompt(prompt: Prompt, context: Sequence[int]) -> str:
    """A text of as many tokens as the context; equal contexts are equal texts, and prefixes stay prefixes."""
    words = prompt.words
    return "".join(words[token % len(words)] for token in context)


def body(protocol: ApiProtocol, model: str, request: GenerateRequest, fields: Collection[str]) -> dict[str, Any]:
    """The request, with those optional fields that are in ``fields``."""
    options = {name: value for name, value in _optional(protocol, request).items() if name in fields}
    sampling: dict[str, Any] = {"max_tokens": request.max_tokens, "temperature": 1.0}
    if protocol == "tokens":
        sampling |= {"detokenize": False} | {name: options[name] for name in _SAMPLING if name in options}
        options = {name: options[name] for name in options if name not in (*_SAMPLING, "return_token_ids")}
        ids = list(request.prompt)
        return {"model": model, "token_ids": ids, "sampling_params": sampling, "stream": True, **options}
    prompt: dict[str, Any] = {"prompt": request.prompt}
    if protocol == "chat":
        prompt = {"messages": [{"role": "user", "content": request.prompt}]}
    return {"model": model, **prompt, **sampling, "stream": True, **options}


def _optional(protocol: ApiProtocol, request: GenerateRequest) -> dict[str, Any]:
    return {
        "ignore_eos": request.ignore_eos,
        "min_tokens": request.max_tokens if request.ignore_eos else 0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "return_token_ids": True,
        "logprobs": True if protocol == "chat" else 1,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "timings_per_token": True,
        "priority": request.priority,
        "request_id": request.name,
    }


_SAMPLING = ("ignore_eos", "min_tokens", "top_p", "top_k", "min_p", "logprobs")


def piece(chunk: object) -> Piece:
    """Content of a chunk, whichever the protocol; ``MalformedAnswerError`` when it is none."""
    if not isinstance(chunk, dict):
        raise MalformedAnswerError(f"a chunk that is no object: {str(chunk)[:80]!r}")
    if chunk.get("error"):
        raise MalformedAnswerError(f"an error amid the answer: {str(chunk['error'])[:200]}")
    try:
        choices, usage = chunk.get("choices") or [{}], chunk.get("usage") or {}
        choice = choices[0]
        details = choice.get("logprobs") or {}
        log_probs = [entry["logprob"] for entry in details.get("content") or ()] or details.get("token_logprobs") or ()
        # llama.cpp's ids beside log-probs are no substitute for token_ids: halves of a character are left out
        ids, spans = choice.get("token_ids"), choice.get("weight_versions") or ()
        return Piece(
            tokens=None if ids is None else tuple(int(token) for token in ids),
            has_text=bool(choice.get("text") or (choice.get("delta") or {}).get("content")),
            log_probs=tuple(float(value) for value in log_probs),
            reason=str(choice.get("finish_reason") or ""),
            output_tokens=_count(usage, "completion_tokens", _count(chunk.get("timings") or {}, "predicted_n")),
            prompt_tokens=_count(usage, "prompt_tokens"),
            spans=tuple((str(span["version"]), int(span["end"]) - int(span["start"])) for span in spans),
            name=str(chunk.get("request_id") or chunk.get("id") or ""),
        )
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise MalformedAnswerError(f"a chunk that is not understood ({error}): {str(chunk)[:120]!r}") from error


def _count(usage: Mapping[str, Any], name: str, otherwise: int | None = None) -> int | None:
    value = usage.get(name)
    if value is None:
        return otherwise
    count = int(value)
    if count < 0:
        raise ValueError(f"{name} below zero")
    return count
