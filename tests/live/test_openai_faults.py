"""What servers do wrong: each fault is told, keeps what had arrived, and shows no key."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("aiohttp")

from engine_runs import QUICK, call, run, started
from small_server import SmallServer, token_at

from rlsim.live.openai.client import ServerFaultError
from rlsim.live.openai.engine import OpenAiEngine
from rlsim.live.openai.settings import Patience, server_settings
from rlsim.live.protocols import CallOutput, EngineLostError


def _fails(
    server: SmallServer, error: type[Exception], match: str, patience: Patience = QUICK, **order: int
) -> CallOutput:
    """What had arrived when a call failed as it should."""
    made = CallOutput()

    async def work(engine: OpenAiEngine) -> CallOutput:
        faults(engine)
        with pytest.raises(error, match=match):
            await engine.generate(call(**{"tokens": 20, **order}), made)
        return made

    planned = {name: getattr(server, name) for name in ("status", "redirect", "cut_after", "hang_after")}
    planned |= {name: getattr(server, name) for name in ("garbage_after", "usage", "miscounts_prompts", "eos_after")}
    behaved = SmallServer()
    for name in planned:
        setattr(server, name, getattr(behaved, name))

    def faults(_: OpenAiEngine) -> None:
        for name, value in planned.items():
            setattr(server, name, value)

    return run(server, work, patience)


def test_a_connection_cut_amid_a_call_loses_the_engine_and_keeps_what_had_arrived() -> None:
    made = _fails(SmallServer(cut_after=7), EngineLostError, "127.0.0.1")
    assert made.tokens == [token_at(place) for place in range(7)]
    assert made.segments == ((0, 7),)


@pytest.mark.parametrize(
    "garbage",
    [
        "data: {half a chunk\n\n",
        'data: "text"\n\n',
        'data: {"choices": 3}\n\n',
        'data: {"choices": [{"token_ids": ["x"]}]}\n\n',
        'data: {"choices": [{"finish_reason": "tired"}]}\n\n',
        'data: {"error": {"message": "out of memory"}}\n\n',
        'data: {"choices": [], "usage": {"completion_tokens": -4}}\n\n',
        "data: " + "9" * (3 << 20) + "\n\n",
        "",
    ],
)
def test_a_malformed_or_broken_off_answer_loses_the_engine(garbage: str) -> None:
    made = _fails(SmallServer(garbage_after=4, garbage=garbage), EngineLostError, "127.0.0.1")
    assert made.tokens == [token_at(place) for place in range(4)]


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, ServerFaultError), (404, ServerFaultError), (500, EngineLostError), (503, EngineLostError)],
)
def test_a_refused_call_is_a_fault_and_a_broken_server_is_lost(status: int, error: type[Exception]) -> None:
    _fails(SmallServer(status=status, complaint="the prompt is too long"), error, f"{status}: the prompt is too long")


def test_a_silent_server_is_lost_after_so_many_seconds() -> None:
    waits = Patience(silence_seconds=0.5)
    assert len(_fails(SmallServer(hang_after=3), EngineLostError, "nothing came for 0.5 s", waits).tokens) == 3


def test_a_server_that_is_not_there_is_lost_at_the_start() -> None:
    (settings,) = server_settings(["http://127.0.0.1:9/v1"], patience=QUICK)
    with pytest.raises(EngineLostError, match=r"127\.0\.0\.1:9"):
        asyncio.run(OpenAiEngine(settings, now=lambda: 0).start())


def test_a_call_without_a_count_of_its_tokens_loses_the_engine() -> None:
    server = SmallServer(ids=False, dev=False, usage="end")
    made = CallOutput()

    async def work(engine: OpenAiEngine) -> CallOutput:
        server.usage = "never"
        with pytest.raises(EngineLostError, match="without a count"):
            await engine.generate(call(5), made)
        return made

    run(server, work)


def test_a_call_that_ends_before_its_length_is_a_broken_promise() -> None:
    server = SmallServer(eos_after=5, ignores_ignore_eos=True)
    _fails(server, ServerFaultError, "made 5 tokens .stop. where 20 were ordered")


def test_a_prompt_that_the_server_counts_otherwise_is_a_fault() -> None:
    _fails(SmallServer(miscounts_prompts=2), ServerFaultError, "prompt of 12 tokens as 14")


def test_a_redirect_is_not_followed() -> None:
    server = SmallServer(redirect="http://127.0.0.1:9/v1/completions")
    _fails(server, ServerFaultError, "answered 307")


def test_the_key_is_sent_and_is_in_no_message_log_or_representation(caplog: pytest.LogCaptureFixture) -> None:
    secret = "sk-very-secret-7"
    server = SmallServer(key=secret)

    async def whole() -> str:
        async with started(server, api_key_env="SOME_KEY", environment={"SOME_KEY": secret}) as engine:
            server.status, server.complaint = 400, f"incorrect key provided: {secret}"
            with pytest.raises(ServerFaultError) as caught:
                await engine.generate(call(5), CallOutput())
            return f"{caught.value!r} {caught.value} {engine.settings!r} {engine.capabilities!r}"

    with caplog.at_level(0):
        shown = asyncio.run(whole())
    assert all(one.get("Authorization") == f"Bearer {secret}" for one in server.headers)
    assert "incorrect key provided: (key)" in shown
    assert secret not in shown + caplog.text
