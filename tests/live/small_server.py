"""A server of our own on the loopback that speaks as much of the protocol as it is told to, and misbehaves on order."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

WORD_TOKENS = 3
"""Tokens that a server which takes text adds to every prompt."""


@dataclass
class SmallServer:
    """``async with SmallServer(...) as server``; what is set on it later holds from then on."""

    dev: bool = True
    """Pause, abort, versions, weights."""
    scale_out: bool = False
    """vLLM's token-in token-out calls, with the versions of each token."""
    ids: bool = True
    """Whether it takes and gives token ids."""
    fields: set[str] | None = None
    """Optional fields that it takes; None for any."""
    declares: bool = True
    usage: str = "always"
    """always, end, never."""
    eos_after: int | None = None
    """Tokens after which the model ends its response."""
    ignores_ignore_eos: bool = False
    step_seconds: float = 0.0
    tokens_a_chunk: int = 1
    bytes_a_write: int = 1 << 20
    miscounts_prompts: int = 0
    metrics: str = ""
    key: str = ""
    status: int = 200
    """Of generate calls; the answer's text is ``complaint``."""
    complaint: str = "no"
    redirect: str = ""
    cut_after: int | None = None
    """Tokens after which the connection breaks."""
    hang_after: int | None = None
    garbage_after: int | None = None
    garbage: str = "data: {half a chunk\n\n"
    answers_version: str = ""
    """What it says it serves, whatever it was told."""
    refuses_reset: bool = False
    version: str = "default"
    running: int = 0
    most_running: int = 0
    disconnects: int = 0
    sent_tokens: int = 0
    """Of the last call."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    aborted: set[str] = field(default_factory=set)
    going: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def __aenter__(self) -> SmallServer:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        self.going.set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.going.set()
        self.hang_after = 0
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        self.requests.append(f"{request.method} {request.path_qs}")
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "wrong key"}}, status=401)
        path = request.path
        if path in ("/v1/completions", "/v1/chat/completions") or (path == "/inference/v1/generate" and self.scale_out):
            return await self._generate(request)
        plain = {"/v1/models": self._models, "/openapi.json": self._schema, "/metrics": self._metrics}
        rl = {
            "/is_paused": lambda: {"is_paused": not self.going.is_set()},
            "/pause": self._pause,
            "/resume": self._resume,
            "/weight_info": lambda: {"weight_version": self.answers_version or self.version},
            "/reset_prefix_cache": lambda: {"success": not self.refuses_reset},
            "/init_weight_transfer_engine": dict,
            "/start_weight_update": dict,
            "/update_weights": dict,
            "/is_sleeping": lambda: {"is_sleeping": False},
            "/sleep": dict,
            "/wake_up": dict,
        }
        if path in plain:
            return plain[path]()
        if not self.dev:
            return web.Response(status=404)
        if path in rl:
            return web.json_response(rl[path]())
        return await self._told(path, await request.json())

    async def _told(self, path: str, body: dict[str, Any]) -> web.Response:
        if path in ("/update_weight_version", "/finish_weight_update"):
            self.version = body.get("new_version") or body["weight_version"]
            return web.json_response({})
        if path in ("/abort_requests", "/inference/v1/abort_requests"):
            self.aborted |= set(body["request_ids"])
            return web.json_response({"status": "aborted"})
        return web.Response(status=404)

    def _models(self) -> web.Response:
        return web.json_response({"data": [{"id": "small", "max_model_len": 512}, {"id": "other"}]})

    def _schema(self) -> web.Response:
        if not self.declares:
            return web.Response(status=404)
        properties = {name: {} for name in ("prompt", "max_tokens", "ignore_eos", "priority")}
        return web.json_response({"components": {"schemas": {"CompletionRequest": {"properties": properties}}}})

    def _metrics(self) -> web.Response:
        return web.Response(text=self.metrics, status=200 if self.metrics else 404)

    def _pause(self) -> dict[str, str]:
        self.going.clear()
        return {"status": "paused"}

    def _resume(self) -> dict[str, str]:
        self.going.set()
        return {"status": "resumed"}

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        if self.redirect:
            return web.Response(status=307, headers={"Location": self.redirect})
        refusal = self._refusal(request.path, body)
        if refusal:
            return web.json_response({"error": {"message": refusal}}, status=self.status if self.status != 200 else 400)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self._tokens(request, answer, body)
        except (ConnectionError, asyncio.CancelledError):
            self.disconnects += 1
            raise
        finally:
            self.running -= 1
        return answer

    def _refusal(self, path: str, body: dict[str, Any]) -> str:
        if self.status != 200:
            return self.complaint
        if not self.ids and (path == "/inference/v1/generate" or isinstance(body.get("prompt"), list)):
            return "prompt must be a string"
        known = {"model", "prompt", "messages", "token_ids", "sampling_params", "max_tokens", "temperature", "stream"}
        strange = set(body) - known - (self.fields or set())
        return f"unexpected fields: {sorted(strange)}" if self.fields is not None and strange else ""

    def _prompt_tokens(self, body: dict[str, Any]) -> int:
        prompt = body.get("token_ids") or body.get("prompt") or body["messages"][0]["content"]
        count = len(prompt) if isinstance(prompt, list) else len(prompt.split()) + WORD_TOKENS
        return count + self.miscounts_prompts

    async def _tokens(self, request: web.Request, answer: web.StreamResponse, body: dict[str, Any]) -> None:
        told = {**body, **body.get("sampling_params", {})}
        limit, name = told["max_tokens"], str(told.get("request_id", "anonymous"))
        ends = None if told.get("ignore_eos") and not self.ignores_ignore_eos else self.eos_after
        versions: list[str] = []
        while True:
            await self.going.wait()
            if await self._misbehaves(request, answer, len(versions)):
                return
            aborted = bool(self.aborted & {name, f"{name}-0"})
            many = 0 if aborted else min(self.tokens_a_chunk, min(limit, ends or limit) - len(versions))
            versions += [self.version] * many
            self.sent_tokens = len(versions)
            reason = self._reason(aborted, len(versions), limit, ends)
            chunk = self._chunk(request.path, name, body, versions, many, reason)
            await self._send(answer, f"data: {json.dumps(chunk)}\n\n")
            if reason:
                return await self._send(answer, ": a comment\n\ndata: [DONE]\n\n")
            await asyncio.sleep(self.step_seconds)

    async def _misbehaves(self, request: web.Request, answer: web.StreamResponse, tokens: int) -> bool:
        if self.hang_after is not None and tokens >= self.hang_after:
            while self.hang_after and request.transport is not None:
                await asyncio.sleep(0.01)
            raise ConnectionResetError
        if self.cut_after is not None and tokens >= self.cut_after:
            if request.transport is not None:
                request.transport.abort()
            return True
        if self.garbage_after is not None and tokens >= self.garbage_after:
            await self._send(answer, self.garbage)
            return True
        return False

    def _reason(self, aborted: bool, tokens: int, limit: int, ends: int | None) -> str | None:
        if aborted:
            return "abort"
        if ends is not None and tokens >= ends:
            return "stop"
        return "length" if tokens >= limit else None

    def _chunk(
        self, path: str, name: str, body: dict[str, Any], versions: list[str], many: int, reason: str | None
    ) -> dict[str, Any]:
        made, wants = len(versions), body.get("return_token_ids") or path == "/inference/v1/generate"
        ids = [token_at(place) for place in range(made - many, made)]
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        text = " word" * many
        choice |= {"delta": {"content": text}} if "chat" in path else {"text": text}
        if self.ids and wants:
            choice["token_ids"] = ids
        if self.ids and (body.get("logprobs") is not None or "logprobs" in body.get("sampling_params", {})):
            choice["logprobs"] = {"content": [{"token_id": one, "logprob": -one / 8} for one in ids]}
        if reason and path == "/inference/v1/generate":
            choice["weight_versions"] = _spans(versions)
        chunk: dict[str, Any] = {"id": name, "choices": [choice]}
        if self.usage == "always" or (self.usage == "end" and reason):
            chunk["usage"] = {"prompt_tokens": self._prompt_tokens(body), "completion_tokens": made}
        return chunk

    async def _send(self, answer: web.StreamResponse, text: str) -> None:
        data = text.encode()
        for start in range(0, len(data), self.bytes_a_write):
            await answer.write(data[start : start + self.bytes_a_write])


def token_at(place: int) -> int:
    """The token that the model makes at a place of its response."""
    return 7 + place % 50


def _spans(versions: list[str]) -> list[dict[str, Any]]:
    spans: list[dict[str, Any]] = []
    for place, version in enumerate(versions):
        if spans and spans[-1]["version"] == version:
            spans[-1]["end"] = place + 1
        else:
            spans.append({"version": version, "start": place, "end": place + 1})
    return spans
