"""Five policies on real vLLM with a real trainer: versions, staleness, ledger, replay, and the weights themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rlsim.core.commands import Submit
from rlsim.core.events import Aborted, Finished, Synced
from rlsim.core.log import Decision, RunLog
from rlsim.executor.run import make_controller
from rlsim.live.backends import backend
from rlsim.live.components import LiveComponents
from rlsim.live.execution import Execution
from rlsim.live.protocols import Record
from rlsim.live.run import LiveRun, refuse, run_live
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.results.metrics import metrics
from rlsim.results.replay.decisions import NoJournal, replay
from rlsim.scenario.document import load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None or find_spec("torch") is None, reason="needs vLLM and torch"),
]
SCENARIO = Path(__file__).parents[2] / "scenarios" / "live" / "small.yaml"
STEPS = 6
MOST_START_LAG = {"sync": 0, "one-step-off": 1, "bounded": 2, "over-sample": STEPS, "in-flight": 4}
"""In weights versions. Bounded: one by its rule, on groups in order of admission; batches take the oldest complete
groups, so one may train a step later. In flight: 32 samples ahead are two steps, 24 calls may be under way."""
BF16 = 0.06
"""Most by which rounding to bf16 moved a log-probability of this model is 0.03."""
PROBE = [5, 9, 17, 33, 65, 129, 257, 513]


def test_scenario_has_these_arms() -> None:
    assert list(load(str(SCENARIO), [], []).resolve_all()) == list(MOST_START_LAG)


class Probes:
    """What engines and trainer say of one text when the run is over, before they end."""

    def __init__(self) -> None:
        self.engines: dict[int, tuple[int, list[float]]] = {}
        self.trainer: list[float] = []
        self.untrained: list[float] = []

    def watch(self, execution: Execution, crew: LiveComponents) -> None:
        """Ask each engine as it closes."""
        for engine in crew.engines:
            self._ask_at_close(engine, crew.trainer)
        self._ask_before_training(crew.trainer)

    def _ask_before_training(self, trainer: Any) -> None:
        train = trainer.train

        async def asked(*given: Any) -> Any:
            if not self.untrained:
                self.untrained = (await trainer.log_probs([PROBE]))[0]
            return await train(*given)

        trainer.train = asked

    def _ask_at_close(self, engine: Any, trainer: Any) -> None:
        close = engine.close

        async def asked() -> Record:
            await engine.abort(list(engine._names))
            await engine.resume()
            self.engines[engine.replica] = engine._served, await engine.log_probs_of(PROBE)
            self.trainer = (await trainer.log_probs([PROBE]))[0]
            record: Record = await close()
            return replace(record, sampled_tokens=(record.sampled_tokens or 1) - 1)  # the probe's own token

        engine.close = asked


def planned(arm: str) -> ResolvedScenario:
    return resolve(load(str(SCENARIO), [], [f"run.steps={STEPS}", "run.warmup_steps=0"]).resolve(arm))


@pytest.fixture(scope="module", params=list(MOST_START_LAG))
def ran(request: Any, tmp_path_factory: Any) -> tuple[str, ResolvedScenario, LiveRun, Probes]:
    made, on, probes = planned(request.param), backend("vllm"), Probes()
    refuse(made, on)
    run = run_live(made, on, NoJournal(), tmp_path_factory.mktemp("live"), watch=probes.watch)
    assert run.ending.fault is None
    return request.param, made, run, probes


def segments(log: RunLog) -> list[Sequence[tuple[int, int]]]:
    found = []
    for row in log.decisions:
        if isinstance(row.event, Finished):
            found.append(row.event.segments)
        elif isinstance(row.event, Aborted):
            found += [cut.segments for cut in row.event.cuts]
    return found


def test_every_update_was_made(ran: tuple[str, ResolvedScenario, LiveRun, Probes]) -> None:
    log = ran[2].run.log
    assert len(log.iterations) == STEPS
    assert [row.event.version for row in log.decisions if isinstance(row.event, Synced)] == list(range(1, STEPS + 1))


def test_segments_carry_the_versions_that_engines_served(ran: tuple[str, ResolvedScenario, LiveRun, Probes]) -> None:
    """A call submitted after a publication is made by its weights or newer ones; versions never go back."""
    log, version, submitted = ran[2].run.log, 0, {}
    for row in log.decisions:
        if isinstance(row.event, Synced):
            version = row.event.version
        for event in ended(row):
            versions = [made for made, _ in event.segments]
            assert versions == sorted(set(versions))
            assert all(submitted[event.sample] <= made <= version + 1 for made in versions)
            assert sum(tokens for _, tokens in event.segments) == event.tokens
        submitted |= {made.sample: version for made in row.commands if isinstance(made, Submit)}
    assert {made for found in segments(log) for made, _ in found} >= set(range(STEPS - 1))


def ended(row: Decision) -> Sequence[Any]:
    if isinstance(row.event, Finished):
        return [row.event]
    return row.event.cuts if isinstance(row.event, Aborted) else []


def test_weights_change_under_calls_where_the_policy_says_so(
    ran: tuple[str, ResolvedScenario, LiveRun, Probes],
) -> None:
    several = any(len(found) > 1 for found in segments(ran[2].run.log))
    assert several or ran[0] in ("sync", "one-step-off", "over-sample")
    assert not (several and ran[0] in ("sync", "one-step-off"))


def test_the_engines_have_the_trainers_weights(ran: tuple[str, ResolvedScenario, LiveRun, Probes]) -> None:
    """Log-probabilities of one text by each engine, which computes in bf16, and by the trainer, which does not."""
    probes = ran[3]
    moved = farthest(probes.untrained, probes.trainer)
    assert sorted(probes.engines) == [0, 1]
    for served, said in probes.engines.values():
        assert served == STEPS
        assert farthest(said, probes.trainer) < BF16 < moved / 4


def farthest(some: Sequence[float], others: Sequence[float]) -> float:
    return max(abs(one - other) for one, other in zip(some, others, strict=True))


def test_the_ledger_closes_by_the_engines_own_count(ran: tuple[str, ResolvedScenario, LiveRun, Probes]) -> None:
    told = metrics(ran[2].run)
    assert told.ledger_closes
    assert told.ledger_tokens["trained"] > 0
    assert told.ledger_tokens["failed"] == 0


def test_staleness_is_within_its_bound(ran: tuple[str, ResolvedScenario, LiveRun, Probes]) -> None:
    told = metrics(ran[2].run)
    assert told.start_lag_max <= MOST_START_LAG[ran[0]]
    if ran[0] != "sync":
        assert told.start_lag_max > 0


def test_a_fresh_controller_gives_every_command_again(ran: tuple[str, ResolvedScenario, LiveRun, Probes]) -> None:
    _, made, run, _ = ran
    replay(run.run.log.decisions, make_controller(made, made.workload_of(0), oracle=False))


def test_the_trainer_learnt_from_every_batch(ran: tuple[str, ResolvedScenario, LiveRun, Probes]) -> None:
    learnt = [found.metrics for _, found in ran[2].crew.learnt]
    assert len(learnt) >= STEPS
    assert any(found["gradient_norm"] > 0 for found in learnt)
