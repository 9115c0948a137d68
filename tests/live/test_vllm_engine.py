"""Real vLLM engines on a CPU, in a minute or two; skipped where vLLM is not installed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import BASE

from rlsim.core.errors import RlsimError
from rlsim.core.ticks import to_seconds
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.replica import Replica
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime
from rlsim.live.protocols import Call, CallOutput, EngineLostError, Weights
from rlsim.live.tasks import vocabulary
from rlsim.live.vllm.engine import VllmEngine
from rlsim.live.vllm.setup import (
    KV_BYTES_PER_TOKEN,
    VOCABULARY,
    EngineSetup,
    paced_setup,
    vllm_version,
    write_tiny_model,
)
from rlsim.live.vllm.step_log import EngineFiles, StepRow, read_steps
from rlsim.resolve import resolve
from rlsim.scenario.schema import Scenario

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(vllm_version() is None, reason="vLLM is not installed"),
]

MAX_MODEL_LEN = 2048
Work = Callable[..., Awaitable[Any]]


def now() -> int:
    return time.monotonic_ns() * 1000


def call(sample: int, prompt_tokens: int = 20, response_tokens: int = 150, seed: int = 0, **more: Any) -> Call:
    context = np.random.default_rng((seed, sample)).integers(4, VOCABULARY, prompt_tokens).tolist()
    request = Request(sample, sample, prompt_tokens, prompt_tokens, response_tokens)
    request.content = ("sample", sample)
    return Call(sample, context, response_tokens, True, more.get("priority", 0), request)


def setup(model: Path, **details: Any) -> EngineSetup:
    given = EngineSetup(model, "cpu", 16, 512, MAX_MODEL_LEN, kv_blocks=2000, kv_bytes_per_token=KV_BYTES_PER_TOKEN)
    return replace(given, log_probs=True, **details)


async def first_tokens(mades: Sequence[CallOutput], count: int = 1) -> None:
    """Return when each has got some."""
    while any(len(made.tokens) < count for made in mades):
        await asyncio.sleep(0.001)


class Host:
    """An event loop with engines on it, for tests that are not coroutines."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = folder
        self.models = [write_tiny_model(folder / f"model{seed}", MAX_MODEL_LEN, seed) for seed in range(2)]
        self.engines: list[VllmEngine] = []

    def start(self, *setups: EngineSetup) -> list[VllmEngine]:
        first = len(self.engines)
        made = [VllmEngine(i, one, now, self.folder / f"engine{i}") for i, one in enumerate(setups, first)]
        self.engines += made

        async def together() -> None:
            await asyncio.gather(*(engine.start() for engine in made))

        self.loop.run_until_complete(together())
        return made

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        for engine in self.engines:
            self.run(engine.close())
        self.loop.close()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    made = Host(tmp_path_factory.mktemp("engines"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def engines(host: Host) -> list[VllmEngine]:
    """Two at once, as a fleet has them; the second delivers several tokens at a time, and is killed in the end."""
    return host.start(setup(host.models[0]), setup(host.models[0], stream_interval=4))


@pytest.fixture
def engine(host: Host, engines: list[VllmEngine]) -> VllmEngine:
    """With the first model's weights under version 0 or more."""
    return engines[0]


def started(engine: VllmEngine, calls: Sequence[Call]) -> tuple[list[CallOutput], list[asyncio.Task[None]]]:
    mades = [CallOutput() for _ in calls]
    return mades, [asyncio.create_task(engine.generate(one, made)) for one, made in zip(calls, mades, strict=True)]


def test_two_engines_serve_calls_to_their_length(host: Host, engines: list[VllmEngine]) -> None:
    async def work() -> list[CallOutput]:
        calls = [call(sample, response_tokens=30 + sample) for sample in range(4)]
        all_made = []
        for engine in engines:
            mades, tasks = started(engine, calls)
            await asyncio.gather(*tasks)
            all_made += mades
        return all_made

    for sample, made in enumerate(host.run(work())):
        tokens = 30 + sample % 4
        assert (made.reason, len(made.tokens), len(made.log_probs)) == ("length", tokens, tokens)
        assert made.segments == ((0, tokens),)
        assert made.undelivered_tokens == 0
        assert all(0 <= token < VOCABULARY for token in made.tokens)
        assert all(value <= 0 for value in made.log_probs)
        assert 0 < made.first_token_at <= now()


def test_tokens_of_aborted_calls_are_counted_to_the_last(host: Host, engine: VllmEngine) -> None:
    """All that the steps sampled was given to someone or is told as undelivered."""
    before = engine.report()

    async def work() -> list[CallOutput]:
        mades, tasks = started(engine, [call(sample, response_tokens=400) for sample in range(8)])
        await first_tokens(mades, 5)
        await engine.abort([0, 1, 2])
        assert [task.done() for task in tasks[:3]] == [True] * 3
        await first_tokens(mades[3:], 50)
        await engine.abort([3])
        await engine.abort([99])
        await asyncio.gather(*tasks)
        return mades

    mades = host.run(work())
    assert [made.reason for made in mades] == ["abort"] * 4 + ["length"] * 4
    assert all(0 <= made.undelivered_tokens <= 20 for made in mades)
    assert all(len(made.tokens) == sum(tokens for _, tokens in made.segments) for made in mades)
    sampled = engine.report().sampled_tokens - before.sampled_tokens
    assert sampled == sum(len(made.tokens) + made.undelivered_tokens for made in mades)


def test_a_call_that_has_not_reached_the_engine_yet_is_aborted_too(host: Host, engine: VllmEngine) -> None:
    async def work() -> CallOutput:
        (made,), (task,) = started(engine, [call(0, response_tokens=1000)])
        await asyncio.sleep(0)
        await engine.abort([0])
        assert task.done()
        return made

    made = host.run(work())
    assert made.reason == "abort"
    assert len(made.tokens) < 1000


def test_an_aborted_call_goes_on_elsewhere_from_its_tokens(host: Host, engines: list[VllmEngine]) -> None:
    async def work() -> tuple[CallOutput, CallOutput]:
        whole = call(0, response_tokens=200)
        (cut,), (task,) = started(engines[0], [whole])
        await first_tokens([cut], 20)
        await engines[0].abort([0])
        await task
        rest = replace(whole, context=[*whole.context, *cut.tokens], max_tokens=200 - len(cut.tokens))
        made = CallOutput()
        await engines[1].generate(rest, made)
        return cut, made

    cut, rest = host.run(work())
    assert len(cut.tokens) + len(rest.tokens) == 200


def test_weights_change_under_calls_that_keep_their_kv(host: Host, engine: VllmEngine) -> None:
    preempted = engine.report().preemptions

    async def work() -> list[CallOutput]:
        mades, tasks = started(engine, [call(sample, response_tokens=200) for sample in range(4)])
        await first_tokens(mades, 5)
        await engine.pause()
        made = [len(one.tokens) for one in mades]
        assert await engine.load(Weights(1, host.models[1] / "model.safetensors"), reset=False) == 1
        await asyncio.sleep(0.05)
        assert [len(one.tokens) for one in mades] == made
        await engine.resume()
        await asyncio.gather(*tasks)
        assert [one.segments for one in mades] == [((0, tokens), (1, 200 - tokens)) for tokens in made]
        return mades

    host.run(work())
    assert engine.report().preemptions == preempted


def test_kv_is_made_again_by_the_new_weights(host: Host, engine: VllmEngine) -> None:
    """Every call under way is prefilled once more, so its later tokens are what the new model says of all before."""
    before = engine.report()

    async def work() -> tuple[Call, CallOutput]:
        calls = [call(sample, response_tokens=120, seed=1) for sample in range(4)]
        mades, tasks = started(engine, calls)
        await first_tokens(mades, 5)
        await engine.pause()
        assert await engine.load(Weights(2, host.models[0] / "model.safetensors"), reset=True) == 2
        await engine.resume()
        await asyncio.gather(*tasks)
        return calls[0], mades[0]

    asked, made = host.run(work())
    assert [version for version, _ in made.segments] == [1, 2]
    assert engine.report().preemptions - before.preemptions == 4
    context = [*asked.context, *made.tokens]
    scored = host.run(engine.log_probs_of(context))[len(asked.context) - 1 :]
    first = made.segments[0][1]
    assert np.abs(np.array(scored) - made.log_probs)[first:].max() < 0.05
    assert np.abs(np.array(scored) - made.log_probs)[:first].mean() > 0.1


def test_engines_have_the_very_weights_of_the_file(host: Host, engine: VllmEngine) -> None:
    """Log-probs agree with those of transformers on the same file, and not on another. KV blocks have 16 tokens."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    tokens = call(7, prompt_tokens=300, seed=3).context

    def reference(folder: Path) -> Any:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        with torch.no_grad():
            log_probs = torch.log_softmax(model(torch.tensor([list(tokens)])).logits[0].float(), -1)
        return np.array([float(log_probs[at, token]) for at, token in enumerate(tokens[1:])])

    async def load(version: int, folder: Path) -> Any:
        await engine.pause()
        await engine.load(Weights(version, folder / "model.safetensors"), reset=True)
        await engine.resume()
        return np.array(await engine.log_probs_of(tokens))

    for version, folder in enumerate(host.models, 3):
        found = host.run(load(version, folder))
        other = host.models[0] if folder == host.models[1] else host.models[1]
        assert np.abs(found - reference(folder)).max() < 0.05
        assert np.abs(found - reference(other)).mean() > 0.1


def test_without_a_file_the_version_changes_and_the_weights_do_not(host: Host, engine: VllmEngine) -> None:
    tokens = call(7, prompt_tokens=60, seed=3).context

    async def work() -> list[list[float]]:
        found = []
        for version in (8, 9):
            await engine.pause()
            assert await engine.load(Weights(version, None), reset=False) == version
            await engine.resume()
            found.append(await engine.log_probs_of(tokens))
        return found

    first, second = host.run(work())
    assert first == second


def test_sleep_loses_the_kv_and_wake_brings_the_engine_back(host: Host, engine: VllmEngine) -> None:
    preempted = engine.report().preemptions

    async def work() -> list[CallOutput]:
        mades, tasks = started(engine, [call(sample, response_tokens=100) for sample in range(3)])
        await first_tokens(mades, 3)
        await engine.pause()
        await engine.sleep()
        made = [len(one.tokens) for one in mades]
        await engine.wake()
        await asyncio.sleep(0.05)
        assert [len(one.tokens) for one in mades] == made
        await engine.resume()
        await asyncio.gather(*tasks)
        return mades

    assert [len(made.tokens) for made in host.run(work())] == [100] * 3
    assert engine.report().preemptions == preempted + 3


def test_a_killed_engine_is_noticed_and_its_calls_keep_their_tokens(host: Host, engines: list[VllmEngine]) -> None:
    lost = engines[1]

    async def work() -> list[CallOutput]:
        mades, tasks = started(lost, [call(sample, response_tokens=1500) for sample in range(3)])
        await first_tokens(mades, 20)
        os.kill(lost.process_ids[0], signal.SIGKILL)
        done, pending = await asyncio.wait(tasks, timeout=2)
        assert not pending
        assert all(isinstance(task.exception(), EngineLostError) for task in done)
        for work in (lost.generate(call(9), CallOutput()), lost.pause(), lost.load(Weights(1, None), reset=True)):
            with pytest.raises(EngineLostError):
                await work
        await lost.abort([0])
        return mades

    for made in host.run(work()):
        assert len(made.tokens) >= 20
        assert made.segments == ((0, len(made.tokens)),)
        assert len(made.log_probs) == len(made.tokens)
        assert made.reason == ""
    record = host.run(lost.close())
    rows, told = record.windows, lost.report()
    assert sum(row.steps for row in rows) == told.steps > 20
    assert record.sampled_tokens == told.sampled_tokens
    assert all(row.replica == 1 for row in rows)
    assert all(earlier.end <= later.start for earlier, later in pairwise(rows))


# -- paced --------------------------------------------------------------------------------------------

LAW = StepTimeModel.affine(20e-3, 5e-5, 2e-7, 2e-5, 1e-9)
"""Slow enough for a loaded machine; every term counts."""
PACED = {
    **BASE,
    "rollout": {
        **BASE["rollout"],
        "max_num_seqs": 12,
        "max_num_batched_tokens": 128,
        "max_model_len": 512,
        "kv_blocks": 60,
        "enable_prefix_caching": True,
    },
}
RESPONSES = [20, 45, 100, 33, 60, 80, 150, 25, 90, 70, 40, 110, 55, 65]
"""Of prompts of 40 to 144 tokens, on so few blocks that some are preempted."""


def requests() -> list[Call]:
    return [call(i, 40 + 8 * i, tokens, seed=5) for i, tokens in enumerate(RESPONSES)]


@pytest.fixture(scope="module")
def paced(host: Host, tmp_path_factory: pytest.TempPathFactory) -> VllmEngine:
    (pool,) = resolve(Scenario.model_validate(PACED)).pools
    core = min(os.sched_getaffinity(0))
    given = paced_setup(replace(pool, law=LAW), tmp_path_factory.mktemp("paced"), core=core)
    (engine,) = host.start(given)
    return engine


def simulated(calls: Sequence[Call], limits: EngineLimits, law: StepTime) -> Iterator[tuple[int, ...]]:
    """The steps of the simulated replica that gets all calls at once: their contents and how long they last."""
    replica = Replica(0, limits, law, jump=False)
    for one in calls:
        replica.submit(one.request)
    at = 0
    while (end := replica.begin(at)) is not None:
        row = replica.window(end)
        yield row.decodes, row.kv_tokens, row.chunks, row.prefill_tokens, end - at
        replica.end(end)
        at = end


def steps_of(engine: VllmEngine, skip: int) -> list[StepRow]:
    return read_steps(EngineFiles(engine._files.folder))[skip:]


def test_a_paced_engine_runs_the_steps_of_the_simulated_replica_at_their_pace(host: Host, paced: VllmEngine) -> None:
    """Step for step the same batches and, by the law, the same picoseconds; preemptions included."""
    skip = len(steps_of(paced, 0))

    async def work() -> tuple[int, int]:
        await paced.pause()
        _, tasks = started(paced, requests())
        await asyncio.sleep(0.5)
        began = now()
        await paced.resume()
        await asyncio.gather(*tasks)
        return began, now()

    began, ended = host.run(work())
    limits = resolve(Scenario.model_validate(PACED)).pools[0].limits
    law = paced.setup.law
    assert law is not None
    found = steps_of(paced, skip)
    contents = [(s.decodes, s.kv_tokens, s.chunks, s.prefill_tokens, s.law_ticks) for s in found]
    assert contents == list(simulated(requests(), limits, law))
    told = paced.report()
    assert told.preemptions > 0
    whole = told.law_ticks
    print(
        f"paced: {told.steps} steps, wall over law {(ended - began) / whole:.4f}, late steps {told.late_steps} "
        f"({told.late_share:.1%}), worst {to_seconds(told.worst_late_ticks) * 1e3:.1f} ms"
    )
    # Never faster than the law, and behind it by no more than the engine itself says.
    assert whole <= ended - began <= 1.01 * whole + told.worst_late_ticks


def test_a_paced_engine_ends_a_step_on_time_or_says_that_it_was_late(paced: VllmEngine) -> None:
    steps = steps_of(paced, 0)
    assert all(earlier.end_ns <= later.start_ns for earlier, later in pairwise(steps))
    punctual = [step for step in steps[1:] if not step.late_ticks]
    assert punctual
    assert all(step.end_ns - step.start_ns <= step.law_ticks / 1000 + 1 for step in punctual)


EOS = 7
ENDS = {EOS, vocabulary.EOS}
"""The token that the engine is told of, and the one that the model names itself."""


@pytest.fixture(scope="module")
def others(host: Host) -> list[VllmEngine]:
    """One with dummy weights, and one that overlaps steps, on few blocks."""
    dummy = setup(host.models[0], load_format="dummy")
    overlapping = setup(host.models[0], asynchronous=True, kv_blocks=130, max_num_batched_tokens=128, eos=EOS)
    return host.start(dummy, overlapping)


def test_nothing_is_lost_of_what_overlapping_steps_sample(host: Host, others: list[VllmEngine]) -> None:
    """A step that was under way when its call stopped, was aborted or preempted has sampled too, and is told."""
    engine = others[1]

    async def work() -> list[CallOutput]:
        calls = [replace(call(i, 60 + 5 * i, 200, seed=6), ignore_eos=i % 2 == 0) for i in range(24)]
        mades, tasks = started(engine, calls)
        for first in (0, 4, 8):
            await first_tokens(mades[first : first + 2], 3)
            await engine.abort([first, first + 1])
        await engine.pause()
        await engine.load(Weights(1, None), reset=True)
        await engine.resume()
        await asyncio.gather(*tasks)
        return mades

    mades = host.run(work())
    assert [made.reason for made in mades].count("abort") >= 3
    stopped = [made for made in mades if made.reason == "stop"]
    assert stopped
    assert all(made.tokens[-1] in ENDS and ENDS.isdisjoint(made.tokens[:-1]) for made in stopped)
    assert any(made.undelivered_tokens for made in stopped)
    told = engine.report()
    assert told.preemptions > 0
    assert told.sampled_tokens == sum(len(made.tokens) + made.undelivered_tokens for made in mades)


def test_an_engine_with_dummy_weights_refuses_a_file_but_tells_versions(host: Host, others: list[VllmEngine]) -> None:
    engine = others[0]

    async def work() -> None:
        await engine.pause()
        assert await engine.load(Weights(4, None), reset=True) == 4
        with pytest.raises(RlsimError, match="load_format auto"):
            await engine.load(Weights(5, host.models[0] / "model.safetensors"), reset=True)
        await engine.resume()

    host.run(work())
