"""Whole runs on servers of our own: they end, their ledgers close, and a server's fault is told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from server_runs import plan_on
from small_server import SmallServer
from typer.testing import CliRunner

from rlsim.cli.main import app
from rlsim.core.errors import ParameterError
from rlsim.results.metrics import metrics
from rlsim.studies.live import LiveReport, run_arm

PRESETS: dict[str, dict[str, Any]] = {
    "sync-disaggregated": {},
    "one-step-off": {},
    "areal": {"max_head_offpolicyness": 2, "max_concurrent_rollouts": 5},
    "pipelinerl": {"llm_max_rollouts": 4},
    "nemo-rl-recompute-kv": {},
    "slime-april": {"over_sampling_batch_size": 5},
    "laminar": {},
    "sync-colocated": {},
}


@contextmanager
def serving(*servers: SmallServer) -> Iterator[list[str]]:
    """Servers in a thread of their own, as they are in life; their URLs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def do(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(30)

    for server in servers:
        do(server.__aenter__())
    try:
        yield [server.url for server in servers]
    finally:
        for server in servers:
            do(server.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def run_on(servers: list[SmallServer], preset: str, folder: Path | None = None) -> LiveReport:
    with serving(*servers) as urls:
        return run_arm("it", plan_on(urls, preset, **PRESETS[preset]), "openai", folder)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_run_on_two_servers_ends_and_its_ledger_closes(preset: str) -> None:
    servers = [SmallServer(scale_out=True, step_seconds=0.0005) for _ in range(2)]
    told = run_on(servers, preset)
    assert told.fault is None
    assert [row.step for row in told.run.run.log.iterations] == list(range(5))
    assert metrics(told.run.run).ledger_closes
    published, served = told.run.run.log.iterations[-1].version, {int(server.version) for server in servers}
    assert max(served) <= published if preset == "laminar" else served == {published}


def test_what_was_made_is_what_the_servers_were_told_to_make(tmp_path: Path) -> None:
    servers = [SmallServer(), SmallServer()]
    with serving(*servers) as urls:

        def forget_the_probe(*_: object) -> None:
            for one in servers:
                one.bodies.clear()

        made = plan_on(urls, "sync-disaggregated")
        told = run_arm("it", made, "openai", tmp_path, watch=forget_the_probe)
    ordered = sum(body["max_tokens"] for one in servers for body in one.bodies)
    assert told.run.run.log.generated_tokens == ordered
    assert urls[0] in next(tmp_path.rglob("live.json")).read_text()


def test_a_server_that_breaks_a_promise_ends_the_run_with_what_it_did() -> None:
    with serving(SmallServer(eos_after=60, ignores_ignore_eos=True)) as urls:
        told = run_arm("it", plan_on(urls, "sync-disaggregated"), "openai")
    assert "made 60 tokens (stop)" in str(told.fault)


def test_a_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with serving(SmallServer(dev=False)) as urls, pytest.raises(ParameterError, match="cannot pause calls"):
        run_arm("it", plan_on(urls, "pipelinerl", **PRESETS["pipelinerl"]), "openai", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_server_that_dies_leaves_the_others_the_work() -> None:
    dying, living = SmallServer(step_seconds=0.0005), SmallServer(step_seconds=0.0005)
    with serving(dying, living) as urls:
        made = plan_on(urls, "sync-disaggregated")

        def watch(*_: object) -> None:
            dying.cut_after = 30

        told = run_arm("it", made, "openai", watch=watch)
    assert told.fault is None
    assert metrics(told.run.run).ledger_closes
    assert living.bodies


def test_the_command_line_prints_what_servers_offer() -> None:
    with serving(SmallServer(scale_out=True), SmallServer(ids=False, dev=False, usage="end")) as urls:
        text = CliRunner().invoke(app, ["servers", *urls])
        told = json.loads(CliRunner().invoke(app, ["servers", *urls, "--json"]).stdout)
    assert text.exit_code == 0
    assert [one["server"] for one in told] == urls
    assert [one["calls by"] for one in told] == ["/inference/v1/generate, token ids", "/v1/completions, text"]
    for one in told:
        assert all(f"{what:<23}{found}\n" in text.stdout for what, found in one.items())
