"""Live runs on real vLLM engines that are actors of a local Ray cluster."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rlsim.core.commands import Submit
from rlsim.core.events import Finished, ReplicaLost, Synced
from rlsim.executor.run import make_controller
from rlsim.live.backends import backend
from rlsim.live.components import LiveComponents
from rlsim.live.execution import Execution
from rlsim.live.ray.cluster import RaySite
from rlsim.live.run import LiveRun, refuse, run_live
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.results.metrics import metrics
from rlsim.results.replay.decisions import NoJournal, replay
from rlsim.scenario.document import load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None or find_spec("ray") is None, reason="needs vLLM and Ray"),
]
SCENARIOS = Path(__file__).parents[2] / "scenarios" / "live"
STEPS = 3


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SCENARIOS.parents[1]))


def run(name: str, arm: str, engine: str, work: Path, watch: Any) -> tuple[ResolvedScenario, LiveRun, dict[str, Any]]:
    """A run, and what its record says of the cluster."""
    settings = [f"run.steps={STEPS}", "run.warmup_steps=0"]
    made = resolve(load(str(SCENARIOS / f"{name}.yaml"), [], settings).resolve(arm))
    with RaySite(None, made.scenario.live.placement) as site:
        on = backend(engine, site)
        refuse(made, on)
        live = run_live(made, on, NoJournal(), work, watch=watch)
        return made, live, on.facts()["cluster"]


def holds(made: ResolvedScenario, live: LiveRun) -> None:
    """It came to its end; a fresh controller gives every command again, and no token is missing."""
    assert live.ending.fault is None
    log = live.run.log
    assert len(log.iterations) == STEPS
    replay(log.decisions, make_controller(made, made.workload_of(0), oracle=False))
    told = metrics(live.run)
    assert told.ledger_closes
    assert told.ledger_tokens["failed"] == 0


def test_a_paced_run_goes_on_without_the_replica_whose_actor_is_killed(tmp_path: Path) -> None:
    """Killed as soon as it has given tokens; its calls are made elsewhere, and its process leaves no engine behind."""
    left: list[int] = []

    def watch(execution: Execution, crew: LiveComponents) -> None:
        ended, engine = execution.ended, crew.engines[0]

        def kill_once(running: Any) -> None:
            if not left and running.replica == 0:
                left.extend(children(engine.location.process))  # type: ignore[attr-defined]
                os.kill(engine.location.process, signal.SIGKILL)  # type: ignore[attr-defined]
            ended(running)

        execution.ended = kill_once  # type: ignore[method-assign]

    made, live, cluster = run("paced", "in-flight", "vllm-paced", tmp_path, watch)
    holds(made, live)
    lost = [row.event for row in live.run.log.decisions if isinstance(row.event, ReplicaLost)]
    assert {event.replica for event in lost} == {0}
    cut = {cut.sample for event in lost for cut in event.cuts}
    again = [made for row in live.run.log.decisions for made in row.commands if isinstance(made, Submit)]
    assert cut
    assert cut <= {command.sample for command in again if command.replica == 1}
    assert live.ending.records[0].windows
    assert left
    assert not any(Path(f"/proc/{process}").exists() for process in left)
    assert cluster["replica_nodes"] == [0, 0]


def children(process: int) -> list[int]:
    """Of a process, threads' included."""
    return [
        int(child) for file in Path(f"/proc/{process}/task").glob("*/children") for child in file.read_text().split()
    ]


def test_a_real_trainer_in_an_actor_gives_its_weights_to_engines_in_others(tmp_path: Path) -> None:
    made, live, cluster = run("small", "one-step-off", "vllm", tmp_path, lambda execution, crew: None)
    holds(made, live)
    log = live.run.log
    assert [row.event.version for row in log.decisions if isinstance(row.event, Synced)] == list(range(1, STEPS + 1))
    versions = {made for row in log.decisions if isinstance(row.event, Finished) for made, _ in row.event.segments}
    assert versions >= set(range(STEPS - 1))
    assert any(found.metrics["gradient_norm"] > 0 for _, found in live.crew.learnt)
    assert cluster["trainer_node"] == 0
