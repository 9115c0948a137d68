"""A replica that is an OpenAI-compatible server somewhere: vLLM, llama.cpp, transformers and their like.

What the server does not offer is refused before the run (``rlsim/live/openai/refusals.py``); what it promised and does
not keep ends the run with ``ServerFaultError``.

When a replica had work, as seen from outside it.
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
from rlsim.live.openai.capabilities import ServerOffers
from rlsim.live.openai.client import Client, ServerFaultError
from rlsim.live.openai.dialects import PATHS, Order, Piece, body, piece, text_prompt
from rlsim.live.openai.gauges import GaugeRow, gauge_row, preemptions, read_gauges
from rlsim.live.openai.probe import abort_path, probe
from rlsim.live.openai.settings import ServerSettings
from rlsim.live.protocols import Call, EngineLostError, Made, Marked, Now, Record, Weights
from rlsim.live.running import MarkTeller


class Busy:
    """Windows between changes of the number of calls under way; their steps are not known, and 0."""

    def __init__(self, replica: int) -> None:
        self.rows: list[WindowRow] = []
        """In order; none where nothing was under way."""
        self._replica, self._since, self._calls = replica, 0, 0

    def change(self, now: Ticks, calls: int) -> None:
        """So many calls are under way from now on."""
        if calls == self._calls:
            return
        if self._calls and now > self._since:
            self.rows.append(WindowRow(self._replica, self._since, now, 0, self._calls, 0, 0, 0))
        self._since, self._calls = now, calls


UNKNOWN_TOKEN = 0
"""Stands for every token of a server that does not say which it made."""


@dataclass(slots=True)
class _Open:
    """A call under way."""

    made: Made
    version: int
    name: str
    """Its id: ours, then the server's own as soon as it tells."""
    heard_at: float
    """On the loop's clock: the last byte, or the end of the last pause."""
    reading: asyncio.Task[None] | None = None
    cut: Literal["", "abort", "silence", "close"] = ""
    """Why its connection is being cut."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class OpenAiEngine:
    """One server as an ``Engine``; ``offers`` if it has been probed already, ``replica`` for its own record."""

    def __init__(
        self, settings: ServerSettings, now: Now, offers: ServerOffers | None = None, replica: int = 0
    ) -> None:
        self.settings, self.offers = settings, offers
        self.gauges: list[GaugeRow] = []
        """The server's gauges every ``gauge_seconds``, where it has some."""
        self._now, self._client, self._busy = now, Client(settings), Busy(replica)
        self._open: dict[int, _Open] = {}
        self._version = self._preemptions_before = 0
        self._seats = asyncio.Semaphore(settings.patience.max_connections)
        self._going = asyncio.Event()
        self._going.set()
        self._minders: list[asyncio.Task[None]] = []
        self._marks = MarkTeller()

    def set_marked(self, marked: Marked) -> None:
        """Tell ``marked`` when a call comes to one of its marks."""
        self._marks.marked = marked

    async def start(self) -> None:
        """Find out what it offers, unless that is known, and call its weights version 0."""
        if self.offers is None:
            self.offers = await probe(self.settings)
        if self.offers.weight_version:
            await self._client.must("POST", "/update_weight_version", {"new_version": "0"})
        self._preemptions_before = await self._preemptions()
        self._minders.append(asyncio.create_task(self._watch_silence()))
        if self.offers.gauges and self.settings.patience.gauge_seconds is not None:
            self._minders.append(asyncio.create_task(self._sample_gauges()))

    @property
    def _has(self) -> ServerOffers:
        if self.offers is None:
            raise RlsimError(f"{self.settings.url}: not started")
        return self.offers

    async def generate(self, call: Call, made: Made) -> None:
        """Run a call; ``EngineLostError`` when the server is gone or silent, ``ServerFaultError`` when it refuses."""
        if not self._has.pause:
            await self._going.wait()
        async with self._seats:
            await self._call(call, made)
        self._check_length(call, made)

    async def _call(self, call: Call, made: Made) -> None:
        opened = _Open(made, self._version, f"rlsim-{call.sample}-{uuid.uuid4().hex[:12]}", _loop_seconds())
        opened.reading = asyncio.ensure_future(self._read(call, opened))
        self._open[call.sample] = opened
        self._note()
        try:
            await opened.reading
        except asyncio.CancelledError:
            self._cut(opened)
        finally:
            opened.ended.set()
            del self._open[call.sample]
            self._note()

    def _note(self) -> None:
        """How many calls are under way from now on; none while the server is paused."""
        frozen = self._has.pause and not self._going.is_set()
        self._busy.change(self._now(), 0 if frozen else len(self._open))

    def _cut(self, opened: _Open) -> None:
        """Tell why reading was cancelled; by nobody here: pass it on."""
        if opened.cut in ("abort", "close"):
            opened.made.reason = "abort"
            if opened.cut == "abort":
                self._check_versions(opened)
        elif opened.cut == "silence":
            waited = self.settings.patience.silence_seconds
            raise self._client.lost(f"nothing came for {waited:g} s of a call (live.request_timeout_seconds)")
        else:
            raise asyncio.CancelledError

    def _check_versions(self, opened: _Open) -> None:
        """A cut call has no spans: its tokens are those of one version, or nobody knows of which."""
        if opened.made.tokens and opened.version != self._version and self._has.span_versions:
            text = "a call was cut after an update, without the server's word on which tokens each version made"
            raise ServerFaultError(f"{self.settings.url}: {text}")

    def _check_length(self, call: Call, made: Made) -> None:
        count = len(made.tokens)
        if call.ignore_eos and made.reason != "abort" and count != call.max_tokens:
            text = (
                f"made {count} tokens ({made.reason}) where {call.max_tokens} were ordered: ignore_eos is not honoured"
            )
            raise ServerFaultError(f"{self.settings.url}: {text}")

    async def _read(self, call: Call, opened: _Open) -> None:
        offers = self._has
        prompt = list(call.context) if offers.prompt is None else text_prompt(offers.prompt, call.context)
        order = Order(prompt, call.max_tokens, call.ignore_eos, call.priority, opened.name)
        sent = body(offers.dialect, offers.model, order, self._fields(order))
        last: Piece | None = None
        async with aclosing(self._client.stream(PATHS[offers.dialect], sent)) as chunks:
            async for chunk in chunks:
                last = self._understood(chunk)
                opened.heard_at, before = _loop_seconds(), len(opened.made.tokens)
                self._take(opened, last)
                self._marks.grown(call, opened.made, before, bool(opened.made.reason))
                self._check_prompt(call, last)
        if not opened.made.reason:
            raise self._client.lost("the connection was cut amid a call")
        if not offers.counts and (last is None or last.made_tokens is None):
            raise self._client.lost("a call ended without a count of its tokens (usage)")

    def _fields(self, order: Order) -> frozenset[str]:
        """A server without priority scheduling is told none."""
        offers = self._has
        return offers.fields if offers.priorities else offers.fields - {"priority"}

    def _understood(self, chunk: object) -> Piece:
        try:
            return piece(chunk)
        except ValueError as error:
            raise self._client.lost(error) from error

    def _take(self, opened: _Open, one: Piece) -> None:
        """Add what a piece brings."""
        made, before = opened.made, len(opened.made.tokens)
        if one.name:
            opened.name = one.name
        self._take_tokens(made, one)
        if made.tokens and made.first_token_at < 0:
            made.first_token_at = self._now()
        if len(made.tokens) != before:
            made.segments = ((opened.version, len(made.tokens)),)
        if one.spans:
            made.segments = self._segments(one, len(made.tokens))
        if one.reason:
            made.reason = self._reason(one.reason)

    def _take_tokens(self, made: Made, one: Piece) -> None:
        """Ids where the server gives them; otherwise so many, by its count or, until it counts, one a piece of text."""
        if self._has.token_ids:
            made.tokens.extend(one.tokens or ())
            if self._has.log_probs:
                made.log_probs.extend(one.log_probs)
            return
        count = len(made.tokens) + one.has_text if one.made_tokens is None else one.made_tokens
        if count < len(made.tokens):
            del made.tokens[count:]
        made.tokens.extend([UNKNOWN_TOKEN] * (count - len(made.tokens)))

    def _segments(self, one: Piece, tokens: int) -> tuple[tuple[int, int], ...]:
        """The server's own spans, as versions of the run."""
        if sum(count for _, count in one.spans) != tokens or not all(text.isdigit() for text, _ in one.spans):
            raise self._client.lost(f"weight versions {one.spans} of {tokens} tokens")
        return tuple((int(text), count) for text, count in one.spans if count)

    def _reason(self, text: str) -> Literal["stop", "length", "abort"]:
        if text not in ("stop", "length", "abort"):
            raise self._client.lost(f"a call ended with reason {text!r}")
        return text  # type: ignore[return-value]

    def _check_prompt(self, call: Call, one: Piece) -> None:
        added = self._has.prompt.overhead_tokens if self._has.prompt else 0
        if one.prompt_tokens is not None and one.prompt_tokens != len(call.context) + added:
            text = f"counted a prompt of {len(call.context)} tokens as {one.prompt_tokens - added}"
            raise ServerFaultError(f"{self.settings.url}: {text}")

    async def abort(self, samples: Sequence[int]) -> None:
        """End calls by their ids where the server can; those that go on, and all others, by cutting their connections.

        Tokens under way when a connection is cut are lost, and nobody counts them.
        """
        calls = [self._open[sample] for sample in samples if sample in self._open]
        if calls and not self._has.counts:
            raise ServerFaultError(f"{self.settings.url}: calls are cut, and it does not count tokens while they run")
        await self._abort_by_id(calls)
        await self._disconnect(calls, "abort")

    async def _abort_by_id(self, calls: Sequence[_Open]) -> None:
        if calls and self._has.abort:
            names = [name for one in calls for name in _server_names(one.name)]
            await self._client.must("POST", abort_path(self._has.dialect), {"request_ids": names})
            await self._await_ends(calls)

    async def _disconnect(self, calls: Sequence[_Open], why: Literal["abort", "close"]) -> None:
        """Cut the connections of those that have not ended."""
        for one in calls:
            if not one.ended.is_set() and one.reading is not None:
                one.cut = why
                one.reading.cancel()
        for one in calls:
            await one.ended.wait()

    async def _await_ends(self, calls: Sequence[_Open]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.patience.abort_seconds):
                for one in calls:
                    await one.ended.wait()

    async def pause(self) -> None:
        """Freeze calls where the server can; where it cannot, those under way go on, and none begins."""
        self._going.clear()
        if self._has.pause:
            await self._client.must("POST", "/pause", params={"mode": "keep", "clear_cache": "false"})
            self._note()

    async def resume(self) -> None:
        """Go on."""
        if self._has.pause:
            await self._client.must("POST", "/resume")
        for one in self._open.values():
            one.heard_at = _loop_seconds()
        self._going.set()
        self._note()

    async def load(self, weights: Weights, reset: bool) -> int:
        """Bring weights in where there are some, tell the version, and say which the server then claims to serve.

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
            await self._reset()
        self._version = await self._served() if self._has.weight_version else weights.version
        return self._version

    async def _transfer(self, weights: Weights) -> None:
        if not self._has.update:
            raise ServerFaultError(f"{self.settings.url}: cannot load weights in place")
        await self._client.must("POST", "/start_weight_update")
        await self._client.must("POST", "/update_weights", {"update_info": {"path": str(weights.file)}})
        await self._client.must("POST", "/finish_weight_update", {"weight_version": str(weights.version)})

    async def _reset(self) -> None:
        answer = await self._client.must("POST", "/reset_prefix_cache", params={"reset_running_requests": "true"})
        if not (isinstance(answer, dict) and answer.get("success")):
            raise ServerFaultError(f"{self.settings.url}: KV was not dropped")

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
        """Take it back."""
        await self._client.must("POST", "/wake_up")

    async def close(self) -> Record:
        """Cut what is open. A server tells no engine steps: the record has when how many calls were under way here.

        How often it preempted is known only where it keeps count.
        """
        for minder in self._minders:
            minder.cancel()
        await asyncio.gather(*self._minders, return_exceptions=True)
        calls = list(self._open.values())
        if self.offers is not None:
            with suppress(RlsimError):
                await self._abort_by_id(calls)
        await self._disconnect(calls, "close")
        await self._leave_going()
        counted = await self._preemptions()
        await self._client.close()
        return Record(self._busy.rows, preemptions=counted - self._preemptions_before)

    async def _leave_going(self) -> None:
        """A run may end in the middle of a publication: the server is not ours to leave paused."""
        if self.offers is not None and self._has.pause and not self._going.is_set():
            with suppress(RlsimError):
                await self._client.must("POST", "/resume")

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
            for one in self._open.values():
                if _loop_seconds() - one.heard_at > limit and one.reading is not None:
                    one.cut = "silence"
                    one.reading.cancel()

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


def _server_names(name: str) -> tuple[str, ...]:
    """The id under which vLLM's engine knows a call: a completion's has the number of its choice behind it."""
    return (name, f"{name}-0", f"cmpl-{name}-0", f"generate-tokens-{name}")
