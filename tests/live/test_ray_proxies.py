"""Engines and trainers in actors, with actors that are objects of this process: no Ray is needed here."""

from __future__ import annotations

import asyncio
import pickle
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import EngineScript, TrainerScript, call

from rlsim.core.commands import Train
from rlsim.core.errors import ParameterError, RlsimError
from rlsim.live.protocols import CallOutput, EngineLostError, TrainerLostError, Weights
from rlsim.live.ray import clock as ray_clock
from rlsim.live.ray import host as ray_host
from rlsim.live.ray.actor import ActorGoneError
from rlsim.live.ray.clock import Offset, node_now, offset
from rlsim.live.ray.engine import RayEngine
from rlsim.live.ray.files import FileTransfer
from rlsim.live.ray.trainer import RayTrainer
from rlsim.live.vllm.step_log import EngineFiles, read_steps

SECOND = 10**12


@dataclass
class LocalPorter:
    """Packs bytes, and counts how often."""

    name: str
    packed: list[Path] = field(default_factory=list)

    def node(self) -> str:
        return self.name

    def pack(self, file: Path) -> Any:
        self.packed.append(file)
        return [file.read_bytes()]

    async def fetch(self, packed: Any) -> Any:
        return packed[0]


class LocalActor:
    """An object behind pickles that can be killed."""

    def __init__(self, node: str, kind: type, *arguments: Any) -> None:
        *rest, _ = arguments
        self.porter = LocalPorter(node)
        self.object = kind(*pickle.loads(pickle.dumps(rest)), self.porter)
        self._dead: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_node_there = True

    async def ask(self, method: str, *arguments: Any) -> Any:
        given = pickle.loads(pickle.dumps(arguments))
        return pickle.loads(pickle.dumps(await self._alive(getattr(self.object, method)(*given))))

    async def _alive(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(work)
        await asyncio.wait({task, self._dead}, return_when=asyncio.FIRST_COMPLETED)
        if self._dead.done():
            task.cancel()
            raise ActorGoneError("it was killed")
        return task.result()

    async def stream(self, method: str) -> AsyncIterator[Any]:
        answers = getattr(self.object, method)()
        while (answer := await self._alive(anext(answers, None))) is not None:
            yield pickle.loads(pickle.dumps(answer))

    async def after(self, work: Callable[..., Any], *arguments: Any) -> Any:
        if not self.is_node_there:
            raise ActorGoneError("so is its node")
        return await asyncio.to_thread(work, *arguments)

    def end(self) -> None:
        if not self._dead.done():
            self._dead.set_result(None)
        for task in getattr(self.object, "_tasks", ()):
            task.cancel()


@pytest.fixture(autouse=True)
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where all nodes have their files; a run leaves none."""
    folder = tmp_path / "nodes"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir())


class Scene:
    """Engines and a trainer on named nodes; the run is driven on node ``a``."""

    def __init__(self, work: Path, now: Callable[[], int] = node_now) -> None:
        self.work, self.now, self.model = work / "run", now, work / "run" / "model"
        self.work.mkdir()
        self.model.mkdir()
        (self.model / "config.json").write_text("{}")
        self.transfer = FileTransfer(LocalPorter("a"))
        self.actors: list[LocalActor] = []

    def _hire(self, node: str) -> Callable[..., LocalActor]:
        def hire(kind: type, *arguments: Any) -> LocalActor:
            self.actors.append(LocalActor(node, kind, *arguments))
            return self.actors[-1]

        return hire

    def make(self, node: str) -> RayEngine:
        number = len(self.actors)
        spec = EngineScript(number, self.model)
        return RayEngine(number, spec, self.now, self.work, self._hire(node), self.transfer)

    async def engine(self, node: str = "a") -> RayEngine:
        made = self.make(node)
        await made.start()
        return made

    async def trainer(self, node: str = "a") -> RayTrainer:
        made = RayTrainer(TrainerScript(self.model), self.work, self._hire(node), self.transfer)
        await made.start()
        return made


async def tokens(made: CallOutput, count: int) -> None:
    while len(made.tokens) < count:
        await asyncio.sleep(0.001)


def test_calls_come_back_as_the_engine_made_them(tmp_path: Path) -> None:
    async def life() -> tuple[list[CallOutput], Any]:
        engine = await Scene(tmp_path).engine()
        mades = [CallOutput() for _ in range(3)]
        await asyncio.gather(*(engine.generate(call(sample, 20 + sample), made) for sample, made in enumerate(mades)))
        return mades, await engine.close()

    mades, record = asyncio.run(life())
    for sample, made in enumerate(mades):
        count = 20 + sample
        assert made.tokens == [sample, *range(count - 1)]
        assert made.log_probs == [-float(number) for number in range(1, count + 1)]
        assert (made.segments, made.reason, made.undelivered_tokens) == (((0, count),), "length", 0)
        assert 0 < made.first_token_at < node_now()
    assert record.sampled_tokens == 20 + 21 + 22


def test_marks_are_told_and_a_checked_draft_comes_back(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    async def life() -> CallOutput:
        engine, made, order = await Scene(tmp_path).engine(), CallOutput(), call(3, 30)
        order.request.marks = (4, 20, 30)
        engine.set_marked(lambda request, count: told.append((request.sample, count)))
        await engine.generate(replace(order, draft_tokens=2), made)
        await engine.close()
        return made

    made = asyncio.run(life())
    assert told == [(3, 4), (3, 20)]
    assert made.draft_log_probs == [-0.25, -0.5]


def test_what_had_been_reported_survives_the_actor_and_its_notes_do_too(tmp_path: Path) -> None:
    async def life() -> tuple[CallOutput, Any, int]:
        scene, made = Scene(tmp_path), CallOutput()
        engine = await scene.engine()
        running = asyncio.create_task(engine.generate(call(7, 10**6), made))
        await tokens(made, 10)
        noted = len(read_steps(EngineFiles(scene.actors[0].object._folder / "engine")))
        scene.actors[0].end()
        with pytest.raises(EngineLostError, match="replica 0"):
            await running
        with pytest.raises(EngineLostError):
            await engine.generate(call(8, 4), CallOutput())
        with pytest.raises(EngineLostError):
            await engine.pause()
        return made, await engine.close(), noted

    made, record, noted = asyncio.run(life())
    assert len(made.tokens) >= 10
    assert made.tokens == [7, *range(len(made.tokens) - 1)]
    assert made.segments == ((0, len(made.tokens)),)
    assert made.reason == ""
    assert record.sampled_tokens >= max(noted, len(made.tokens))


def test_nothing_is_told_of_an_engine_whose_node_is_gone(tmp_path: Path, nodes: Path) -> None:
    async def life() -> Any:
        scene, made = Scene(tmp_path), CallOutput()
        engine = await scene.engine()
        running = asyncio.create_task(engine.generate(call(7, 10**6), made))
        await tokens(made, 3)
        scene.actors[0].is_node_there = False
        scene.actors[0].end()
        await asyncio.wait([running])
        assert isinstance(running.exception(), EngineLostError)
        return await engine.close()

    assert asyncio.run(life()).sampled_tokens is None
    for folder in nodes.iterdir():
        shutil.rmtree(folder)


def test_an_engine_lost_inside_its_actor_is_lost_with_what_it_had_made(tmp_path: Path) -> None:
    async def life() -> CallOutput:
        engine, made = await Scene(tmp_path).engine(), CallOutput()
        with pytest.raises(EngineLostError, match="as it was told"):
            await engine.generate(replace(call(3, 50), priority=1), made)
        await engine.close()
        return made

    assert asyncio.run(life()).tokens == [3, 0, 1, 2, 3]


def test_a_call_can_be_aborted_as_soon_as_it_was_made(tmp_path: Path) -> None:
    async def life() -> tuple[CallOutput, CallOutput]:
        engine, mades = await Scene(tmp_path).engine(), (CallOutput(), CallOutput())
        tasks = [asyncio.create_task(engine.generate(call(at, 40), made)) for at, made in enumerate(mades)]
        await asyncio.sleep(0)
        await engine.abort([0, 99])
        await asyncio.gather(*tasks)
        await engine.close()
        return mades

    cut, whole = asyncio.run(life())
    assert cut.reason == "abort"
    assert len(cut.tokens) < 40
    assert (whole.reason, len(whole.tokens)) == ("length", 40)


def test_closing_ends_calls_and_their_last_tokens_arrive(tmp_path: Path) -> None:
    async def life() -> tuple[CallOutput, Any]:
        engine, made = await Scene(tmp_path).engine(), CallOutput()
        running = asyncio.create_task(engine.generate(call(1, 10**6), made))
        await tokens(made, 5)
        record = await engine.close()
        await running
        return made, record

    made, record = asyncio.run(life())
    assert made.reason == "abort"
    assert record.sampled_tokens == len(made.tokens)


def test_a_pause_holds_and_versions_are_told_by_the_engine(tmp_path: Path) -> None:
    async def life() -> CallOutput:
        engine, made = await Scene(tmp_path).engine(), CallOutput()
        running = asyncio.create_task(engine.generate(call(1, 30), made))
        await tokens(made, 5)
        await engine.pause()
        assert await engine.load(Weights(4, None), True) == 4
        await engine.resume()
        await running
        with pytest.raises(RlsimError, match="it does not sleep"):
            await engine.sleep()
        await engine.wake()
        await engine.close()
        return made

    made = asyncio.run(life())
    assert [version for version, _ in made.segments] == [0, 4]
    assert sum(count for _, count in made.segments) == len(made.tokens) == 30


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=30, max_size=30),
)
def test_the_offset_is_as_right_as_it_says(skew: int, delays: list[tuple[int, int]]) -> None:
    """Whatever the ways there and back take, the truth is within half the shortest round trip."""
    time, ways = [0], iter(delays)

    async def ask() -> int:
        there, back = next(ways)
        time[0] += there
        told = time[0] + skew
        time[0] += back
        return told

    found = asyncio.run(offset(ask, lambda: time[0]))
    shortest = min(there + back for there, back in delays[: ray_clock.TRIES])
    assert abs(found.nanoseconds - skew) <= found.within_nanoseconds
    assert found.within_nanoseconds == (shortest + 1) // 2


def test_times_of_a_node_with_another_clock_are_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's clock begins anew after the engines have started; the node's is a year ahead."""
    skew_ns = 365 * 24 * 3600 * 10**9
    true_ns = ray_clock.node_ns
    zero = [0]

    def now() -> int:
        return true_ns() * 1000 - zero[0]

    monkeypatch.setattr(ray_clock, "node_ns", lambda: true_ns() + skew_ns)
    monkeypatch.setattr(ray_host, "node_ns", lambda: true_ns() + skew_ns)
    monkeypatch.setattr(ray_host, "host", lambda: "another")

    async def life() -> tuple[CallOutput, Any, Offset]:
        engine, made = await Scene(tmp_path, now).engine(), CallOutput()
        zero[0] = true_ns() * 1000
        await engine.generate(call(1, 50), made)
        asked = now()
        await engine.pause()
        within = engine.offset.within_nanoseconds * 1000
        assert asked - within <= engine.last_step_end() <= now()
        return made, await engine.close(), engine.offset

    made, record, found = asyncio.run(life())
    end, within = now(), found.within_nanoseconds * 1000
    assert abs(found.nanoseconds - skew_ns) <= found.within_nanoseconds
    assert -within <= made.first_token_at <= end
    assert -within - SECOND // 1000 <= record.windows[0].start <= made.first_token_at + within + SECOND // 1000
    assert all(row.start <= row.end <= end + within for row in record.windows)


def test_on_one_host_clocks_are_one(tmp_path: Path) -> None:
    async def life() -> RayEngine:
        engine = await Scene(tmp_path).engine()
        await engine.close()
        return engine

    assert asyncio.run(life()).offset == Offset(0, 0)


def test_weights_go_to_other_nodes_once_each_version_and_only_there(tmp_path: Path) -> None:
    async def life() -> tuple[list[int], list[list[str]], list[Path]]:
        scene = Scene(tmp_path)
        trainer = await scene.trainer("b")
        engines = [await scene.engine(node) for node in ("a", "b", "c")]
        served = []
        for version in (1, 2):
            weights = await trainer.publish(version)
            served += await asyncio.gather(*(engine.load(weights, False) for engine in engines))
        actors = scene.actors
        left = [[file.name for file in actor.object._folder.glob("*.safetensors")] for actor in actors[1:]]
        packed = actors[0].porter.packed
        for one in (*engines, trainer):
            await one.close()
        return served, left, packed

    served, left, packed = asyncio.run(life())
    assert served == [1, 1, 1, 2, 2, 2]
    assert left == [[], [], []]
    assert [file.name for file in packed] == ["version-1.safetensors", "version-2.safetensors"]


def test_a_model_made_for_the_run_is_brought_and_any_other_must_be_there(tmp_path: Path) -> None:
    async def life() -> tuple[Path, Path]:
        scene = Scene(tmp_path)
        near, far = await scene.engine("a"), await scene.engine("b")
        found = [actor.object._engine.model for actor in scene.actors]
        assert (found[1] / "config.json").read_text() == "{}"
        await near.close()
        await far.close()
        scene.model = Path("/nowhere")
        lost = scene.make("b")
        with pytest.raises(ParameterError, match="every node"):
            await lost.start()
        await lost.close()
        return found[0], found[1]

    near, far = asyncio.run(life())
    assert near == tmp_path / "run" / "model"
    assert not far.is_relative_to(tmp_path / "run")


def test_a_trainer_learns_in_its_actor_until_that_is_lost(tmp_path: Path) -> None:
    async def life() -> None:
        scene = Scene(tmp_path)
        trainer = await scene.trainer("b")
        learnt = await trainer.train(Train(0, (), last=True), [])
        assert learnt.metrics["samples"] == 0
        weights = await trainer.publish(1)
        engine = await scene.engine("c")
        scene.actors[0].end()
        for work in (trainer.train(Train(1, (), last=True), []), trainer.publish(2), engine.load(weights, False)):
            with pytest.raises(TrainerLostError):
                await work
        await trainer.close()
        with pytest.raises(TrainerLostError):
            await trainer.publish(3)
        await engine.close()

    asyncio.run(life())
