"""Budgets end runs, simulated and live at the same decision, by what the decisions say was used up."""

from __future__ import annotations

from typing import Any

import pytest
from fake_runs import lived
from policy_runs import POLICIES, scenario

from rlsim.core.commands import Submit
from rlsim.core.errors import ScenarioError
from rlsim.core.events import Aborted, Finished
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks, to_seconds
from rlsim.executor.run import FinishedRun
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.resolve.scenario import gpus_used, price
from rlsim.results.columns import Columns
from rlsim.results.metrics import metrics
from rlsim.results.tables import digest
from rlsim.scenario.document import load
from rlsim.sim.simulation import simulate
from rlsim.studies.compare import compare_plans
from rlsim.studies.runs.executor import local_executor
from rlsim.studies.text.comparison import as_text

PRESETS = ["sync-colocated", "one-step-off", "areal", "slime-april", "pipelinerl"]
NAMES = ["rollouts", "response_tokens", "trained_tokens", "gpu_seconds", "usd"]
SIZES: dict[str, Any] = {"learning": {}, "workload__group_size": 4, "run__steps": 7}
SPARING = {"allocation": {"use": "arrol"}}


def planned(preset: str, budget: dict[str, float] | None = None, **changes: Any) -> ResolvedScenario:
    run = {} if budget is None else {"run__budget": budget}
    policy = {"preset": preset, **POLICIES[preset], "parts": SPARING}
    return resolve(scenario(policy, **{**SIZES, **run, **changes}))


def used(made: ResolvedScenario, log: RunLog, by: Ticks, step: int) -> dict[str, float]:
    """Counted again from the log: every command, reply and table up to the end of an iteration."""
    before = [row for row in log.decisions if row.now <= by]
    samples: Columns = digest(FinishedRun(made, 0, log)).samples
    trained = (samples["trained_step"] >= 0) & (samples["trained_step"] <= step)
    spent = to_seconds(by) * gpus_used(made)
    return {
        "rollouts": len({c.sample for row in before if row.now < by for c in row.commands if isinstance(c, Submit)}),
        "response_tokens": sum(row.event.tokens for row in before if isinstance(row.event, Finished))
        + sum(cut.tokens for row in before if isinstance(row.event, Aborted) for cut in row.event.cuts),
        "trained_tokens": int(samples["response_tokens"][trained].sum()),
        "gpu_seconds": spent,
        "usd": spent * price(made)[0] / 3600,
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_run_ends_with_the_first_iteration_that_reaches_its_budget_in_both_worlds(preset: str, name: str) -> None:
    free = planned(preset)
    whole = simulate(free).log
    spent = [used(free, whole, row.end, row.step)[name] for row in whole.iterations]
    limit = round(spent[3]) if isinstance(spent[3], int) else spent[3] * (1 - 1e-9)
    made = planned(preset, {name: limit})
    log = simulate(made).log
    assert len(log.iterations) == 1 + next(step for step, amount in enumerate(spent) if amount >= limit)
    assert log.ended_by == f"run.budget.{name}"
    assert log.decisions == whole.decisions[: len(log.decisions)]
    assert metrics(FinishedRun(made, 0, log)).ledger_closes
    live = lived(made)
    assert (live.decisions, live.final) == (log.decisions, log.final)
    assert (live.ended_by, live.end) == (log.ended_by, log.end)


def test_all_limits_that_are_reached_at_once_are_named() -> None:
    log = simulate(planned("sync-colocated", {"rollouts": 1, "trained_tokens": 1, "usd": 1e6}, run__steps=1)).log
    assert log.ended_by == "run.steps, run.budget.rollouts, run.budget.trained_tokens"


def test_what_ends_other_runs_is_named_too() -> None:
    free = planned("sync-colocated")
    assert simulate(free).log.ended_by == lived(free).ended_by == "run.steps"
    cut = simulate(planned("sync-colocated", run__max_simulated_seconds=1.0)).log
    assert cut.ended_by == "run.max_simulated_seconds"


def test_what_is_printed_says_which_limit_it_was() -> None:
    made = planned("sync-colocated", {"rollouts": 30})
    with local_executor() as runs:
        text = as_text(compare_plans({"sparing": made}, runs))
    assert "sparing: 1 of 1 runs ended by run.budget.rollouts, after 3 steps." in " ".join(text.split())


@pytest.mark.parametrize(("budget", "said"), [("{}", "at least one of rollouts"), ("{usd: 0}", "above 0")])
def test_a_budget_without_a_limit_or_with_none_left_is_refused(budget: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        load("scenarios/quickstart.yaml", sets=[f"run.budget={budget}"]).resolve("on-policy colocated")
