"""A replica that is an OpenAI-compatible server somewhere: vLLM, llama.cpp, transformers and their like.

Missing capabilities are refused before the run (``rlsim/live/openai/refusals.py``); a promise that the server does not
keep ends the run with ``ServerFaultError``.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Literal

from rlsim.core.errors import RlsimError
from rlsim.core.log import WindowRow
from rlsim.core.ticks import Ticks
from rlsim.live.openai.capabilities import ServerCapabilities
from rlsim.live.openai.client import Client, ServerFaultError
from rlsim.live.openai.gauges import GaugeRow, gauge_row, preemptions, read_gauges
from rlsim.live.openai.probe import abort_path, probe
from rlsim.live.openai.protocols import PATHS, GenerateRequest, Piece, body, piece, text_prompt
from rlsim.live.openai.settings import ServerSettings
from rlsim.live.protocols import Call, CallOutput, EngineLostError, Marked, Now, Record, Weights
from rlsim.live.running import MarkTeller


class BusyWindows:
    """Windows between changes of the number of calls under way; their steps cannot be seen from outside, and are 0."""

    def __init__(self, replica: int) -> None:
        self.rows: list[WindowRow] = []
        """In order; none where nothing was under way."""
        self._replica, self._since, self._calls = replica, 0, 0

    def change(self, now: Ticks, calls: int) -> None:
        """So many calls are under way from now on."""
        if calls == self._calls:
            return
        if self._calls and now > self._since:
            row = WindowRow(
                replica=self._replica,
                start=self._since,
                end=now,
                steps=0,
                decodes=self._calls,
                chunks=0,
                prefill_tokens=0,
                kv_tokens=0,
            )
            self.rows.append(row)
        self._since, self._calls = now, calls


UNKNOWN_TOKEN = 0
"""Id of every token of a server that does not say which it sampled."""


@dataclass(slots=True)
class _OpenCall:
    """A call under way."""

    output: CallOutput
    version: int
    name: str
    """Request id: ours, then the server's own as soon as it tells."""
    heard_at: float
    """On the loop's clock: the last byte, or the end of the last pause."""
    reading: asyncio.Task[None] | None = None
    cut: Literal["", "abort", "silence", "close"] = ""
    """Why its connection is being cut."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class OpenAiEngine:
    """One server as an ``Engine``; ``capabilities`` if it has been probed already, ``replica`` for its own record."""

    def __init__(
        self, settings: ServerSettings, now: Now, capabilities: ServerCapabilities | None = None, replica: int = 0
    ) -> None:
        self.settings, self.capabilities = settings, capabilities
        self.gauges: list[GaugeRow] = []
        """The server's gauges every ``gauge_seconds``, where it has some."""
        self._now, self._client, self._busy = now, Client(settings), BusyWindows(replica)
        self._open: dict[int, _OpenCall] = {}
        self._version = self._preemptions_before = 0
        self._connections = asyncio.Semaphore(settings.patience.max_connections)
        self._going = asyncio.Event()
        self._going.set()
        self._minders: list[asyncio.Task[None]] = []
        self._marks = MarkTeller()

    def set_marked(self, marked: Marked) -> None:
        """Tell ``marked`` when a call comes to one of its marks."""
        self._marks.marked = marked

    async def start(self) -> None:
        """Probe the server, unless its capabilities are known, and call its weights version 0."""
        if self.capabilities is None:
            self.capabilities = await probe(self.settings)
        if self.capabilities.weight_version:
            await self._client.must("POST", "/update_weight_version", {"new_version": "0"})
        self._preemptions_before = await self._preemptions()
        self._minders.append(asyncio.create_task(self._watch_silence()))
        if self.capabilities.gauges and self.settings.patience.gauge_seconds is not None:
            self._minders.append(asyncio.create_task(self._sample_gauges()))

    @property
    def _has(self) -> ServerCapabilities:
        if self.capabilities is None:
            raise RlsimError(f"{self.settings.url}: not started")
        return self.capabilities

    async def generate(self, call: Call, output: CallOutput) -> None:
        """Run a call; ``EngineLostError`` when the server is gone or silent, ``ServerFaultError`` when it refuses."""
        if not self._has.pause:
            await self._going.wait()
        async with self._connections:
            name = f"rlsim-{call.sample}-{uuid.uuid4().hex[:12]}"
            opened = self._open[call.sample] = _OpenCall(output, self._version, name, _loop_seconds())
            opened.reading = asyncio.ensure_future(self._read(call, opened))
            self._update_busy()
            try:
                await opened.reading
            except asyncio.CancelledError:
                self._cut(opened)
            finally:
                opened.ended.set()
                del self._open[call.sample]
                self._update_busy()
        count = len(output.tokens)
        if call.ignore_eos and output.reason != "abort" and count != call.max_tokens:
            promise = f"{count} tokens ({output.reason}) where {call.max_tokens} were ordered"
            raise ServerFaultError(f"{self.settings.url}: made {promise}: ignore_eos is not honoured")

    def _update_busy(self) -> None:
        """Count the calls that are under way from now on; none while the server is paused."""
        frozen = self._has.pause and not self._going.is_set()
        self._busy.change(self._now(), 0 if frozen else len(self._open))

    def _cut(self, opened: _OpenCall) -> None:
        """End a call whose reading was cancelled, by the reason of the cut; pass on a cancellation from outside."""
        if opened.cut in ("abort", "close"):
            opened.output.reason = "abort"
            # a cut call has no spans: its tokens are those of one version, or nobody knows of which
            is_mixed = bool(opened.output.tokens) and opened.version != self._version
            if opened.cut == "abort" and is_mixed and self._has.span_versions:
                text = "a call was cut after an update, without the server's word on which tokens each version made"
                raise ServerFaultError(f"{self.settings.url}: {text}")
        elif opened.cut == "silence":
            waited = self.settings.patience.silence_seconds
            raise self._client.lost(f"nothing came for {waited:g} s of a call (live.request_timeout_seconds)")
        else:
            raise asyncio.CancelledError

    async def _read(self, call: Call, opened: _OpenCall) -> None:
        server = self._has
        prompt = list(call.context) if server.prompt is None else text_prompt(server.prompt, call.context)
        request = GenerateRequest(prompt, call.max_tokens, call.ignore_eos, call.priority, opened.name)
        # a server without priority scheduling is sent no priority
        fields = server.fields if server.priorities else server.fields - {"priority"}
        sent = body(server.protocol, server.model, request, fields)
        last: Piece | None = None
        async with aclosing(self._client.stream(PATHS[server.protocol], sent)) as chunks:
            async for chunk in chunks:
                try:
                    last = piece(chunk)
                except ValueError as error:
                    raise self._client.lost(error) from error
                opened.heard_at, before = _loop_seconds(), len(opened.output.tokens)
                self._take(opened, last)
                self._marks.grown(call, opened.output, before, bool(opened.output.reason))
                added = server.prompt.overhead_tokens if server.prompt else 0
                if last.prompt_tokens is not None and last.prompt_tokens != len(call.context) + added:
                    text = f"counted a prompt of {len(call.context)} tokens as {last.prompt_tokens - added}"
                    raise ServerFaultError(f"{self.settings.url}: {text}")
        if not opened.output.reason:
            raise self._client.lost("the connection was cut amid a call")
        if not server.counts and (last is None or last.output_tokens is None):
            raise self._client.lost("a call ended without a count of its tokens (usage)")

    def _take(self, opened: _OpenCall, piece: Piece) -> None:
        """Add the tokens, versions and end of a piece; a server's own spans are versions of the run."""
        output, before = opened.output, len(opened.output.tokens)
        opened.name = piece.name or opened.name
        self._take_tokens(output, piece)
        count = len(output.tokens)
        if output.tokens and output.first_token_at < 0:
            output.first_token_at = self._now()
        if count != before:
            output.segments = ((opened.version, count),)
        if piece.spans:
            if sum(tokens for _, tokens in piece.spans) != count or not all(text.isdigit() for text, _ in piece.spans):
                raise self._client.lost(f"weight versions {piece.spans} of {count} tokens")
            output.segments = tuple((int(text), tokens) for text, tokens in piece.spans if tokens)
        if piece.reason:
            if piece.reason not in ("stop", "length", "abort"):
                raise self._client.lost(f"a call ended with reason {piece.reason!r}")
            output.reason = piece.reason  # type: ignore[assignment]

    def _take_tokens(self, output: CallOutput, piece: Piece) -> None:
        """Ids where the server gives them; otherwise so many, by its count or, until it counts, one a piece of text."""
        if self._has.token_ids:
            output.tokens.extend(piece.tokens or ())
            if self._has.log_probs:
                output.log_probs.extend(piece.log_probs)
            return
        count = len(output.tokens) + piece.has_text if piece.output_tokens is None else piece.output_tokens
        del output.tokens[count:]
        output.tokens.extend([UNKNOWN_TOKEN] * (count - len(output.tokens)))

    async def abort(self, samples: Sequence[int]) -> None:
        """End calls by their ids where the server can; those that go on, and all others, by cutting their connections.

        Tokens under way when a connection is cut are lost, and nobody counts them.
        """
        calls = [self._open[sample] for sample in samples if sample in self._open]
        if calls and not self._has.counts:
            raise ServerFaultError(f"{self.settings.url}: calls are cut, and it does not count tokens while they run")
        await self._abort_by_id(calls)
        await self._disconnect(calls, "abort")

    async def _abort_by_id(self, calls: Sequence[_OpenCall]) -> None:
        if calls and self._has.abort:
            # vLLM's engine knows a call by one of these: a completion's has the number of its choice behind it
            patterns = ("{0}", "{0}-0", "cmpl-{0}-0", "generate-tokens-{0}")
            names = [pattern.format(call.name) for call in calls for pattern in patterns]
            await self._client.must("POST", abort_path(self._has.protocol), {"request_ids": names})
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.patience.abort_seconds):
                    for call in calls:
                        await call.ended.wait()

    async def _disconnect(self, calls: Sequence[_OpenCall], why: Literal["abort", "close"]) -> None:
        """Cut the connections of those that have not ended."""
        for call in calls:
            if not call.ended.is_set() and call.reading is not None:
                call.cut = why
                call.reading.cancel()
        for call in calls:
            await call.ended.wait()

    async def pause(self) -> None:
        """Freeze calls where the server can; where it cannot, those under way go on, and none begins."""
        self._going.clear()
        if self._has.pause:
            await self._client.must("POST", "/pause", params={"mode": "keep", "clear_cache": "false"})
            self._update_busy()

    async def resume(self) -> None:
        if self._has.pause:
            await self._client.must("POST", "/resume")
        for call in self._open.values():
            call.heard_at = _loop_seconds()
        self._going.set()
        self._update_busy()

    async def load(self, weights: Weights, reset: bool) -> int:
        """Bring weights in where there are some, set the version, and return the one that the server then serves.

        A server that knows no versions serves what it was told to, by the client's own count.
        """
        if self._open and not self._has.pause:
            text = f"cannot pause, and {len(self._open)} calls are under way while weights change"
            raise ServerFaultError(f"{self.settings.url}: {text}")
        if weights.file is not None:
            await self._transfer(weights)
        elif self._has.weight_version:
            await self._client.must("POST", "/update_weight_version", {"new_version": str(weights.version)})
        if reset and self._has.reset:
            params = {"reset_running_requests": "true"}
            answer = await self._client.must("POST", "/reset_prefix_cache", params=params)
            if not (isinstance(answer, dict) and answer.get("success")):
                raise ServerFaultError(f"{self.settings.url}: KV was not dropped")
        self._version = await self._served() if self._has.weight_version else weights.version
        return self._version

    async def _transfer(self, weights: Weights) -> None:
        if not self._has.update:
            raise ServerFaultError(f"{self.settings.url}: cannot load weights in place")
        await self._client.must("POST", "/start_weight_update")
        await self._client.must("POST", "/update_weights", {"update_info": {"path": str(weights.file)}})
        await self._client.must("POST", "/finish_weight_update", {"weight_version": str(weights.version)})

    async def _served(self) -> int:
        answer = await self._client.must("GET", "/weight_info")
        text = str(answer.get("weight_version")) if isinstance(answer, dict) else str(answer)
        if not text.isdigit():
            raise ServerFaultError(f"{self.settings.url}: serves weights {text!r}, which is no version of this run")
        return int(text)

    async def sleep(self) -> None:
        """Give the device's memory to the trainer."""
        await self._client.must("POST", "/sleep", params={"level": "1"})

    async def wake(self) -> None:
        await self._client.must("POST", "/wake_up")

    async def close(self) -> Record:
        """Cut what is open. A server tells no engine steps: the record has when how many calls were under way here.

        How often it preempted is known only where it keeps count.
        """
        for minder in self._minders:
            minder.cancel()
        await asyncio.gather(*self._minders, return_exceptions=True)
        calls = list(self._open.values())
        if self.capabilities is not None:
            with suppress(RlsimError):
                await self._abort_by_id(calls)
        await self._disconnect(calls, "close")
        if self.capabilities is not None and self._has.pause and not self._going.is_set():
            # a run may end in the middle of a publication: the server is not ours to leave paused
            with suppress(RlsimError):
                await self._client.must("POST", "/resume")
        counted = await self._preemptions()
        await self._client.close()
        return Record(self._busy.rows, preemptions=counted - self._preemptions_before)

    async def _preemptions(self) -> int:
        """Since the server started, by its own count; 0 where it keeps none or is gone."""
        with suppress(EngineLostError, ValueError):
            status, answer = await self._client.ask("GET", "/metrics")
            if status == 200 and isinstance(answer, str):
                return preemptions(answer)
        return self._preemptions_before

    async def _watch_silence(self) -> None:
        """Cut calls of which nothing has come for too long; a paused server may be silent."""
        limit = self.settings.patience.silence_seconds
        while True:
            await asyncio.sleep(min(1.0, limit / 4))
            if not self._going.is_set():
                continue
            for call in self._open.values():
                if _loop_seconds() - call.heard_at > limit and call.reading is not None:
                    call.cut = "silence"
                    call.reading.cancel()

    async def _sample_gauges(self) -> None:
        """Rows at an interval; a scrape that fails leaves none."""
        while True:
            with suppress(EngineLostError, ValueError):
                status, answer = await self._client.ask("GET", "/metrics")
                if status == 200 and isinstance(answer, str):
                    self.gauges.append(gauge_row(self._now(), read_gauges(answer)))
            await asyncio.sleep(self.settings.patience.gauge_seconds or 0.0)


def _loop_seconds() -> float:
    return asyncio.get_running_loop().time()
