"""Processes of real runs killed in the middle: an engine's, whose work goes on elsewhere, and the trainer's."""

from __future__ import annotations

import asyncio
import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rlsim.core.events import ReplicaLost, TrainerLost
from rlsim.executor.run import make_controller
from rlsim.live.backends import backend
from rlsim.live.components import LiveComponents
from rlsim.live.execution import Execution
from rlsim.live.protocols import TrainerLostError
from rlsim.live.run import LiveRun, refuse, run_live
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.results.metrics import ledger_tokens
from rlsim.results.replay.decisions import NoJournal, replay
from rlsim.scenario.document import load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None or find_spec("torch") is None, reason="needs vLLM and torch"),
]
SCENARIO = Path(__file__).parents[2] / "scenarios" / "live" / "small.yaml"


def ran(arm: str, engine: str, tmp_path: Path, watch: Any, *sets: str) -> tuple[ResolvedScenario, LiveRun]:
    made, on = (
        resolve(load(str(SCENARIO), [], ["run.steps=4", "run.warmup_steps=0", *sets]).resolve(arm)),
        backend(engine),
    )
    refuse(made, on)
    return made, run_live(made, on, NoJournal(), tmp_path, watch=watch)


def killed_in_the_middle(processes: Any) -> Any:
    """Kills what ``processes(crew)`` names once the first training step has ended."""

    def watch(execution: Execution, crew: LiveComponents) -> None:
        async def kill() -> None:
            while not execution.log.iterations:
                await asyncio.sleep(0.01)
            for process in processes(crew):
                os.kill(process, signal.SIGKILL)

        crew.trainer.killer = asyncio.create_task(kill())  # type: ignore[attr-defined]

    return watch


def complete_and_replayable(made: ResolvedScenario, run: LiveRun) -> None:
    log = run.run.log
    samples = [row.sample for row in log.final]
    assert len(samples) == len(set(samples))
    assert sum(ledger_tokens(log).values()) == log.generated_tokens > 0
    replay(log.decisions, make_controller(made, made.workload_of(0), oracle=False))


@pytest.mark.parametrize("arm", ["bounded", "in-flight"])
def test_the_work_of_a_killed_engine_goes_on_elsewhere(arm: str, tmp_path: Path) -> None:
    def second_engine(crew: LiveComponents) -> Any:
        return crew.engines[1].process_ids  # type: ignore[attr-defined]

    made, run = ran(arm, "vllm-paced", tmp_path, killed_in_the_middle(second_engine), "live.trainer=paced")
    assert run.ending.fault is None
    assert len(run.run.log.iterations) == 4
    lost = [row.event for row in run.run.log.decisions if isinstance(row.event, ReplicaLost)]
    assert {event.replica for event in lost} == {1}
    assert sum(len(event.cuts) for event in lost) > 0
    complete_and_replayable(made, run)


def test_a_killed_trainer_ends_the_run_with_its_log_whole(tmp_path: Path) -> None:
    made, run = ran("bounded", "vllm", tmp_path, killed_in_the_middle(lambda crew: crew.trainer._pids))
    assert isinstance(run.ending.fault, TrainerLostError)
    assert isinstance(run.run.log.decisions[-1].event, TrainerLost)
    complete_and_replayable(made, run)
