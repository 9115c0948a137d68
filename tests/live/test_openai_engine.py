"""An OpenAI-compatible server as a replica: what it streams is what the run gets, and what goes wrong is said."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

from engine_runs import call, made_by, run
from small_server import SmallServer, token_at

from rlsim.live.openai.client import ServerFaultError
from rlsim.live.openai.engine import UNKNOWN_TOKEN, OpenAiEngine
from rlsim.live.openai.settings import Patience
from rlsim.live.protocols import CallOutput, EngineLostError, Weights


@pytest.mark.parametrize(("chunk", "write"), [(1, 1 << 20), (3, 1 << 20), (100, 1 << 20), (2, 7)])
def test_a_call_makes_the_tokens_that_the_server_streamed_however_they_are_cut_up(chunk: int, write: int) -> None:
    server = SmallServer(tokens_a_chunk=chunk, bytes_a_write=write)
    made = run(server, lambda engine: made_by(engine, call(10)))
    assert made.tokens == [token_at(place) for place in range(10)]
    assert made.log_probs == [-token / 8 for token in made.tokens]
    assert made.segments == ((0, 10),)
    assert made.reason == "length"
    assert made.first_token_at == 2, "the clock ticks when it is looked at: as the call begins, and now"


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_marks_of_a_call_are_told_as_their_tokens_come(chunk: int) -> None:
    async def watched(engine: OpenAiEngine) -> CallOutput:
        order, made = call(10), CallOutput()
        order.request.marks = (2, 5, 10, 12)
        engine.set_marked(lambda request, tokens: told.append((request.sample, tokens, len(made.tokens) >= tokens)))
        await engine.generate(order, made)
        return made

    told: list[tuple[int, int, bool]] = []
    run(SmallServer(tokens_a_chunk=chunk), watched)
    assert told == [(1, 2, True), (1, 5, True)], "not the one that it ends with"


def test_the_server_is_told_the_context_the_length_and_the_rank() -> None:
    server = SmallServer()
    run(server, lambda engine: made_by(engine, call(4, priority=3)))
    (body,) = server.bodies
    assert (body["prompt"], body["max_tokens"], body["min_tokens"]) == ([5] * 12, 4, 4)
    assert (body["priority"], body["ignore_eos"], body["temperature"]) == (3, True, 1.0)


def test_a_model_that_decides_its_lengths_ends_by_itself() -> None:
    made = run(SmallServer(eos_after=6), lambda engine: made_by(engine, call(10, ignore_eos=False)))
    assert (len(made.tokens), made.reason) == (6, "stop")


def test_a_server_of_text_is_sent_as_many_words_as_the_context_has_tokens_and_counts_what_it_made() -> None:
    server = SmallServer(ids=False, dev=False, fields={"ignore_eos", "stream_options"}, usage="end")
    made = run(server, lambda engine: made_by(engine, call(9, context=30)))
    assert len(server.bodies[0]["prompt"].split()) == 30
    assert made.tokens == [UNKNOWN_TOKEN] * 9
    assert made.log_probs == []


async def _abort_one_of_two(engine: OpenAiEngine) -> CallOutput:
    cut, other = CallOutput(), CallOutput()
    calls = [engine.generate(call(400, sample=1), cut), engine.generate(call(30, sample=2), other)]
    tasks = [asyncio.create_task(one) for one in calls]
    while len(cut.tokens) < 5:
        await asyncio.sleep(0.001)
    await engine.abort([1, 99])
    assert tasks[0].done() or await asyncio.wait_for(tasks[0], 1) is None
    await tasks[1]
    assert (len(other.tokens), other.reason) == (30, "length")
    return cut


@pytest.mark.parametrize("dev", [True, False])
def test_an_aborted_call_keeps_its_tokens_and_the_others_go_on(dev: bool) -> None:
    server = SmallServer(dev=dev, step_seconds=0.002)
    cut = run(server, _abort_one_of_two)
    assert cut.reason == "abort"
    assert 5 <= len(cut.tokens) < 400
    assert cut.tokens == [token_at(place) for place in range(len(cut.tokens))]
    assert server.disconnects == (0 if dev else 1)


def test_a_call_that_the_server_does_not_end_is_cut_by_closing_its_connection() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        server.hang_after = 6
        return await _abort_hanging(engine)

    server = SmallServer()
    assert len(run(server, work, Patience(abort_seconds=0.1)).tokens) == 6
    assert server.disconnects == 1


async def _abort_hanging(engine: OpenAiEngine) -> CallOutput:
    made = CallOutput()
    task = asyncio.create_task(engine.generate(call(400), made))
    while len(made.tokens) < 6:
        await asyncio.sleep(0.001)
    await engine.abort([1])
    await task
    await asyncio.sleep(0.05)
    return made


def test_calls_are_not_cut_on_a_server_that_counts_tokens_at_their_end_only() -> None:
    server = SmallServer(ids=False, dev=False, usage="end", step_seconds=0.001)

    async def work(engine: OpenAiEngine) -> CallOutput:
        task = asyncio.create_task(engine.generate(call(200), CallOutput()))
        await asyncio.sleep(0.02)
        with pytest.raises(ServerFaultError, match="does not count tokens"):
            await engine.abort([1])
        task.cancel()
        return CallOutput()

    run(server, work)


def test_new_weights_amid_a_call_split_it_where_the_server_says() -> None:
    server = SmallServer(scale_out=True, step_seconds=0.001)

    async def work(engine: OpenAiEngine) -> CallOutput:
        made = CallOutput()
        task = asyncio.create_task(engine.generate(call(60), made))
        while len(made.tokens) < 10:
            await asyncio.sleep(0.001)
        await engine.pause()
        await asyncio.sleep(0.03)
        frozen = len(made.tokens)
        await asyncio.sleep(0.03)
        assert (len(made.tokens), task.done()) == (frozen, False)
        assert await engine.load(Weights(1, Path("weights.safetensors")), reset=True) == 1
        await engine.resume()
        await task
        assert made.segments == ((0, frozen), (1, 60 - frozen))
        return made

    run(server, work)
    assert "POST /start_weight_update" in server.requests
    assert "POST /reset_prefix_cache?reset_running_requests=true" in server.requests


def test_a_server_without_versions_serves_what_the_client_knows_at_submission() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        await engine.pause()
        assert await engine.load(Weights(3, None), reset=True) == 3
        await engine.resume()
        return await made_by(engine, call(5))

    assert run(SmallServer(dev=False), work).segments == ((3, 5),)


def test_a_server_that_cannot_pause_begins_nothing_while_the_run_is_paused() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        await engine.pause()
        task = asyncio.create_task(made_by(engine, call(5)))
        await asyncio.sleep(0.02)
        assert not server.bodies
        await engine.resume()
        return await task

    server = SmallServer(dev=False)
    assert len(run(server, work).tokens) == 5


def test_a_server_that_cannot_pause_takes_no_weights_while_calls_are_under_way() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        task = asyncio.create_task(engine.generate(call(400), CallOutput()))
        await asyncio.sleep(0.02)
        await engine.pause()
        with pytest.raises(ServerFaultError, match="cannot pause, and 1 calls"):
            await engine.load(Weights(1, None), reset=False)
        task.cancel()
        return CallOutput()

    run(SmallServer(dev=False, step_seconds=0.002), work)


def test_a_paused_server_may_be_silent() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        made = CallOutput()
        task = asyncio.create_task(engine.generate(call(50), made))
        while len(made.tokens) < 5:
            await asyncio.sleep(0.001)
        await engine.pause()
        for one in engine._open.values():
            one.heard_at -= 1000
        await asyncio.sleep(0.7)
        await engine.resume()
        await task
        return made

    assert len(run(SmallServer(step_seconds=0.002), work, Patience(silence_seconds=2)).tokens) == 50


def test_an_update_that_the_server_does_not_confirm_is_told() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        server.answers_version = "0"
        assert await engine.load(Weights(1, None), reset=False) == 0
        server.answers_version = "main"
        with pytest.raises(ServerFaultError, match="'main', which is no version"):
            await engine.load(Weights(2, None), reset=False)
        server.refuses_reset = True
        with pytest.raises(ServerFaultError, match="KV was not dropped"):
            await engine.load(Weights(2, None), reset=True)
        return CallOutput()

    server = SmallServer()
    run(server, work)


def test_no_more_calls_are_open_than_allowed() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        server.most_running = 0
        await asyncio.gather(*(made_by(engine, call(5, sample=sample)) for sample in range(9)))
        return CallOutput()

    server = SmallServer(step_seconds=0.001)
    run(server, work, Patience(max_connections=3))
    assert server.most_running == 3


def test_gauges_are_read_at_an_interval_and_a_failed_scrape_leaves_no_row() -> None:
    gauges = "vllm:num_requests_running 3.0\nvllm:num_requests_waiting 2.0\nvllm:kv_cache_usage_perc 0.25\n"
    server = SmallServer(metrics=gauges)
    rows = []

    async def work(engine: OpenAiEngine) -> CallOutput:
        await asyncio.sleep(0.1)
        server.metrics = ""
        await asyncio.sleep(0.05)
        rows.extend(engine.gauges)
        await asyncio.sleep(0.1)
        assert engine.gauges == rows
        return CallOutput()

    run(server, work, Patience(gauge_seconds=0.01))
    assert len(rows) >= 2
    assert {(row.running, row.waiting, row.kv_use) for row in rows} == {(3, 2, 0.25)}
    assert [row.at for row in rows] == sorted({row.at for row in rows})


def test_close_cuts_what_is_open_and_tells_what_the_server_counted() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        made = CallOutput()
        task = asyncio.create_task(engine.generate(call(400), made))
        await asyncio.sleep(0.02)
        server.metrics = "vllm:num_preemptions_total 9\n"
        record = await engine.close()
        assert record.preemptions == 5
        assert [(row.decodes, row.steps) for row in record.windows] == [(1, 0)]
        await task
        return made

    server = SmallServer(step_seconds=0.002, metrics="vllm:num_preemptions_total 4\n")
    assert run(server, work).reason == "abort"


def test_a_closed_engine_is_lost_to_whoever_still_asks() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        await engine.close()
        with pytest.raises(EngineLostError, match="closed by this run"):
            await engine.load(Weights(1, None), reset=False)
        return CallOutput()

    run(SmallServer(), work)


def test_close_amid_an_update_ends_calls_even_where_the_server_does_not() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        server.hang_after = 4
        made = CallOutput()
        task = asyncio.create_task(engine.generate(call(400), made))
        while len(made.tokens) < 4:
            await asyncio.sleep(0.001)
        await engine.load(Weights(1, None), reset=False)
        await engine.close()
        await task
        return made

    server = SmallServer(scale_out=True)
    made = run(server, work, Patience(abort_seconds=0.1))
    assert (len(made.tokens), made.reason) == (4, "abort")


def test_a_call_cut_after_an_update_without_the_servers_word_on_versions_is_a_fault() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        server.hang_after = 4
        made = CallOutput()
        task = asyncio.create_task(engine.generate(call(400), made))
        while len(made.tokens) < 4:
            await asyncio.sleep(0.001)
        await engine.load(Weights(1, None), reset=False)
        await engine.abort([1])
        with pytest.raises(ServerFaultError, match="which tokens each version made"):
            await task
        return made

    server = SmallServer(scale_out=True)
    run(server, work, Patience(abort_seconds=0.1))


def test_a_cancelled_call_disconnects() -> None:
    async def work(engine: OpenAiEngine) -> CallOutput:
        task = asyncio.create_task(engine.generate(call(400), CallOutput()))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)
        return CallOutput()

    server = SmallServer(step_seconds=0.002)
    run(server, work)
    assert server.disconnects == 1
