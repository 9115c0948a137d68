"""A log written from a simulated run, in a framework's own format and names, gives the run's coefficients back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
import simulated_logs as logs
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from calibration.logs.calibrate import calibrate
from calibration.logs.costs import PUBLICATION, SCORING, SPEED
from calibration.logs.formats import READERS, format_of
from calibration.logs.frameworks import FRAMEWORKS, as_markdown
from calibration.logs.report import report_of
from calibration.logs.reproduce import Reproduction, reproduce
from evidence.docs_pages import log_columns
from rlsim.core.errors import ParameterError
from rlsim.resolve import resolve
from rlsim.scenario.document import load

Write = Callable[..., Path]

MEAN, SIGMA = "workload.response_tokens.mean_tokens", "workload.response_tokens.sigma"
ENGINE = {"rollout.step_time.scale": logs.SCALE}
LENGTHS = {MEAN: logs.MEAN, SIGMA: logs.SIGMA}
UPDATES = {"trainer.mfu": logs.MFU, "trainer.seconds_per_update": logs.PER_UPDATE}
PASSES = {"trainer.logprob_mfu": logs.LOGPROB_MFU}
SYNC, FIXED = {PUBLICATION: logs.SYNC + 3.1e-6}, {"trainer.fixed_seconds_per_step": logs.FIXED}
ALL = {**LENGTHS, **ENGINE, "rollout.step_time.offset_seconds": logs.OFFSET, **UPDATES, **PASSES, **SYNC, **FIXED}

NO_OFFSET: logs.Settings = (("rollout.step_time.offset_seconds", 0.0),)
"""Asynchronous logs hold one number of the engines: their truth is a factor."""
KNOWN_TRAINER: logs.Settings = (
    ("trainer.mfu", logs.MFU),
    ("trainer.seconds_per_update", logs.PER_UPDATE),
    ("trainer.logprob_mfu", logs.LOGPROB_MFU),
    ("trainer.fixed_seconds_per_step", logs.FIXED),
)
KNOWN_SYNC: logs.Settings = (("sync.base_seconds", logs.SYNC), ("sync.link_bytes_per_second", 1e15))


def policy(preset: str, **parameters: Any) -> logs.Settings:
    return (("policy.preset", preset), *((f"policy.{name}", value) for name, value in parameters.items()))


@dataclass(frozen=True)
class Case:
    """A framework's log: how the run was, what the user knows of it, and what the log must say."""

    write: Write
    kind: str
    names: logs.Named | None
    identified: Mapping[str, float]
    policy: logs.Settings = ()
    truth: logs.Settings = ()
    known: logs.Settings = ()
    swaps: tuple[tuple[str, str], ...] = field(default=())

    def table(self) -> pd.DataFrame:
        return logs.steps_of(logs.true_run(self.policy + self.truth))

    def file(self, folder: Path, table: pd.DataFrame | None = None) -> Path:
        table = self.table() if table is None else table
        return self.write(folder, table) if self.names is None else self.write(folder, table, self.names)

    def fit(self, folder: Path, table: pd.DataFrame | None = None) -> Reproduction:
        return reproduce(READERS[self.kind](self.file(folder, table)), logs.base_scenario(self.policy + self.known))

    def missed(self, found: Reproduction) -> list[str]:
        """What is not identified, is without being so, or has an interval without the truth."""
        keys = {one.key for one in found.estimates}
        wrong = [str(one) for one in found.estimates if not one.contains(self.identified.get(one.key, -1.0))]
        return [*wrong, *map(str, found.warnings), *(self.identified.keys() ^ keys)]


CASES = {
    "verl": Case(
        logs.write_verl_jsonl,
        "jsonl",
        logs.VERL,
        ALL,
        swaps=(
            ("mean", "max"),
            ("mean", "prompt"),
            ("generation", "step"),
            ("generation", "update_actor"),
            ("old_log_prob", "update_actor"),
            ("sync", "update_actor"),
        ),
    ),
    "SkyRL": Case(logs.write_wandb_csv, "wandb-csv", logs.SKYRL, ALL, swaps=(("passes", "update_actor"),)),
    "slime": Case(logs.write_console_dicts, "console-dicts", logs.SLIME, ALL, swaps=(("update_actor", "sync"),)),
    "NeMo-RL": Case(
        logs.write_tensorboard,
        "tensorboard",
        logs.NEMO_RL,
        {**ALL, "trainer.fixed_seconds_per_step": logs.FIXED + logs.role_change_seconds()},
        policy("nemo-rl-sync"),
        swaps=(("prompt", "max"),),
    ),
    "OpenRLHF": Case(
        logs.write_wandb_csv,
        "wandb-csv",
        logs.OPENRLHF,
        {key: value for key, value in ALL.items() if key not in (SIGMA, "rollout.step_time.offset_seconds")},
        known=((SIGMA, logs.SIGMA),),
    ),
    "verl, asynchronous": Case(
        logs.write_verl_jsonl,
        "jsonl",
        logs.VERL_ASYNC,
        {**LENGTHS, **ENGINE, **UPDATES, **PASSES, **SYNC, **FIXED},
        policy("verl-fully-async", trigger_parameter_sync_step=2),
        NO_OFFSET,
        swaps=(("wait", "reference"),),
    ),
    "AReaL": Case(
        logs.write_tensorboard,
        "tensorboard",
        logs.AREAL,
        {**LENGTHS, **ENGINE, **UPDATES, **PASSES, **SYNC},
        policy("areal", max_head_offpolicyness=1, max_concurrent_rollouts=8),
        (*NO_OFFSET, ("trainer.fixed_seconds_per_step", 0.0)),
        swaps=(("reference", "sync"),),
    ),
    "TRL": Case(
        logs.write_trainer_state,
        "trainer-state",
        logs.TRL,
        {**LENGTHS, **ENGINE, **UPDATES, **SYNC},
        policy("trl-async-grpo", max_inflight_tasks=32, max_staleness=16),
        NO_OFFSET,
        KNOWN_TRAINER,
        swaps=(("update_actor", "sync"),),
    ),
    "prime-rl": Case(
        logs.write_prime_rl,
        "prime-rl",
        None,
        {MEAN: logs.MEAN, **ENGINE},
        policy("prime-rl", max_inflight=32),
        NO_OFFSET,
        (*KNOWN_TRAINER, *KNOWN_SYNC, (SIGMA, logs.SIGMA)),
        swaps=(("tokens", "samples"),),
    ),
}


@cache
def fitted(name: str) -> Reproduction:
    """The fit to a case's log as it is."""
    with TemporaryDirectory() as folder:
        return CASES[name].fit(Path(folder))


NEEDS_TENSORBOARD = {"NeMo-RL", "AReaL"}


def named_case(name: str) -> Case:
    if name in NEEDS_TENSORBOARD:
        pytest.importorskip("tensorboard", reason="needs the logs extra")
    return CASES[name]


# -- round trips ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_a_simulated_runs_log_gives_its_coefficients_back(name: str, tmp_path: Path) -> None:
    case = named_case(name)
    assert format_of(case.file(tmp_path)) == case.kind
    found = fitted(name)
    assert case.missed(found) == []
    assert abs(found.held.error) < 0.2


@pytest.mark.parametrize(("name", "swap"), [(name, swap) for name, case in CASES.items() for swap in case.swaps])
def test_two_columns_mixed_up_are_refused_or_miss(name: str, swap: tuple[str, str], tmp_path: Path) -> None:
    case = named_case(name)
    first, second = swap
    table = case.table()
    table[first], table[second] = table[second].copy(), table[first].copy()
    try:
        missed = case.missed(case.fit(tmp_path, table))
    except ParameterError:
        return
    assert missed


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say(tmp_path: Path) -> None:
    """95 % intervals of 9 numbers in 16 runs: fewer than 88 % of 144 has a chance of 0.1 %."""
    inside = total = 0
    for replication in range(16):
        table = logs.steps_of(logs.true_run((), replication))
        found = CASES["verl"].fit(tmp_path, table)
        inside += sum(one.contains(ALL[one.key]) for one in found.estimates)
        total += len(found.estimates)
    assert total >= 140
    assert inside / total >= 0.88


def test_the_written_scenario_is_the_run_again(tmp_path: Path) -> None:
    case = CASES["verl"]
    out = tmp_path / "fit"
    report = calibrate(case.file(tmp_path), logs.base_scenario(), out)
    scenario = load(str(out / "scenario.yaml")).resolve()
    step = scenario.rollout.step_time
    assert step.source == "profile"
    assert Path(str(step.profile)).name == "profile.json"
    truth = resolve(logs.true_scenario()).pools[0].law
    fitted = resolve(scenario).pools[0].law
    assert fitted.provenance.kind == "fitted"
    for decodes, kv in ((1, 200), (8, 3000), (16, 6000)):
        assert fitted.decode_seconds(decodes, kv) == pytest.approx(truth.decode_seconds(decodes, kv), rel=0.06)
    assert scenario.trainer.mfu == pytest.approx(logs.MFU, rel=0.05)
    assert (out / "report.txt").read_text() == report.text()
    assert json.loads((out / "fit.json").read_text())["columns"]["generation"] == "timing_s/gen"


# -- traps ------------------------------------------------------------------------------------------------


def test_gen_of_an_asynchronous_verl_run_is_waiting() -> None:
    found = fitted("verl, asynchronous")
    assert found.steps.columns["wait"] == "timing_s/gen"
    assert "generation" not in found.steps.columns
    assert any("timing_s/gen is read as the trainer's waiting" in note for note in found.steps.notes)


def open_names(found: Reproduction) -> set[str]:
    return {one.name for one in found.unidentified}


def kinds(found: Reproduction) -> set[str]:
    return {one.kind for one in found.warnings}


def test_an_asynchronous_log_tells_lengths_and_the_trainer_even_where_the_policy_is_wrong(tmp_path: Path) -> None:
    log = READERS["jsonl"](CASES["verl, asynchronous"].file(tmp_path))
    found = reproduce(log, logs.base_scenario())
    assert kinds(found) == {"another policy"}
    assert "timing_s/param_sync" in str(found.warnings[0])
    assert SPEED in open_names(found)
    for key, truth in {**LENGTHS, **UPDATES, **PASSES}.items():
        assert (one := found.estimate(key)) is not None
        assert one.contains(truth)


def test_replayed_rollouts_are_said_and_not_fitted(tmp_path: Path) -> None:
    case = CASES["verl"]
    table = case.table()
    table.loc[20:, "generation"] = 0.01
    found = case.fit(tmp_path, table)
    (warning,) = [one for one in found.warnings if one.kind == "generation faster than memory"]
    assert "timing_s/gen of 0.01 s in step 21 and in 19 more" in str(warning)
    assert (scale := found.estimate("rollout.step_time.scale")) is not None
    assert scale.contains(logs.SCALE)
    table["generation"] = 0.01
    assert SPEED in open_names(case.fit(tmp_path, table))


@pytest.mark.parametrize(("outside", "said"), [(0.0, True), (0.8, False)])
def test_openrlhf_step_total_may_be_a_sum_of_timers(tmp_path: Path, outside: float, said: bool) -> None:
    case, table = CASES["OpenRLHF"], CASES["OpenRLHF"].table()
    timers = table.generation + table.passes + table.update_actor + table.sync
    found = case.fit(tmp_path, table.assign(step=timers + outside))
    assert found.steps.framework == "OpenRLHF"
    assert found.steps.step_is_sum is said
    fixed = found.estimate("trainer.fixed_seconds_per_step")
    assert fixed is None if said else fixed is not None and fixed.contains(0.8)
    assert SIGMA in open_names(found)


def test_prime_rls_orchestrator_tells_the_step_not_its_trainer(tmp_path: Path) -> None:
    log = READERS["prime-rl"](CASES["prime-rl"].file(tmp_path))
    assert {"orchestrator/Time", "trainer/Time"} <= log.names()
    found = fitted("prime-rl")
    assert found.steps.columns["step"] == "orchestrator/Time"


def test_trained_lengths_are_said_to_be_short_where_the_policy_drops_long_ones(tmp_path: Path) -> None:
    case = replace(CASES["TRL"], policy=policy("trl-async-grpo", max_inflight_tasks=64, max_staleness=2))
    assert any("trains on the shorter ones" in one.why for one in case.fit(tmp_path).unidentified)


def test_where_the_trainer_sets_the_pace_the_engines_stay_open(tmp_path: Path) -> None:
    slow = ("trainer.fixed_seconds_per_step", 60.0)
    case = CASES["TRL"]
    case = replace(case, truth=(*case.truth, slow), known=(*case.known, slow))
    found = case.fit(tmp_path)
    assert found.estimate("rollout.step_time.scale") is None
    assert any("the trainer sets the pace" in one.why for one in found.unidentified)


# -- what a log does not tell -------------------------------------------------------------------------------


def test_batches_that_are_alike_fix_one_factor(tmp_path: Path) -> None:
    case = CASES["verl"]
    alike = pd.concat([case.table().iloc[[5]]] * 30, ignore_index=True).assign(number=range(1, 31))
    noise = 1 + 0.01 * np.random.default_rng(0).standard_normal(30)
    found = case.fit(tmp_path, alike.assign(generation=alike.generation * noise))
    assert (scale := found.estimate("rollout.step_time.scale")) is not None
    assert scale.contains(logs.SCALE)
    assert "rollout.step_time.offset_seconds" in open_names(found)
    (joint,) = [one for one in found.joint if one.keys[0] == "rollout.step_time.scale"]
    assert joint.together.contains(float(alike.generation[0]))
    assert joint.together.high / joint.together.low < 1.03
    for key in ("trainer.mfu", "trainer.logprob_mfu", "trainer.fixed_seconds_per_step"):
        assert found.estimate(key) is not None


def test_a_time_that_does_not_grow_with_the_work_fixes_one_factor(tmp_path: Path) -> None:
    case = CASES["verl"]
    table = case.table()
    shuffled = table.generation.sample(frac=1.0, random_state=3).to_numpy()
    found = case.fit(tmp_path, table.assign(generation=shuffled, step=table.step - table.generation + shuffled))
    assert (scale := found.estimate("rollout.step_time.scale")) is not None
    assert scale.contains(logs.SCALE)
    assert any("does not clearly grow with the work" in one.why for one in found.unidentified)
    assert found.estimate("trainer.mfu") is not None


@pytest.mark.parametrize("steps", [4, 6, 9])
def test_few_steps_give_wide_intervals(tmp_path: Path, steps: int) -> None:
    case = CASES["verl"]
    found = case.fit(tmp_path, case.table().head(steps))
    assert all(one.contains(ALL[one.key]) for one in found.estimates)
    assert {MEAN, "rollout.step_time.scale", "trainer.mfu", "trainer.logprob_mfu"} <= {o.key for o in found.estimates}


def test_rows_below_zero_are_left_out_and_said(tmp_path: Path) -> None:
    case, table = CASES["verl"], CASES["verl"].table()
    table.loc[[7, 9], "update_actor"] = -1.0
    found = case.fit(tmp_path, table)
    assert "timing_s/update_actor is below zero in 2 of the rows that are left out" in found.notes
    assert case.missed(found) == []


def test_two_steps_are_refused(tmp_path: Path) -> None:
    case = CASES["verl"]
    with pytest.raises(ParameterError, match="2 whole training steps after the first 1"):
        case.fit(tmp_path, case.table().head(3))


FITTED_BY = {
    "mean": set[str](),
    "max": set[str](),
    "generation": {"rollout.step_time.offset_seconds", "trainer.fixed_seconds_per_step"},
    "old_log_prob": set[str](),
    "update_actor": {"trainer.mfu", "trainer.seconds_per_update", "trainer.fixed_seconds_per_step"},
    "sync": {PUBLICATION},
    "prompt": set[str](),
    "tokens": set[str](),
    "step": {"trainer.fixed_seconds_per_step"},
}
"""What cannot be fitted without a column of verl's; the mean length is what all tokens leave."""


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from(sorted(FITTED_BY)), max_size=5), st.integers(5, 40))
def test_a_missing_column_takes_only_its_own_numbers_and_each_is_said(
    tmp_path: Path, missing: set[str], count: int
) -> None:
    names = {ours: name for ours, name in logs.VERL.items() if ours not in missing}
    table = CASES["verl"].table().head(count)
    assume("generation" in names or "step" in names)
    found = reproduce(READERS["jsonl"](logs.write_verl_jsonl(tmp_path, table, names)), logs.base_scenario())
    keys = {one.key for one in found.estimates}
    told = keys | open_names(found)
    lost = set[str]().union(*(FITTED_BY[name] for name in missing))
    assert {"trainer.mfu", PUBLICATION, "trainer.fixed_seconds_per_step"} - lost <= keys
    assert {"trainer.mfu", "trainer.fixed_seconds_per_step"} <= told
    assert "rollout.step_time.scale" in keys or SPEED in told
    assert MEAN in keys or "workload.response_tokens" in told
    json.dumps(report_of(found).as_dict())


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(4, 38), st.integers(0, 10_000))
def test_more_steps_never_turn_a_fitted_number_into_a_failure(tmp_path: Path, count: int, seed: int) -> None:
    table = logs.disturbed(CASES["verl"].table(), seed)
    fewer, more = (CASES["verl"].fit(tmp_path, table.head(steps)) for steps in (count, len(table)))
    fitted = {one.key for one in fewer.estimates} - {"rollout.step_time.offset_seconds", "trainer.seconds_per_update"}
    assert fitted <= {one.key for one in more.estimates}
    for found in (fewer, more):
        constants = {"rollout.step_time.offset_seconds", "trainer.seconds_per_update"}
        assert constants <= {one.key for one in found.estimates} | open_names(found)
        assert len(found.joint) >= 2


def test_without_a_base_scenario_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="import-config"):
        calibrate(CASES["verl"].file(tmp_path), None, tmp_path / "out")


@pytest.mark.parametrize("name", ["verl", "TRL", "prime-rl"])
def test_of_another_batch_than_the_runs_only_lengths_are_fitted(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    log = READERS[case.kind](case.file(tmp_path))
    found = reproduce(log, logs.base_scenario((*case.policy, *case.known, ("workload.group_size", 8))))
    assert kinds(found) == {"another batch"}
    assert "tokens of 32 samples a step" in str(found.warnings[0])
    assert {one.key for one in found.estimates} <= {MEAN, SIGMA}
    assert found.profile is None


def test_the_reference_lists_every_column_that_is_read() -> None:
    page = log_columns()
    assert as_markdown() in page
    assert all(f"`{name}`" in page for log in FRAMEWORKS for names in log.columns.values() for name in names)


def test_with_turns_the_trainer_is_fitted_and_the_engines_are_not(tmp_path: Path) -> None:
    turns = (("workload.turns", {"count": 2, "tool_latency_seconds": 1.0, "tool_output_tokens": 5}),)
    found = reproduce(READERS["jsonl"](CASES["verl"].file(tmp_path)), logs.base_scenario(turns))
    assert any("workload.turns" in one.why for one in found.unidentified)
    assert {"trainer.mfu", PUBLICATION} <= {one.key for one in found.estimates}
    assert found.scenario.rollout.step_time == logs.base_scenario().rollout.step_time


def test_the_time_of_rewards_is_a_number_of_its_own(tmp_path: Path) -> None:
    case = CASES["verl"]
    table = case.table()
    table = table.assign(reward=2.5, step=table.step + 2.5)
    log = READERS["jsonl"](logs.write_verl_jsonl(tmp_path, table, {**logs.VERL, "reward": "timing_s/reward"}))
    found = reproduce(log, logs.base_scenario())
    assert (reward := found.estimate(SCORING)) is not None
    assert reward.contains(2.5)
    assert found.scenario.trainer.fixed_seconds_per_step == pytest.approx(logs.FIXED + 2.5, rel=1e-3)
    modelled = (("workload.reward", {"latency_seconds": 1.0}),)
    found = reproduce(log, logs.base_scenario(modelled))
    assert "workload.reward" in open_names(found)
    assert found.scenario.trainer.fixed_seconds_per_step == pytest.approx(logs.FIXED, rel=1e-3)


# -- what physics does not allow ------------------------------------------------------------------------------


def slowed(table: pd.DataFrame, name: str, factor: float) -> pd.DataFrame:
    return table.assign(**{name: factor * table[name], "step": table.step + (factor - 1) * table[name]})


@pytest.mark.parametrize(
    ("name", "factor", "kind", "said"),
    [
        ("update_actor", 40.0, "update beyond its work", "timing_s/update_actor takes"),
        ("old_log_prob", 60.0, "pass beyond its work", "timing_s/old_log_prob"),
        ("update_actor", 0.2, "utilisation above the best published", "the best published is 65%"),
    ],
)
def test_what_no_size_explains_is_said(tmp_path: Path, name: str, factor: float, kind: str, said: str) -> None:
    found = CASES["verl"].fit(tmp_path, slowed(CASES["verl"].table(), name, factor))
    assert kind in kinds(found)
    assert any(said in str(one) for one in found.warnings)
    text = report_of(found).text()
    assert text.index("held out:") < text.index("warning:") < text.index("fitted,")


def test_an_update_beyond_its_work_stands_in_every_file(tmp_path: Path) -> None:
    case, out = CASES["verl"], tmp_path / "fit"
    calibrate(case.file(tmp_path, slowed(case.table(), "update_actor", 40.0)), logs.base_scenario(), out)
    assert json.loads((out / "fit.json").read_text())["warnings"][0]["kind"] == "update beyond its work"
    comments = [line for line in (out / "scenario.yaml").read_text().splitlines() if line.startswith("#")]
    assert "This run is not slow by size" in " ".join(comments)


def test_slow_passes_alone_are_below_two_percent(tmp_path: Path) -> None:
    names = {ours: name for ours, name in logs.VERL.items() if ours not in ("old_log_prob", "reference")}
    table = slowed(CASES["verl"].table(), "update_actor", 40.0)
    log = READERS["jsonl"](logs.write_verl_jsonl(tmp_path, table, names))
    assert "utilisation below 2 %" in kinds(reproduce(log, logs.base_scenario()))


@pytest.mark.parametrize(("more", "kind"), [(200.0, "step beyond its timers"), (-4.0, "timers beyond the step")])
def test_timers_that_do_not_add_up_are_said(tmp_path: Path, more: float, kind: str) -> None:
    table = CASES["verl"].table()
    assert kind in kinds(CASES["verl"].fit(tmp_path, table.assign(step=table.step + more)))


def test_a_utilisation_above_the_peak_keeps_the_bases(tmp_path: Path) -> None:
    found = CASES["verl"].fit(tmp_path, slowed(CASES["verl"].table(), "old_log_prob", 0.1).assign(reference=1e-3))
    assert "trainer.logprob_mfu" in open_names(found)
    assert found.estimate("trainer.mfu") is not None


# -- disturbed logs -------------------------------------------------------------------------------------------

SYNCHRONOUS = {"verl", "SkyRL", "slime", "NeMo-RL", "OpenRLHF"}
SIX = ("verl", "NeMo-RL", "slime", "OpenRLHF", "prime-rl", "TRL")


def fit_disturbed(name: str, seed: int, folder: Path) -> tuple[Reproduction, dict[str, float]]:
    """The fit to a log with drift, lasting noise and a restart, and the truth."""
    case = named_case(name)
    run = logs.true_run.__wrapped__(case.policy + case.truth + logs.DRIFT, seed)
    synchronous = name in SYNCHRONOUS
    found = case.fit(folder, logs.disturbed(logs.steps_of(run), seed, synchronous))
    first = 1 if synchronous else 0
    growth = logs.mean_growth(range(first, first + found.steps.fitted.stop))
    return found, {**case.identified, MEAN: logs.MEAN * growth}


@pytest.mark.parametrize("name", SIX)
def test_numbers_of_disturbed_logs_are_within_their_intervals(name: str, tmp_path: Path) -> None:
    found, truth = fit_disturbed(name, 1, tmp_path)
    assert [str(one) for one in found.estimates if not one.contains(truth[one.key])] == []
    assert truth.keys() - {one.key for one in found.estimates} <= open_names(found)
    assert found.warnings == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", SIX)
def test_intervals_of_disturbed_logs_hold_as_often_as_they_say(name: str, tmp_path: Path) -> None:
    """95 % intervals in eight runs."""
    inside = []
    for seed in range(8):
        found, truth = fit_disturbed(name, seed, tmp_path)
        inside += [one.contains(truth[one.key]) for one in found.estimates]
    assert sum(inside) / len(inside) >= 0.88
