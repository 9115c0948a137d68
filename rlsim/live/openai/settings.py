"""Addresses of the servers and how long to wait for them; checked before anything is sent."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from rlsim.core.errors import ParameterError
from rlsim.scenario.live import Live

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds, and how many calls are open at once; the scenario checks that they are positive."""

    connect_seconds: float = 10.0
    answer_seconds: float = 120.0
    """For the whole answer to anything but a generate call: a pause, a weight update, gauges."""
    silence_seconds: float = 600.0
    """Without a byte of a generate call while the server is not paused, the wait in its queue included."""
    abort_seconds: float = 5.0
    """For an aborted call to end; after that its connection is cut."""
    max_connections: int = 4096
    """Generate calls open at once on one server; more wait here, unseen by the server."""
    gauge_seconds: float | None = None
    """Interval of reading the server's gauges; None for not at all."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One server: one replica."""

    url: str
    """Up to and with ``/v1``."""
    model: str = ""
    """Name that the server knows it by; empty: the one that it lists first."""
    patience: Patience = Patience()
    api_key: str = field(default="", repr=False)
    """Sent as bearer token; never shown."""

    @property
    def root(self) -> str:
        """The server's address without ``/v1``, for what OpenAI's API does not know."""
        return self.url.removesuffix("/v1")


def server_settings(
    urls: Sequence[str],
    model: str = "",
    api_key_env: str = "",
    allow_remote: bool = False,
    patience: Patience = Patience(),
    environment: Mapping[str, str] = os.environ,
) -> tuple[ServerSettings, ...]:
    """Settings of each URL, in order; ``ParameterError`` for the first fault in section ``live``.

    The key is read from the environment variable ``api_key_env`` names, and from nowhere else. It is not sent in the
    clear to another machine.
    """
    for error in url_errors(urls, allow_remote):
        raise error
    key = _api_key(api_key_env, environment)
    for index, url in enumerate(urls if key else ()):
        parts = urlsplit(url)
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise ParameterError(f"live.servers[{index}]", url, "https, as an API key is sent to another machine")
    return tuple(ServerSettings(url.rstrip("/"), model, patience, key) for url in urls)


def url_errors(urls: Sequence[str], allow_remote: bool) -> Iterator[ParameterError]:
    """URLs that cannot be used, and hosts other than this machine unless they are allowed."""
    if not urls:
        yield ParameterError("live.servers", list(urls), "at least one URL, one a replica")
    plain = [url.rstrip("/") for url in urls]
    for index, url in enumerate(urls):
        path = f"live.servers[{index}]"
        parts = _parts(url)
        if parts is not None and (parts.username is not None or parts.password is not None):
            yield ParameterError(path, "a URL with user or password (not shown)", "a URL without; see live.api_key_env")
        elif parts is None or not _is_base_url(parts):
            yield ParameterError(path, url, "http://HOST:PORT/v1 or https://HOST:PORT/v1")
        elif not allow_remote and not is_loopback(parts.hostname or ""):
            yield ParameterError(path, url, "a server on this machine (127.0.0.0/8, ::1), or live.allow_remote: true")
        elif plain.index(plain[index]) != index:
            yield ParameterError(path, url, "a server of its own: one URL a replica")


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _is_base_url(parts: SplitResult) -> bool:
    whole = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
    return whole and parts.path.rstrip("/").endswith("/v1")


def is_loopback(host: str) -> bool:
    """Whether the host is this machine by its name or address; names are not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _api_key(name: str, environment: Mapping[str, str]) -> str:
    """The key; what may be one by mistake is never in the message."""
    if not name:
        return ""
    allowed = "the name of an environment variable that holds the key"
    if not _ENVIRONMENT_NAME.fullmatch(name):
        raise ParameterError("live.api_key_env", "no such name (not shown: it may be a key)", allowed)
    key = environment.get(name, "")
    if not key:
        raise ParameterError("live.api_key_env", "a variable that is not set (not shown: it may be a key)", allowed)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ParameterError("live.api_key_env", "a variable whose value no header can carry (not shown)", allowed)
    return key


def settings_of(live: Live) -> tuple[ServerSettings, ...]:
    """Settings of all servers in section ``live`` of a scenario."""
    patience = Patience(
        connect_seconds=live.connect_timeout_seconds,
        answer_seconds=live.control_timeout_seconds,
        silence_seconds=live.request_timeout_seconds,
        abort_seconds=live.abort_timeout_seconds,
        max_connections=live.max_connections,
        gauge_seconds=live.gauge_interval_seconds,
    )
    return server_settings(
        live.servers, live.server_model or "", live.api_key_env or "", live.allow_remote, patience, os.environ
    )
