"""HTTP to one server: no redirect is followed, no proxy asked, no cookie kept, and the key stays out of messages.

The packages that talking to servers needs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from rlsim.core.errors import ParameterError, RlsimError
from rlsim.live.openai.protocols import MalformedAnswerError
from rlsim.live.openai.settings import ServerSettings
from rlsim.live.protocols import EngineLostError


def missing(error: ImportError) -> ParameterError:
    """The error of an environment without the extra, in one line."""
    allowed = "an environment with it: pip install 'rlsim[servers]' (README, section Live)"
    return ParameterError("live.engine", f"openai, and {error.name or 'aiohttp'} is not installed", allowed)


try:
    import aiohttp
    from aiohttp.http_exceptions import HttpProcessingError
except ImportError as error:
    raise missing(error) from error

GONE = (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError, ValueError, RuntimeError)
"""What aiohttp raises when a connection cannot be had, breaks or carries nonsense, and when it is closed beneath it."""
LONGEST_LINE_BYTES = 1 << 20
LONGEST_ANSWER_BYTES = 1 << 24
_SHOWN = 300


class ServerFaultError(RlsimError):
    """An answer that trying again does not mend: a call that is refused, a promise that is not kept."""


class Client:
    """Requests to one server; ``EngineLostError`` when it is gone, ``ServerFaultError`` when it refuses."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def _opened(self) -> aiohttp.ClientSession:
        """The session, made inside the running loop; one connection a call, and a few for everything else.

        None is used twice: a server that closes an idle one just then would look as if it were gone.
        """
        if self._closed:
            raise self.lost("closed by this run")
        if self._session is None:
            settings = self._settings
            headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=settings.patience.max_connections + 8, force_close=True),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.patience.connect_seconds),
                headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=LONGEST_LINE_BYTES,
            )
        return self._session

    async def close(self) -> None:
        """Close all connections, once and for all."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def ask(
        self, method: str, path: str, body: object = None, params: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """(status, answer) below the server's root: parsed if it is JSON, else its text."""
        total = aiohttp.ClientTimeout(total=self._settings.patience.answer_seconds)
        try:
            async with self._opened().request(
                method, self._settings.root + path, json=body, params=params, timeout=total, allow_redirects=False
            ) as answer:
                return answer.status, _parsed(await _text(answer))
        except GONE as error:
            raise self.lost(error) from error

    async def must(self, method: str, path: str, body: object = None, params: Mapping[str, str] | None = None) -> Any:
        """The answer of a request that has to succeed."""
        status, answer = await self.ask(method, path, body, params)
        if status != 200:
            raise self.refused(path, status, answer)
        return answer

    async def stream(self, path: str, body: object) -> AsyncGenerator[object, None]:
        """Chunks of a server-sent-events answer as they come, to its end or ``[DONE]``."""
        url = self._settings.root + path
        try:
            async with self._opened().post(url, json=body, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise self.refused(path, answer.status, _parsed(await _text(answer)))
                async for line in answer.content:
                    if not line.startswith(b"data:"):
                        continue
                    data = line[5:].decode("utf-8", "replace").strip()
                    if data == "[DONE]":
                        return
                    if not data:
                        continue
                    try:
                        chunk = json.loads(data)
                    except json.JSONDecodeError as error:
                        raise MalformedAnswerError(f"a chunk that is no JSON: {data[:80]!r}") from error
                    yield chunk
        except GONE as error:
            raise self.lost(error) from error

    def refused(self, path: str, status: int, answer: object) -> RlsimError:
        """The error behind a status other than 200: from 500 on the server is gone."""
        text = self._shown(answer.get("error", answer) if isinstance(answer, dict) else answer)
        message = f"{self._settings.url}: {path} answered {status}: {text}"
        return EngineLostError(message) if status >= 500 else ServerFaultError(message)

    def lost(self, cause: object) -> EngineLostError:
        """The error of a server that is gone."""
        return EngineLostError(f"{self._settings.url}: {self._shown(cause) or type(cause).__name__}")

    def _shown(self, cause: object) -> str:
        """Short, and without the key, which servers like to repeat."""
        text = str(cause.get("message", cause) if isinstance(cause, dict) else cause)
        key = self._settings.api_key
        return (text.replace(key, "(key)") if key else text).strip()[:_SHOWN]


async def _text(answer: aiohttp.ClientResponse) -> str:
    """The body, or its beginning where it is longer than any answer has to be."""
    parts, size = [], 0
    async for part in answer.content.iter_chunked(LONGEST_LINE_BYTES):
        parts.append(part)
        size += len(part)
        if size >= LONGEST_ANSWER_BYTES:
            break
    return b"".join(parts).decode("utf-8", "replace")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
