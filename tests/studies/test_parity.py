"""A prediction held against live runs whose disturbance is known: each part of the error is what was done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from disturbed import Disturbed, Lagging, late_in, random_steps, slower_steps
from policy_runs import AGENTS, POLICIES, scenario

from rlsim.core.errors import ParameterError
from rlsim.live.backends import Fake
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.document import load
from rlsim.sim.simulation import simulate
from rlsim.studies.parity import report
from rlsim.studies.parity.end_order import order_of
from rlsim.studies.parity.errors import ArmParity, rows_of
from rlsim.studies.parity.observed import distance, observation_of
from rlsim.studies.parity.study import Parity, ParityOptions, chosen_plans, study
from rlsim.studies.parity.trial import NeverOnTimeError

FIVE = ("sync-disaggregated", "one-step-off", "areal", "slime-april", "pipelinerl")
LONGER: dict[str, Any] = {
    "workload__response_tokens": {"law": "uniform", "low_tokens": 20, "high_tokens": 200},
    "workload__prompts_per_step": 4,
    "run__warmup_steps": 1,
    "run__steps": 6,
}
SLOWER = {"source": "coefficients", "base_seconds": 0.01, "per_sequence_seconds": 1e-4, "scale": 1.1}
EVERY = pytest.mark.parametrize("preset", FIVE)


def planned(preset: str, **changes: Any) -> ResolvedScenario:
    return resolve(scenario({"preset": preset, **POLICIES[preset]}, **{**LONGER, **changes}))


def compared(preset: str, backend: Any, repeats: int = 1, **changes: Any) -> ArmParity:
    return study("test", {preset: planned(preset, **changes)}, backend, ParityOptions("fake", repeats)).arms[0]


# -- nothing is disturbed -------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", POLICIES)
@pytest.mark.parametrize("world", [{}, AGENTS], ids=["plain", "agents"])
def test_a_fake_run_has_no_error_of_any_kind(preset: str, world: dict[str, Any]) -> None:
    made = resolve(scenario({"preset": preset, **POLICIES[preset]}, **world))
    if preset == "tailsieve":
        with pytest.raises(ParameterError, match="a part that is no oracle"):
            study("test", {preset: made}, Fake(), ParityOptions("fake", 1))
        return
    arm = study("test", {preset: made}, Fake(), ParityOptions("fake", 1)).arms[0]
    assert arm.policy_errors == []
    for row in rows_of(arm):
        assert (row.error, row.schedule, row.cost) == (0, 0, 0), row.name
    assert arm.recorded_order is not None
    for order in (arm.recorded_order, arm.predicted_order):
        assert (order.inversions, order.unmatched, order.worst_seconds) == (0, 0, 0)
        assert order.pairs > 0
    assert arm.lag_distance == 0
    again = arm.trials[0].rerun
    assert again is not None
    assert again.observed == arm.predicted


def test_repeats_of_a_fake_run_have_no_noise() -> None:
    arm = compared("areal", Fake(), repeats=3)
    assert arm.step.noise == 0
    assert arm.lag_noise == 0


# -- the costs are wrong --------------------------------------------------------------------------------


CHEAP = {"trainer__fixed_seconds_per_step": 0.0, "sync__base_seconds": 0.0, "sync__link_bytes_per_second": 1e15}


@EVERY
def test_slower_steps_are_the_cost_models_error_alone(preset: str) -> None:
    """As much as the simulation with costs that know of them says."""
    arm = compared(preset, Disturbed(slower_steps(1.1)), **CHEAP)
    told = planned(preset, **CHEAP, rollout={**arm.plan.scenario.rollout.model_dump(mode="json"), "step_time": SLOWER})
    expected = arm.predicted.step_seconds / observation_of(simulate(told)).step_seconds - 1
    assert arm.step.error == pytest.approx(expected, abs=1e-6)
    assert arm.step.error < -0.05
    assert arm.step.schedule == pytest.approx(0, abs=1e-6)
    assert arm.step.cost == pytest.approx(arm.step.error, abs=1e-6)
    assert arm.policy_errors == []


@pytest.mark.parametrize("preset", ["sync-disaggregated", "one-step-off"])
def test_where_generation_is_all_the_error_is_that_of_a_step(preset: str) -> None:
    arm = compared(preset, Disturbed(slower_steps(1.1)), **CHEAP)
    assert arm.step.error == pytest.approx(1 / 1.1 - 1, abs=0.005)


RECORDED = [(preset, world) for preset in FIVE for world in ({}, AGENTS) if (preset, world) != ("areal", AGENTS)]


@pytest.mark.parametrize(("preset", "world"), RECORDED)
def test_recorded_durations_undo_random_steps(preset: str, world: dict[str, Any]) -> None:
    """Without ways in between the record says everything: the simulation is the live run, decision by decision."""
    arm = compared(preset, Disturbed(random_steps(0.4), seed=3), **world)
    again, order = arm.trials[0].rerun, arm.recorded_order
    assert again is not None
    assert order is not None
    assert again.observed == arm.trials[0].observed
    assert (order.inversions, order.worst_seconds, order.unmatched) == (0, 0, 0)
    assert again.steps > 500
    assert again.other_steps == 0
    assert arm.predicted_order.worst_seconds > 0
    assert arm.step.cost == arm.step.error != 0


def test_calls_that_come_while_others_are_cut_are_the_schedules_error() -> None:
    """Simulated, calls cut by a publication go on before what came meanwhile; live, they are new to the engine."""
    arm = compared("areal", Disturbed(random_steps(0.4), seed=3), **AGENTS)
    makespan = next(row for row in rows_of(arm) if row.name == "makespan")
    assert makespan.schedule == pytest.approx(0, abs=0.01)
    order = arm.recorded_order
    assert order is not None
    assert order.inversions <= 0.01 * order.pairs
    assert order.worst_seconds > 0


@EVERY
def test_ways_between_engines_and_executor_are_booked_on_what_they_delay(preset: str) -> None:
    arm = compared(preset, Disturbed(random_steps(0.4), Lagging, seed=5), repeats=2)
    assert arm.policy_errors == []
    makespan = next(row for row in rows_of(arm) if row.name == "makespan")
    assert makespan.schedule == pytest.approx(0, abs=0.01)
    order = arm.recorded_order
    assert order is not None
    steps, others = arm.recorded_batches
    assert order.inversions <= 0.001 * order.pairs
    assert others <= 0.02 * steps


def test_durations_of_another_run_are_not_recovered() -> None:
    """The claim above can fail: with the record of another replication the ends are elsewhere."""
    made = planned("areal")
    trial = study("test", {"areal": made}, Disturbed(random_steps(0.4)), ParityOptions("fake")).arms[0].trials[0]
    other = simulate(made, 1)
    assert order_of(trial.observed.ends_seconds, observation_of(other).ends_seconds, 0.01).inversions > 0


def test_the_noise_is_that_of_the_live_runs() -> None:
    arm = compared("one-step-off", Disturbed(random_steps(0.4)), repeats=4)
    assert arm.step.noise is not None
    assert 0 < arm.step.noise < 0.05
    assert arm.step.low < arm.step.live < arm.step.high


# -- ranking --------------------------------------------------------------------------------------------


def ranked(backend: Any, **changes: Any) -> Parity:
    plans = {preset: planned(preset, **changes) for preset in ("sync-disaggregated", "one-step-off", "areal")}
    return study("test", plans, backend, ParityOptions("fake", 1))


def test_a_fake_ranking_is_the_simulated_one() -> None:
    found = ranked(Fake()).ranking
    assert found is not None
    assert found.same_winner
    assert (found.tau, found.tau_of_all) == (1, 1)
    assert found.pairs > 0
    assert found.live == found.simulated


def test_a_swapped_pair_lowers_tau() -> None:
    """Every live run after the first is slower by half: the policies that come later lose places."""
    backend = Disturbed()

    def change(world: Any, rng: Any) -> None:
        slower_steps(1 + 0.5 * (backend.runs - 1))(world, rng)

    backend.change = change
    found = ranked(backend).ranking
    assert found is not None
    assert found.live != found.simulated
    assert found.tau is not None
    assert found.tau < 1
    assert found.tau == (2 * found.concordant - found.pairs) / found.pairs
    assert not found.same_winner


def test_policies_take_turns() -> None:
    said: list[str] = []
    plans = {preset: planned(preset) for preset in ("areal", "one-step-off")}
    study("test", plans, Fake(), ParityOptions("fake", 2), said.append)
    assert [line.rpartition(" ")[2] for line in said] == ["areal", "one-step-off", "areal", "one-step-off"]


# -- late steps -----------------------------------------------------------------------------------------


def test_a_run_with_too_many_late_steps_is_repeated_and_reported() -> None:
    arm = compared("areal", Disturbed(wrap=late_in({0, 2}, 50)), repeats=2)
    assert len(arm.trials) == 2
    assert len(arm.discarded) == 2
    assert min(arm.discarded) > 0.01
    assert all(trial.late_share == 0 for trial in arm.trials)
    text = " ".join(report.as_text(Parity("test", "fake", "EMULATED", (arm,), None, ())).split())
    assert "2 runs repeated, not counted" in text


def test_a_few_late_steps_are_reported_and_count() -> None:
    arm = compared("areal", Disturbed(wrap=late_in({0}, 1)))
    assert arm.discarded == ()
    assert 0 < arm.trials[0].late_share < 0.01
    assert "late steps: at most" in report.as_text(Parity("test", "fake", "EMULATED", (arm,), None, ()))


def test_runs_that_are_always_late_end_with_what_was_seen() -> None:
    with pytest.raises(NeverOnTimeError, match="3 runs with too many late steps"):
        compared("areal", Disturbed(wrap=late_in({0, 1, 2}, 50)))


# -- outputs --------------------------------------------------------------------------------------------


def test_every_output_says_that_engines_were_emulated(tmp_path: Path) -> None:
    told = study("test", {"areal": planned("areal")}, Fake(), ParityOptions("fake", 1, out=tmp_path))
    report.save(told, tmp_path, "rlsim parity x.yaml --live fake")
    report.append_markdown(told, tmp_path / "table.md", "rlsim parity x.yaml --live fake")
    whole = json.loads((tmp_path / "parity.json").read_text())
    markdown = (tmp_path / "table.md").read_text()
    assert "EMULATED" in whole["label"]
    assert "EMULATED" in report.as_text(told)
    assert "EMULATED" in markdown
    assert "rlsim parity x.yaml --live fake" in markdown
    assert (tmp_path / "parity.png").stat().st_size > 10_000
    assert (tmp_path / "areal" / "live-0" / "decisions.jsonl").is_file()
    assert whole["policies"]["areal"]["order_recorded"]["inversions"] == 0


def test_a_table_is_appended(tmp_path: Path) -> None:
    told = ranked(Fake())
    for _ in range(2):
        report.append_markdown(told, tmp_path / "table.md", "a command")
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert sum(line.startswith("### Parity, test") for line in lines) == 2
    assert sum(line.startswith("| error |") for line in lines) == 2


# -- what is refused ------------------------------------------------------------------------------------


def test_policies_are_arms_or_presets(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    made = scenario({"preset": "areal"}).model_dump(mode="json")
    file.write_text(json.dumps({**made, "arms": {"mine": {"policy": {"preset": "one-step-off"}}, "other": {}}}))
    document = load(str(file))
    _, plans = chosen_plans(document, None, ["mine", "sync-disaggregated"])
    assert [plans[name].scenario.policy.preset for name in plans] == ["one-step-off", "sync-disaggregated"]
    with pytest.raises(ParameterError, match="different names"):
        chosen_plans(document, None, ["mine", "mine"])


def test_tools_that_decide_what_they_answer_are_refused_before_anything_runs() -> None:
    backend = Disturbed()
    with pytest.raises(ParameterError, match=r"live\.tool"):
        study(
            "test", {"areal": planned("areal", **AGENTS, live={"tool": "calculator"})}, backend, ParityOptions("fake")
        )
    assert backend.runs == 0


# -- definitions ----------------------------------------------------------------------------------------


def test_ends_within_a_tie_may_come_in_either_order() -> None:
    live = {(0, 0, 0): 1.0, (1, 0, 0): 1.5, (2, 0, 0): 4.0}
    simulated = {(0, 0, 0): 1.6, (1, 0, 0): 1.2, (2, 0, 0): 3.0, (3, 0, 0): 9.0}
    close = order_of(live, simulated, tie_seconds=0.5)
    assert (close.inversions, close.pairs, close.samples, close.unmatched) == (0, 2, 3, 1)
    assert order_of(live, simulated, tie_seconds=0.4).inversions == 1
    assert close.worst_seconds == 1.0


def test_the_distance_of_histograms_is_half_the_sum_of_differences() -> None:
    assert distance({0: 0.5, 1: 0.5}, {1: 0.5, 2: 0.5}) == 0.5
    assert distance({0: 1.0}, {3: 1.0}) == 1.0
    assert distance({0: 1.0}, {0: 1.0}) == 0.0
