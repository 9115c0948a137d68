"""The server of the transformers library as a replica: text alone, counts at the end alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

for needed in ("aiohttp", "transformers", "accelerate", "openai", "fastapi"):
    if find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed (docs/guide/run-live-on-servers.md)", allow_module_level=True)

from real_servers import OFFLINE, free_port, serving, transformers_command
from server_runs import call, offers_of, plan_on, settings_for, with_engine
from tiny_models import write_folder

from rlsim.core.errors import ParameterError
from rlsim.live.openai.engine import OpenAiEngine
from rlsim.live.openai.settings import ServerSettings
from rlsim.live.protocols import CallOutput
from rlsim.studies.live import run_arm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerSettings]:
    folder = write_folder(tmp_path_factory.mktemp("transformers") / "tiny")
    port = free_port()
    with serving(transformers_command(folder, port), port, folder.parent / "log", OFFLINE):
        yield settings_for(port, str(folder))


def test_what_it_offers_is_found_out(settings: ServerSettings) -> None:
    found = offers_of(settings)
    assert (found.protocol, found.exact_lengths, found.counts, found.token_ids) == ("text", "", False, False)
    assert found.prompt is not None
    assert {found.pause, found.abort, found.priorities, bool(found.gauges)} == {False}


def test_a_call_makes_at_most_what_was_ordered_of_a_prompt_of_the_right_length(settings: ServerSettings) -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        made = CallOutput()
        await engine.generate(call(24, context=33, ignore_eos=False), made)
        return made

    made = with_engine(settings, work)
    assert 1 <= len(made.tokens) <= 24
    assert made.reason == ("length" if len(made.tokens) == 24 else "stop")


def test_a_workload_that_decides_lengths_is_refused(settings: ServerSettings, tmp_path: Path) -> None:
    made = plan_on([settings.url], "sync-disaggregated", settings.model)
    with pytest.raises(ParameterError, match="does not make a given number of tokens"):
        run_arm("it", made, "openai", tmp_path)


def test_a_cancelled_call_does_not_block_the_next(settings: ServerSettings) -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        task = asyncio.create_task(engine.generate(call(200, ignore_eos=False), CallOutput()))
        await asyncio.sleep(0.2)
        task.cancel()
        made = CallOutput()
        await engine.generate(call(4, sample=2, ignore_eos=False), made)
        return made

    assert with_engine(settings, work).reason in ("length", "stop")
