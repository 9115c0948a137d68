"""Capabilities of a server, as its own answers showed at the start of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ApiProtocol = Literal["tokens", "completions", "text", "chat"]
"""How calls are made: vLLM's token-in token-out ``/inference/v1/generate``; ``/v1/completions`` with token ids;
the same with text; ``/v1/chat/completions``."""

Source = Literal["declared", "seen", ""]
"""In the server's own schema; shown by trial calls; not offered."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """How contexts are sent where the server takes text alone: one word a token, found by counting."""

    words: tuple[str, ...]
    """Each is one token wherever it stands after the first."""
    overhead_tokens: int
    """Tokens that the server adds to every prompt."""


@dataclass(frozen=True, slots=True)
class ServerCapabilities:
    """One server's abilities; nothing here is assumed."""

    url: str
    model: str
    protocol: ApiProtocol
    fields: frozenset[str]
    """Optional fields of a request that it takes."""
    exact_lengths: Source = ""
    """Calls make as many tokens as they are told to, whatever the model samples."""
    token_ids: bool = False
    """It says which tokens it made."""
    counts: bool = False
    """It says how many while a call runs, so that those of a call that is cut are known."""
    log_probs: bool = False
    priorities: bool = False
    span_versions: bool = False
    """It says by which weights each token was made."""
    weight_version: bool = False
    """It says which weights it serves, and can be told."""
    pause: bool = False
    abort: bool = False
    """Calls can be ended by id; otherwise by cutting the connection."""
    reset: bool = False
    """KV of running calls can be dropped and computed again."""
    update: bool = False
    """New weights can be loaded in place."""
    sleep: bool = False
    gauges: frozenset[str] = frozenset()
    max_model_len: int = 0
    """Tokens of prompt and response; 0 where it does not say."""
    prompt: Prompt | None = None
    """None where prompts are token ids."""

    def rows(self) -> list[tuple[str, str]]:
        """(name, description) of each capability, for people."""
        if self.span_versions:
            versions = "of each token, by the server"
        else:
            versions = "at submission, " + ("by the server" if self.weight_version else "as known to the client")
        added = 0 if self.prompt is None else self.prompt.overhead_tokens
        words = f"one word a token, and {added} tokens that the server adds"
        return [
            ("server", self.url),
            ("model", self.model),
            ("calls by", _PROTOCOLS[self.protocol]),
            ("prompt lengths", "exact" if self.prompt is None else words),
            ("response lengths", _LENGTHS[self.exact_lengths]),
            ("token ids", _yes(self.token_ids)),
            ("token counts", "while a call runs" if self.counts else "at its end only"),
            ("log-probs", _yes(self.log_probs)),
            ("priorities", _yes(self.priorities)),
            ("versions", versions),
            ("pause, resume", _yes(self.pause)),
            ("abort", "by id" if self.abort else "by cutting the connection; tokens under way are not counted"),
            ("rebuild KV in place", "yes" if self.reset else "no; cached prefixes outlive updates"),
            ("load weights in place", _yes(self.update)),
            ("sleep, wake", _yes(self.sleep)),
            ("gauges", ", ".join(sorted(self.gauges)) or "no"),
            ("longest sequence", f"{self.max_model_len} tokens" if self.max_model_len else "it does not say"),
        ]


_PROTOCOLS = {
    "tokens": "/inference/v1/generate, token ids",
    "completions": "/v1/completions, token ids",
    "text": "/v1/completions, text",
    "chat": "/v1/chat/completions, text",
}
_LENGTHS = {
    "declared": "exact (ignore_eos in its schema, and tried)",
    "seen": "exact in trials (ignore_eos taken; every call is checked)",
    "": "the model's own",
}


def _yes(offered: bool) -> str:
    return "yes" if offered else "no"
