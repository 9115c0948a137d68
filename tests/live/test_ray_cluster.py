"""Actors of real local Ray clusters: processes that are killed, nodes that vanish, files that travel."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from scripted import EngineScript, TrainerScript, call

from rlsim.core.commands import Train
from rlsim.core.errors import RlsimError
from rlsim.live.clock import RealClock
from rlsim.live.protocols import CallOutput, EngineLostError, TrainerLostError
from rlsim.live.ray.cluster import LOOPBACK, RaySite
from rlsim.live.ray.engine import RayEngine
from rlsim.live.ray.trainer import RayTrainer
from rlsim.live.site import Needs

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")]

Life = Callable[[list[RayEngine], RayTrainer, RaySite], Coroutine[Any, Any, Any]]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters listen on loopback, and their processes find what this one does."""
    for name, value in LOOPBACK.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path


def lives(site: RaySite, work: Path, life: Life, needs: Needs = Needs(1)) -> Any:  # noqa: B008
    """What becomes of two engines and a trainer that were placed and started; they are closed at the end."""
    model = work / "model"

    async def whole() -> Any:
        specs = [EngineScript(replica, model, needs) for replica in range(2)]
        placed = site.place(specs, TrainerScript(model), RealClock(), work)
        engines, trainer = list(placed.engines), placed.trainer
        await asyncio.gather(*(engine.start() for engine in engines), trainer.start())
        told = await life(engines, trainer, site)
        await trainer.close()
        return told

    with site:
        return asyncio.run(whole())


async def process_of(trainer: Any) -> int:
    return int((await trainer.train(Train(0, (), last=True), [])).metrics["process"])


async def tokens(made: CallOutput, count: int) -> None:
    while len(made.tokens) < count:
        await asyncio.sleep(0.001)


def test_an_actor_that_is_killed_leaves_what_it_had_made_and_noted(work: Path) -> None:
    async def life(engines: Any, trainer: Any, site: RaySite) -> None:
        import ray

        assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]
        mades = [CallOutput(), CallOutput()]
        calls = zip(engines, mades, strict=True)
        tasks = [asyncio.create_task(engine.generate(call(7, 500), made)) for engine, made in calls]
        await asyncio.gather(*(tokens(made, 20) for made in mades))
        os.kill(engines[0].location.process, signal.SIGKILL)
        with pytest.raises(EngineLostError):
            await tasks[0]
        await tasks[1]
        records = [await engine.close() for engine in engines]
        assert mades[0].tokens == [7, *range(len(mades[0].tokens) - 1)]
        assert records[0].sampled_tokens >= len(mades[0].tokens) >= 20
        assert (mades[1].reason, records[1].sampled_tokens) == ("length", 500)
        assert not any(engine.location.folder.exists() for engine in engines)

        os.kill(await process_of(trainer), signal.SIGKILL)
        with pytest.raises(TrainerLostError):
            await trainer.publish(1)

    lives(RaySite(None, "pack"), work, life)


def test_a_cluster_that_is_too_small_is_told_at_once(work: Path) -> None:
    async def life(engines: Any, trainer: Any, site: RaySite) -> None:
        raise AssertionError("there is no room")

    started = time.monotonic()
    with pytest.raises(RlsimError, match=r"asked for 1 CPU 64 GPU \+ 1 CPU 64 GPU \+ 1 CPU \(PACK\), it has .* 0 GPU"):
        lives(RaySite(None, "pack"), work, life, Needs(1, 64))
    assert time.monotonic() - started < 600


@pytest.fixture
def nodes() -> Iterator[Any]:
    """A cluster of three nodes, as Ray sees them: each has its own id and its own object store."""
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    made.workers = [made.add_node(num_cpus=1) for _ in range(3)]
    yield made
    ray.shutdown()
    made.shutdown()


def test_weights_and_models_travel_between_nodes_and_a_node_that_vanishes_is_a_lost_engine(
    work: Path, nodes: Any
) -> None:
    async def life(engines: Any, trainer: Any, site: RaySite) -> None:
        facts = site.facts()["cluster"]
        assert sorted([*facts["replica_nodes"], facts["trainer_node"]]) == [0, 1, 2]
        for version in (1, 2):
            weights = await trainer.publish(version)
            assert [await engine.load(weights, False) for engine in engines] == [version] * 2
        made = CallOutput()
        task = asyncio.create_task(engines[1].generate(call(5, 10**6), made))
        await tokens(made, 10)
        (gone,) = [node for node in nodes.workers if node.node_id == engines[1].location.node]
        nodes.remove_node(gone)
        with pytest.raises(EngineLostError):
            await task
        assert made.segments == ((2, len(made.tokens)),)
        await engines[0].generate(call(6, 10), CallOutput())
        for engine in engines:
            await engine.close()
        shutil.rmtree(engines[1].location.folder)  # of a node that vanished without its disk

    lives(RaySite(nodes.address, "strict-spread"), work, life)


def test_where_there_is_no_cluster_it_says_so(work: Path) -> None:
    async def life(engines: Any, trainer: Any, site: RaySite) -> None:
        raise AssertionError("there is no cluster")

    with pytest.raises(RlsimError, match=r"no Ray cluster: 127\.0\.0\.1:1: .*refused"):
        lives(RaySite("127.0.0.1:1", "pack"), work, life)
