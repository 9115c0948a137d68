"""vLLM's HTTP server as a replica, with everything switched on that it capabilities."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

for needed in ("aiohttp", "vllm"):
    if find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed (docs/guide/run-live-on-servers.md)", allow_module_level=True)

from real_servers import VLLM_ENVIRONMENT, free_port, has_worker, serving, vllm_command
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
from tiny_models import write_folder, write_weights

from rlsim.core.commands import Abort
from rlsim.core.events import Finished
from rlsim.core.log import RunLog
from rlsim.live.openai.capabilities import ServerCapabilities
from rlsim.live.openai.engine import OpenAiEngine
from rlsim.live.openai.settings import ServerSettings
from rlsim.live.protocols import CallOutput, Weights
from rlsim.results.metrics import metrics
from rlsim.studies.live import run_arm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("vllm") / "tiny")


@pytest.fixture(scope="module")
def settings(folder: Path) -> Iterator[ServerSettings]:
    port = free_port()
    with serving(vllm_command(folder, port), port, folder.parent / "log", VLLM_ENVIRONMENT):
        yield settings_for(port)


@pytest.fixture(scope="module")
def capabilities(settings: ServerSettings) -> ServerCapabilities:
    return offers_of(settings)


def completions(capabilities: ServerCapabilities) -> ServerCapabilities:
    """As it is found without --enable-scale-out."""
    return replace(capabilities, protocol="completions", span_versions=False)


def test_what_it_offers_is_found_out(capabilities: ServerCapabilities) -> None:
    assert (capabilities.protocol, capabilities.exact_lengths, capabilities.max_model_len) == (
        "tokens",
        "declared",
        512,
    )
    assert (capabilities.counts, capabilities.token_ids, capabilities.log_probs, capabilities.priorities) == (
        True,
        True,
        True,
        True,
    )
    assert (capabilities.pause, capabilities.abort, capabilities.reset, capabilities.sleep) == (True, True, True, True)
    assert (capabilities.span_versions, capabilities.weight_version, capabilities.update) == (True, True, has_worker())
    assert capabilities.gauges == {"running", "waiting", "kv_use"}


@pytest.mark.parametrize("protocol", ["tokens", "completions"])
def test_calls_make_exactly_the_tokens_that_were_ordered(
    settings: ServerSettings, capabilities: ServerCapabilities, protocol: str
) -> None:
    chosen, counter = (
        capabilities if protocol == "tokens" else completions(capabilities),
        "vllm:generation_tokens_total",
    )
    before = counted(settings, counter)
    calls = with_engine(settings, calls_of_many_lengths, chosen)
    for ordered, made in calls:
        assert (len(made.tokens), made.reason, made.segments) == (ordered, "length", ((0, ordered),))
        assert len(made.log_probs) == ordered
        assert max(made.log_probs) < 0 < made.first_token_at
    assert counted(settings, counter) - before == sum(ordered for ordered, _ in calls)


@pytest.mark.parametrize("protocol", ["tokens", "completions"])
@pytest.mark.parametrize("by_id", [True, False])
def test_an_aborted_call_keeps_its_tokens_and_frees_its_seat(
    settings: ServerSettings, capabilities: ServerCapabilities, protocol: str, by_id: bool
) -> None:
    async def work(engine: OpenAiEngine) -> tuple[CallOutput, int | None]:
        made = await cut_after_five(engine)
        for _ in range(200):
            await asyncio.sleep(0.05)
            if engine.gauges[-1].running == 0:
                break
        return made, engine.gauges[-1].running

    chosen = replace(capabilities if protocol == "tokens" else completions(capabilities), abort=by_id)
    made, running = with_engine(settings, work, chosen)
    assert made.reason == "abort"
    assert 5 <= len(made.tokens) < 450
    assert made.segments == ((0, len(made.tokens)),)
    assert running == 0


def test_a_paused_server_makes_nothing_and_calls_can_be_cut_meanwhile(
    settings: ServerSettings, capabilities: ServerCapabilities
) -> None:
    async def work(engine: OpenAiEngine) -> None:
        kept, cut = CallOutput(), CallOutput()
        tasks = [
            asyncio.create_task(engine.generate(call(300, sample=one), made)) for one, made in ((1, kept), (2, cut))
        ]
        while len(kept.tokens) < 5 or len(cut.tokens) < 5:
            await asyncio.sleep(0.001)
        await engine.pause()
        await asyncio.sleep(0.2)
        frozen = len(kept.tokens)
        await engine.abort([2])
        await asyncio.sleep(0.2)
        assert (len(kept.tokens), cut.reason, tasks[0].done()) == (frozen, "abort", False)
        await engine.resume()
        await asyncio.gather(*tasks)
        assert (len(kept.tokens), kept.reason) == (300, "length")

    with_engine(settings, work, capabilities)


def test_a_new_version_amid_a_call_splits_its_tokens_by_the_servers_own_word(
    settings: ServerSettings, capabilities: ServerCapabilities
) -> None:
    async def work(engine: OpenAiEngine) -> None:
        made = CallOutput()
        task = asyncio.create_task(engine.generate(call(300), made))
        for version in (1, 2):
            while len(made.tokens) < 20 * version:
                await asyncio.sleep(0.001)
            await engine.pause()
            assert await engine.load(Weights(version, None), reset=version == 2) == version
            await engine.resume()
        await task
        assert [version for version, _ in made.segments] == [0, 1, 2]
        assert sum(count for _, count in made.segments) == 300
        assert min(count for _, count in made.segments) >= 10

    with_engine(settings, work, capabilities)


@pytest.mark.skipif(not has_worker(), reason="no worker extension that loads weights from files")
def test_weights_from_a_file_are_those_that_it_then_serves(
    settings: ServerSettings, capabilities: ServerCapabilities, folder: Path
) -> None:
    other = write_weights(folder.parent / "other.safetensors", seed=1)
    sums = [_checksums(settings)]

    async def work(engine: OpenAiEngine) -> None:
        made = CallOutput()
        task = asyncio.create_task(engine.generate(call(300), made))
        for version, file in ((1, other), (2, folder / "model.safetensors")):
            while len(made.tokens) < 20 * version:
                await asyncio.sleep(0.001)
            await engine.pause()
            assert await engine.load(Weights(version, file), reset=True) == version
            sums.append(await asyncio.to_thread(_checksums, settings))
            await engine.resume()
        await task
        assert [version for version, _ in made.segments] == [0, 1, 2]

    with_engine(settings, work, capabilities)
    assert sums[1] != sums[0]
    assert sums[2] == sums[0]


def _checksums(settings: ServerSettings) -> object:
    asked = urllib.request.Request(
        f"{settings.root}/weight_checker", b'{"action": "checksum"}', {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.loads(answer.read())["checksums"]


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("task", [None, {"name": "successor", "symbols": 8}])
def test_a_real_trainer_teaches_it_over_http(
    settings: ServerSettings,
    capabilities: ServerCapabilities,
    folder: Path,
    tmp_path: Path,
    task: dict[str, object] | None,
) -> None:
    """Weights in place after every step, log-probs of what it samples, rewards of a task whose lengths are its own."""
    if not capabilities.update:
        pytest.skip("this server takes no weights")
    taught = {"trainer": "torch", "model": str(folder), "task": task}
    told = run_arm("it", plan_on([settings.url], "sync-disaggregated", taught=taught), "openai", tmp_path)
    assert told.fault is None
    versions = [event.segments[0][0] for event in finished(told.run.run.log)]
    assert sorted(set(versions)) == list(range(5))
    assert metrics(told.run.run).ledger_closes
    learnt = [found for _, found in told.run.crew.learnt]
    assert len(learnt) == 5
    if task is None:  # an untrained model of 512 tokens answers no question, and learns from none
        assert any(found.metrics["gradient_norm"] > 0 for found in learnt)
    # the first batch is made by whatever weights the server had
    assert all(found.ess is not None and found.ess > 0.9 for found in learnt[1:])


def finished(log: RunLog) -> list[Finished]:
    return [row.event for row in log.decisions if isinstance(row.event, Finished)]


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("sync-disaggregated", {}),
        ("areal", {"max_head_offpolicyness": 2, "max_concurrent_rollouts": 5}),
        ("pipelinerl", {"llm_max_rollouts": 4}),
        ("nemo-rl-recompute-kv", {"max_trajectory_age_steps": 2}),
        ("slime-april", {"over_sampling_batch_size": 5}),
        ("laminar", {}),
    ],
)
def test_a_policy_runs_on_it_to_its_end_and_its_ledger_closes(
    settings: ServerSettings, tmp_path: Path, preset: str, parameters: dict[str, int]
) -> None:
    made = plan_on([settings.url], preset, **parameters)
    told = run_arm("it", made, "openai", tmp_path)
    assert told.fault is None
    log = told.run.run.log
    assert [row.step for row in log.iterations] == list(range(5))
    assert metrics(told.run.run).ledger_closes
    if preset == "slime-april":
        assert any(isinstance(command, Abort) for row in log.decisions for command in row.commands)
