"""Probe of a server's capabilities: a handful of calls of a few tokens before the run begins."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any

from rlsim.core.errors import ParameterError
from rlsim.live.openai.capabilities import ApiProtocol, Prompt, ServerCapabilities
from rlsim.live.openai.client import Client, ServerFaultError
from rlsim.live.openai.gauges import read_gauges
from rlsim.live.openai.protocols import OPTIONAL, PATHS, GenerateRequest, Piece, body, piece, text_prompt
from rlsim.live.openai.settings import ServerSettings

_TRIAL_TOKENS = 16
_EXACT_TRIALS = 4
_WORDS = (
    (" a", " b", " c", " d", " the", " of", " to", " in"),
    (" one", " two", " red", " day", " sun", " cat", " dog", " man"),
    ("A", "B", "C", "D", "E", "F", "G", "H"),
)
"""Sets that many tokenizers take as one token a word; the last is for those that spell."""


async def probe(settings: ServerSettings) -> ServerCapabilities:
    """The capabilities of one server.

    Raises ``EngineLostError`` when it is not there, ``ParameterError`` when it makes no calls.
    """
    client = Client(settings)
    try:
        return await _Probe(settings, client).capabilities()
    finally:
        await client.close()


async def probe_all(settings: tuple[ServerSettings, ...]) -> tuple[ServerCapabilities, ...]:
    """The capabilities of all servers, in order."""
    return tuple(await asyncio.gather(*(probe(one) for one in settings)))


@dataclass(frozen=True, slots=True)
class _Model:
    name: str
    longest: int


class _Probe:
    def __init__(self, settings: ServerSettings, client: Client) -> None:
        self._settings, self._client = settings, client

    async def capabilities(self) -> ServerCapabilities:
        model = await self._model()
        declared = await self._declared()
        protocol, prompt = await self._protocol(model.name)
        capabilities = ServerCapabilities(self._settings.url, model.name, protocol, frozenset(), prompt=prompt)
        capabilities = replace(capabilities, max_model_len=model.longest, fields=await self._fields(capabilities))
        capabilities = await self._with_answers(capabilities, declared)
        # Capabilities beside OpenAI's interface.
        version = await self._has("GET", "/weight_info", "weight_version")
        pause = await self._has("GET", "/is_paused", "is_paused")
        return replace(
            capabilities,
            weight_version=version,
            pause=pause,
            abort=await self._aborts(capabilities.protocol),
            reset=pause and await self._has("POST", "/reset_prefix_cache", "success"),
            update=version and await self._updates(),
            sleep=await self._has("GET", "/is_sleeping", "is_sleeping"),
            gauges=await self._gauges(),
        )

    async def _model(self) -> _Model:
        """The model asked for, or the first that is listed."""
        status, answer = await self._client.ask("GET", "/v1/models")
        if status in (401, 403):
            raise ParameterError("live.api_key_env", f"{self._settings.url} answered {status}", "a key that it accepts")
        listed = {str(one.get("id")): one for one in answer.get("data") or []} if _is_good(status, answer) else {}
        name = self._settings.model or next(iter(listed), "")
        if not name:
            models = f"{self._settings.url} lists none"
            raise ParameterError("live.server_model", models, "the name that the server knows the model by")
        if listed and name not in listed:
            raise ParameterError("live.server_model", name, f"a model of {self._settings.url}: {', '.join(listed)}")
        return _Model(name, _longest(listed.get(name, {})))

    async def _declared(self) -> frozenset[str]:
        """Fields of a completion request in the server's own schema; empty where it shows none."""
        status, answer = await self._client.ask("GET", "/openapi.json")
        schemas = (answer.get("components") or {}).get("schemas") or {} if _is_good(status, answer) else {}
        return frozenset((schemas.get("CompletionRequest") or {}).get("properties") or {})

    async def _protocol(self, model: str) -> tuple[ApiProtocol, Prompt | None]:
        """The most telling way of making calls that works."""
        reasons = []
        for protocol in PATHS:
            try:
                prompt = await self._prompt(protocol, model) if protocol in ("text", "chat") else None
                await self._trial(ServerCapabilities("", model, protocol, frozenset(), prompt=prompt), 2)
            except ServerFaultError as error:
                reasons.append(str(error))
            else:
                return protocol, prompt
        raise ParameterError("live.servers", "; ".join(reasons), "a server that completes token ids or text")

    async def _prompt(self, protocol: ApiProtocol, model: str) -> Prompt:
        """Words that are one token each, by the server's own count of two prompts."""
        for words in _WORDS:
            guess = Prompt(words, 0)
            capabilities = ServerCapabilities("", model, protocol, frozenset(), prompt=guess)
            short, long = [await self._prompt_tokens(capabilities, count) for count in (8, 40)]
            if long - short == 32 and short >= 8:
                return Prompt(words, short - 8)
        raise ServerFaultError(f"{self._settings.url}: no text was found whose tokens can be counted beforehand")

    async def _prompt_tokens(self, capabilities: ServerCapabilities, context_tokens: int) -> int:
        """By its own count, whether it gives that unasked or has to be asked."""
        for fields in (frozenset({"stream_options"}), frozenset[str]()):
            with suppress(ServerFaultError):
                pieces = await self._trial(capabilities, 1, context_tokens, fields)
                counts = [one.prompt_tokens for one in pieces if one.prompt_tokens is not None]
                if counts:
                    return counts[-1]
        await self._trial(capabilities, 1, context_tokens)
        raise ServerFaultError(f"{self._settings.url}: it does not say how many tokens a call had")

    async def _fields(self, capabilities: ServerCapabilities) -> frozenset[str]:
        """Optional fields that it does not refuse; a priority is tried at a level of its own."""
        taken = set()
        for name in OPTIONAL:
            try:
                await self._trial(capabilities, 1, fields=frozenset({name}))
            except ServerFaultError:
                continue
            taken.add(name)
        return frozenset(taken)

    async def _with_answers(self, capabilities: ServerCapabilities, declared: frozenset[str]) -> ServerCapabilities:
        """Capabilities that the answers to calls with all fields show."""
        trials = [self._trial(capabilities, _TRIAL_TOKENS, fields=capabilities.fields) for _ in range(_EXACT_TRIALS)]
        answers = await asyncio.gather(*trials)
        tokens = [_token_count(pieces) for pieces in answers]
        if None in tokens:
            raise ParameterError("live.servers", capabilities.url, "a server that says how many tokens it made (usage)")
        exact = all(count == _TRIAL_TOKENS for count in tokens) and "ignore_eos" in capabilities.fields
        pairs = list(zip(answers, tokens, strict=True))
        ids = all(sum(len(p.tokens or ()) for p in one) == count for one, count in pairs)
        return replace(
            capabilities,
            exact_lengths=("declared" if "ignore_eos" in declared else "seen") if exact else "",
            token_ids=ids,
            counts=all(
                p.tokens or p.output_tokens is not None for one in answers for p in one if p.tokens or p.has_text
            ),
            log_probs=ids and all(sum(len(p.log_probs) for p in one) == count for one, count in pairs),
            priorities="priority" in capabilities.fields & declared,
            span_versions=all(any(p.spans for p in one) for one in answers),
        )

    async def _aborts(self, protocol: ApiProtocol) -> bool:
        path = abort_path(protocol)
        return (await self._client.ask("POST", path, {"request_ids": ["rlsim-none"]}))[0] == 200

    async def _updates(self) -> bool:
        """Whether a weight transfer backend is there: it takes an empty introduction."""
        return (await self._client.ask("POST", "/init_weight_transfer_engine", {"init_info": {}}))[0] == 200

    async def _has(self, method: str, path: str, key: str) -> bool:
        status, answer = await self._client.ask(method, path)
        return _is_good(status, answer) and key in answer

    async def _gauges(self) -> frozenset[str]:
        status, answer = await self._client.ask("GET", "/metrics")
        try:
            return frozenset(read_gauges(answer)) if status == 200 and isinstance(answer, str) else frozenset()
        except ValueError:
            return frozenset()

    async def _trial(
        self,
        capabilities: ServerCapabilities,
        tokens: int,
        context_tokens: int = 8,
        fields: frozenset[str] = frozenset(),
    ) -> list[Piece]:
        """A call of a few tokens: its pieces."""
        context = [3 + (7 * place * place + place) % 61 for place in range(context_tokens)]
        prompt = context if capabilities.prompt is None else text_prompt(capabilities.prompt, context)
        request = GenerateRequest(
            prompt,
            tokens,
            ignore_eos=True,
            priority=int(fields == {"priority"}),
            name=f"rlsim-probe-{uuid.uuid4().hex}",
        )
        async with aclosing(
            self._client.stream(
                PATHS[capabilities.protocol], body(capabilities.protocol, capabilities.model, request, fields)
            )
        ) as chunks:
            return [piece(chunk) async for chunk in chunks]


def abort_path(protocol: ApiProtocol) -> str:
    """Path at which calls of this protocol are ended by id."""
    return "/inference/v1/abort_requests" if protocol == "tokens" else "/abort_requests"


def _is_good(status: int, answer: Any) -> bool:
    return status == 200 and isinstance(answer, dict)


def _longest(listed: dict[str, Any]) -> int:
    """As vLLM says it, or llama.cpp for one of its slots."""
    return int(listed.get("max_model_len") or (listed.get("meta") or {}).get("n_ctx") or 0)


def _token_count(pieces: list[Piece]) -> int | None:
    """Tokens of a finished call: as it says at the end, or as many ids as it gave."""
    counts = [piece.output_tokens for piece in pieces if piece.output_tokens is not None]
    return counts[-1] if counts else sum(len(piece.tokens or ()) for piece in pieces) or None
