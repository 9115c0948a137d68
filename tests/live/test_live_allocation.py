"""Strategies that read rewards on real engines: the books close, and each uses and wastes what its simulation says."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

import pytest

from rlsim.core.commands import Submit
from rlsim.core.events import Scored
from rlsim.core.log import RunLog
from rlsim.executor.run import make_controller
from rlsim.live.backends import backend
from rlsim.live.run import refuse, run_live
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.results.metrics import ledger_tokens
from rlsim.results.replay.decisions import NoJournal, replay
from rlsim.scenario.document import load
from rlsim.sim.simulation import simulate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None or find_spec("torch") is None, reason="needs vLLM and torch"),
]
SCENARIO = Path(__file__).parents[2] / "scenarios" / "live" / "allocation.yaml"
ARMS = ("uniform", "dynamic sampling", "waves by variance")
STEPS = 12
SEEDS = range(3)
"""Of the simulated runs: their mean is what a live run is held to."""
ROLLOUTS, FILTERED = 0.2, 0.12
"""Three standard deviations of the difference between a live run of so many steps (12 were measured) and that mean:
relative, and of a share."""


@dataclass(frozen=True)
class Used:
    """What a run used up."""

    rollouts_per_update: float
    shares: dict[str, float]
    """Of the samples, by outcome."""


def used(log: RunLog) -> Used:
    begun = {made.sample for row in log.decisions for made in row.commands if isinstance(made, Submit)}
    outcomes = Counter(row.outcome for row in log.final)
    shares = {outcome: count / outcomes.total() for outcome, count in outcomes.items()}
    return Used(len(begun) / len(log.iterations), shares)


def by_group(log: RunLog) -> dict[str, dict[tuple[int, int], set[float | None]]]:
    """By outcome and by group (draw, recycled) of its samples: the rewards that were told."""
    begun = {made.sample: made for row in log.decisions for made in row.commands if isinstance(made, Submit)}
    rewards = {row.event.sample: row.event.reward for row in log.decisions if isinstance(row.event, Scored)}
    told: dict[str, dict[tuple[int, int], set[float | None]]] = defaultdict(lambda: defaultdict(set))
    for row in log.final:
        if row.sample in rewards:
            call = begun[row.sample]
            told[row.outcome][call.draw, call.recycle].add(rewards[row.sample])
    return told


def planned(arm: str, seed: int = 0) -> ResolvedScenario:
    return resolve(load(str(SCENARIO), sets=[f"run.steps={STEPS}", "run.warmup_steps=1", f"seed={seed}"]).resolve(arm))


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[ResolvedScenario, RunLog]]:
    made = {}
    for arm in ARMS:
        found, engine = planned(arm), backend("vllm")
        refuse(found, engine)
        run = run_live(found, engine, NoJournal(), tmp_path_factory.mktemp("work"))
        assert run.ending.fault is None
        made[arm] = (found, run.run.log)
    return made


@pytest.mark.parametrize("arm", ARMS)
def test_rewards_are_told_and_the_books_close(arm: str, lived: dict[str, tuple[ResolvedScenario, RunLog]]) -> None:
    found, log = lived[arm]
    rewards = [row.event.reward for row in log.decisions if isinstance(row.event, Scored)]
    assert rewards
    assert set(rewards) <= {0.0, 1.0}
    assert sum(ledger_tokens(log).values()) == log.generated_tokens
    assert len(log.iterations) == STEPS
    assert not log.progress, "nothing stands in for what a real model learns"
    controller = make_controller(found, backend("vllm").workload(found, 0), oracle=False)
    replay(log.decisions, controller)


def test_dynamic_sampling_trains_on_the_groups_that_have_both_rewards_and_no_others(
    lived: dict[str, tuple[ResolvedScenario, RunLog]],
) -> None:
    _, log = lived["dynamic sampling"]
    told = by_group(log)
    assert {frozenset(rewards) for rewards in told["trained"].values()} == {frozenset({0.0, 1.0})}
    assert all(len(rewards) == 1 for rewards in told["filtered"].values())


def test_strategies_use_and_waste_what_is_simulated(lived: dict[str, tuple[ResolvedScenario, RunLog]]) -> None:
    live = {arm: used(log) for arm, (_, log) in lived.items()}
    simulated = {arm: [used(simulate(planned(arm, seed)).log) for seed in SEEDS] for arm in ARMS}
    for arm in ARMS:
        print(arm, "live", live[arm], "simulated", simulated[arm])
        rollouts = fmean(run.rollouts_per_update for run in simulated[arm])
        assert live[arm].rollouts_per_update == pytest.approx(rollouts, rel=ROLLOUTS)
        for outcome in {outcome for run in (live[arm], *simulated[arm]) for outcome in run.shares}:
            share = fmean(run.shares.get(outcome, 0.0) for run in simulated[arm])
            assert live[arm].shares.get(outcome, 0.0) == pytest.approx(share, abs=FILTERED), outcome
    for told in (live, *({arm: simulated[arm][seed] for arm in ARMS} for seed in SEEDS)):
        assert told["dynamic sampling"].rollouts_per_update > 1.1 * told["uniform"].rollouts_per_update
        assert told["waves by variance"].rollouts_per_update <= told["uniform"].rollouts_per_update
        assert set(told["uniform"].shares) == set(told["waves by variance"].shares) == {"trained"}
