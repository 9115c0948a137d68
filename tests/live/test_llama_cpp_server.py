"""llama.cpp's HTTP server as a replica: an implementation that shares nothing with vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

for needed in ("aiohttp", "xllamacpp", "gguf"):
    if find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed (docs/guide/run-live-on-servers.md)", allow_module_level=True)

from real_servers import OFFLINE, free_port, llama_cpp_command, serving
from server_runs import (
    call,
    calls_of_many_lengths,
    counted,
    cut_after_five,
    offers_of,
    plan_on,
    settings_for,
    with_engine,
)
from tiny_models import write_gguf

from rlsim.core.errors import ParameterError
from rlsim.live.openai.engine import OpenAiEngine
from rlsim.live.protocols import CallOutput, EngineLostError
from rlsim.results.metrics import metrics
from rlsim.studies.live import run_arm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("llama")
    chosen = free_port()
    command = llama_cpp_command(write_gguf(folder / "tiny.gguf"), chosen)
    with serving(command, chosen, folder / "log", OFFLINE):
        yield chosen


def test_what_it_offers_is_found_out(port: int) -> None:
    found = offers_of(settings_for(port))
    assert (found.protocol, found.exact_lengths, found.max_model_len) == ("completions", "seen", 512)
    assert (found.counts, found.token_ids, found.log_probs, found.priorities) == (True, False, False, False)
    assert (found.pause, found.abort, found.update, found.weight_version) == (False, False, False, False)
    assert found.gauges == {"running", "waiting"}


def test_calls_make_exactly_the_tokens_that_were_ordered(port: int) -> None:
    settings = settings_for(port)
    capabilities, counter = offers_of(settings), "llamacpp:tokens_predicted_total"
    before = counted(settings, counter)
    calls = with_engine(settings, calls_of_many_lengths, capabilities)
    for ordered, made in calls:
        assert (len(made.tokens), made.reason, made.segments) == (ordered, "length", ((0, ordered),))
        assert made.first_token_at > 0
    assert counted(settings, counter) - before == sum(ordered for ordered, _ in calls)


def test_a_call_whose_connection_is_cut_keeps_its_tokens_and_frees_its_seat(port: int) -> None:
    async def work(engine: OpenAiEngine) -> tuple[CallOutput, int | None]:
        made = await cut_after_five(engine)
        for _ in range(200):
            await asyncio.sleep(0.05)
            if engine.gauges[-1].running == 0:
                break
        return made, engine.gauges[-1].running

    made, running = with_engine(settings_for(port), work)
    assert made.reason == "abort"
    assert 5 <= len(made.tokens) < 450
    assert running == 0


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [("sync-disaggregated", {}), ("one-step-off", {}), ("nemo-rl-async", {"max_trajectory_age_steps": 2})],
)
def test_a_policy_runs_on_it_to_its_end_and_its_ledger_closes(
    port: int, tmp_path: Path, preset: str, parameters: dict[str, int]
) -> None:
    made = plan_on([f"http://127.0.0.1:{port}/v1"], preset, **parameters)
    told = run_arm("it", made, "openai", tmp_path)
    assert told.fault is None
    log = told.run.run.log
    assert [row.step for row in log.iterations] == list(range(5))
    assert metrics(told.run.run).ledger_closes


@pytest.mark.parametrize("preset", ["pipelinerl", "seer", "sync-colocated"])
def test_a_policy_that_it_cannot_carry_out_is_refused_before_it_starts(port: int, tmp_path: Path, preset: str) -> None:
    given = {"seer": {"chunk_tokens": 16, "max_response_tokens": 150}, "pipelinerl": {"llm_max_rollouts": 4}}
    made = plan_on([f"http://127.0.0.1:{port}/v1"], preset, **given.get(preset, {}))
    with pytest.raises(ParameterError, match="policy"):
        run_arm("it", made, "openai", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_server_that_is_killed_amid_a_call_is_lost_and_its_tokens_are_kept(tmp_path: Path) -> None:
    chosen = free_port()
    with serving(
        llama_cpp_command(write_gguf(tmp_path / "tiny.gguf"), chosen), chosen, tmp_path / "log", OFFLINE
    ) as one:

        async def work(engine: OpenAiEngine) -> CallOutput:
            made = CallOutput()
            task = asyncio.create_task(engine.generate(call(480), made))
            while len(made.tokens) < 5:
                await asyncio.sleep(0.001)
            one.kill()
            with pytest.raises(EngineLostError):
                await task
            return made

        made = with_engine(settings_for(chosen), work)
    assert 5 <= len(made.tokens) < 480
    assert made.reason == ""
