"""Where servers may be, and what is never shown: checked before anything is sent."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rlsim.core.errors import ParameterError
from rlsim.live.openai.settings import Patience, server_settings, settings_of, url_errors
from rlsim.scenario.live import Live

HERE = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    "url", [HERE, "http://127.8.9.1:1/v1/", "http://localhost/v1", "http://[::1]:80/v1", "https://[::1]/a/v1"]
)
def test_servers_on_this_machine_are_taken(url: str) -> None:
    (settings,) = server_settings([url])
    assert settings.url == url.rstrip("/")
    assert settings.root + "/v1" == settings.url


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.5:8000/v1",
        "http://example.org/v1",
        "http://0.0.0.0:8000/v1",
        "http://localhost.example.org/v1",
        "http://127.0.0.1.example.org/v1",
        "http://[2001:db8::1]/v1",
        "http://2130706433/v1",
    ],
)
def test_another_host_is_refused_unless_it_is_allowed(url: str) -> None:
    with pytest.raises(ParameterError, match=r"live.servers\[1\].*allow_remote"):
        server_settings([HERE, url])
    assert server_settings([HERE, url], allow_remote=True)[1].url == url


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://127.0.0.1/v1", "http://127.0.0.1:8000", "http:///v1", HERE + "?a=b", HERE + "#a"]
)
def test_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(ParameterError, match="http://HOST:PORT/v1"):
        server_settings([url])


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/v1", "http://[::1/v1", ""])
def test_what_cannot_be_read_as_a_url_is_refused(url: str) -> None:
    assert [error.path for error in url_errors([url], allow_remote=True)] == ["live.servers[0]"]


def test_the_same_server_twice_and_no_server_are_refused() -> None:
    assert [error.path for error in url_errors([HERE, HERE + "/"], allow_remote=False)] == ["live.servers[1]"]
    assert [error.path for error in url_errors([], allow_remote=False)] == ["live.servers"]


@pytest.mark.parametrize(
    ("name", "environment"),
    [("sk-secret-1", {}), ("secret_1", {}), ("EMPTY", {"EMPTY": ""}), ("LINE", {"LINE": "secret\r\nHost: a"})],
)
def test_a_key_that_cannot_be_had_is_refused_without_showing_what_may_be_one(
    name: str, environment: dict[str, str]
) -> None:
    with pytest.raises(ParameterError) as caught:
        server_settings([HERE], api_key_env=name, environment=environment)
    assert caught.value.path == "live.api_key_env"
    assert "secret" not in str(caught.value)


def test_user_and_password_in_a_url_are_refused_and_not_shown() -> None:
    with pytest.raises(ParameterError) as caught:
        server_settings(["http://me:secret@127.0.0.1/v1"])
    assert "secret" not in str(caught.value)


def test_a_key_is_not_sent_in_the_clear_to_another_machine() -> None:
    key = {"api_key_env": "K", "environment": {"K": "abc"}, "allow_remote": True}
    with pytest.raises(ParameterError, match="https"):
        server_settings(["http://example.org/v1"], **key)  # type: ignore[arg-type]
    (settings,) = server_settings(["https://example.org/v1"], **key)  # type: ignore[arg-type]
    assert settings.api_key == "abc"
    assert "abc" not in repr(settings)


def test_the_scenario_says_how_long_to_wait_and_how_many_calls_are_open() -> None:
    given = {"connect_timeout_seconds": 1.0, "control_timeout_seconds": 2.0, "request_timeout_seconds": 3.0}
    given |= {"abort_timeout_seconds": 4.0, "max_connections": 5, "gauge_interval_seconds": 6.0}
    (settings,) = settings_of(Live.model_validate({"servers": [HERE], "server_model": "m", **given}))
    assert settings.patience == Patience(1.0, 2.0, 3.0, 4.0, 5, 6.0)
    assert (settings.url, settings.model, settings.api_key) == (HERE, "m", "")


def test_an_environment_without_the_extra_is_told_its_name_in_one_line() -> None:
    code = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "from rlsim.core.errors import ParameterError\n"
        "try:\n    import rlsim.live.openai.engine\n"
        "except ParameterError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "rlsim[servers]" in done.stdout
    assert done.stdout.count("\n") == 1


def test_what_checks_a_scenario_imports_neither_http_nor_an_engine() -> None:
    code = (
        "import sys, rlsim.live.openai.settings, rlsim.live.openai.refusals, rlsim.live.openai.protocols\n"
        "print(sorted({'aiohttp', 'vllm', 'torch', 'prometheus_client'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
