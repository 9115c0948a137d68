"""The ways of making a generate call over HTTP: bodies of requests, and what their chunks say.

Sampling is at temperature 1 without truncation wherever a server lets it be set, so that log-probs are those of the
policy that is trained.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlsim.live.openai.capabilities import Dialect, Prompt

PATHS: dict[Dialect, str] = {
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
class Order:
    """A generate call as a server is told it."""

    prompt: Sequence[int] | str
    max_tokens: int
    ignore_eos: bool
    priority: int = 0
    name: str = ""
    """Request id of ours."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one chunk of the answer says."""

    tokens: tuple[int, ...] | None
    """None where the server does not say which."""
    has_text: bool
    log_probs: tuple[float, ...]
    reason: str
    """Empty while the call runs."""
    made_tokens: int | None
    """Of the call so far: in OpenAI's ``usage``, or in llama.cpp's ``timings``."""
    prompt_tokens: int | None
    spans: tuple[tuple[str, int], ...]
    """(version, tokens) of the whole call, in the last chunk of servers that tell."""
    name: str
    """The server's own id of the call."""


def text_prompt(prompt: Prompt, context: Sequence[int]) -> str:
    """A text of as many tokens as the context; equal contexts are equal texts, and prefixes stay prefixes."""
    words = prompt.words
    return "".join(words[token % len(words)] for token in context)


def body(dialect: Dialect, model: str, order: Order, fields: Collection[str]) -> dict[str, Any]:
    """The request, with those optional fields that are in ``fields``."""
    given = {name: value for name, value in _optional(dialect, order).items() if name in fields}
    if dialect == "tokens":
        return _tokens_body(model, order, given)
    prompt: dict[str, Any] = {"prompt": order.prompt}
    if dialect == "chat":
        prompt = {"messages": [{"role": "user", "content": order.prompt}]}
    return {"model": model, **prompt, "max_tokens": order.max_tokens, "temperature": 1.0, "stream": True, **given}


def _optional(dialect: Dialect, order: Order) -> dict[str, Any]:
    return {
        "ignore_eos": order.ignore_eos,
        "min_tokens": order.max_tokens if order.ignore_eos else 0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "return_token_ids": True,
        "logprobs": True if dialect == "chat" else 1,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "timings_per_token": True,
        "priority": order.priority,
        "request_id": order.name,
    }


_SAMPLING = ("ignore_eos", "min_tokens", "top_p", "top_k", "min_p", "logprobs")


def _tokens_body(model: str, order: Order, given: Mapping[str, Any]) -> dict[str, Any]:
    sampling = {name: value for name, value in given.items() if name in _SAMPLING}
    beside = {name: value for name, value in given.items() if name not in (*_SAMPLING, "return_token_ids")}
    params = {"max_tokens": order.max_tokens, "temperature": 1.0, "detokenize": False, **sampling}
    return {"model": model, "token_ids": list(order.prompt), "sampling_params": params, "stream": True, **beside}


def piece(chunk: object) -> Piece:
    """What a chunk says, whichever the dialect; ``MalformedAnswerError`` when it is none."""
    if not isinstance(chunk, dict):
        raise MalformedAnswerError(f"a chunk that is no object: {str(chunk)[:80]!r}")
    if chunk.get("error"):
        raise MalformedAnswerError(f"an error amid the answer: {str(chunk['error'])[:200]}")
    try:
        return _piece(chunk)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise MalformedAnswerError(f"a chunk that is not understood ({error}): {str(chunk)[:120]!r}") from error


def _piece(chunk: Mapping[str, Any]) -> Piece:
    choices, usage = chunk.get("choices") or [{}], chunk.get("usage") or {}
    choice = choices[0]
    details = choice.get("logprobs") or {}
    return Piece(
        _tokens(choice),
        bool(choice.get("text") or (choice.get("delta") or {}).get("content")),
        _log_probs(details),
        str(choice.get("finish_reason") or ""),
        _count(usage, "completion_tokens", _count(chunk.get("timings") or {}, "predicted_n")),
        _count(usage, "prompt_tokens"),
        tuple((str(span["version"]), int(span["end"]) - int(span["start"])) for span in _spans(choice)),
        str(chunk.get("request_id") or chunk.get("id") or ""),
    )


def _tokens(choice: Mapping[str, Any]) -> tuple[int, ...] | None:
    """As vLLM says them. llama.cpp's ids beside log-probs are no substitute: halves of a character are left out."""
    found = choice.get("token_ids")
    return None if found is None else tuple(int(token) for token in found)


def _log_probs(details: Mapping[str, Any]) -> tuple[float, ...]:
    if details.get("content"):
        return tuple(float(one["logprob"]) for one in details["content"])
    return tuple(float(one) for one in details.get("token_logprobs") or ())


def _spans(choice: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return choice.get("weight_versions") or ()


def _count(usage: Mapping[str, Any], name: str, otherwise: int | None = None) -> int | None:
    found = usage.get(name)
    if found is None:
        return otherwise
    count = int(found)
    if count < 0:
        raise ValueError(f"{name} below zero")
    return count
