"""A log written from a simulated run, in a framework's own format and names, gives the run's coefficients back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pytest
import simulated_logs as logs

from calibration.logs.calibrate import calibrate
from calibration.logs.costs import PUBLICATION
from calibration.logs.formats import READERS, format_of
from calibration.logs.frameworks import FRAMEWORKS, as_markdown
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
        return [*wrong, *(self.identified.keys() ^ keys)]


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


def test_an_asynchronous_log_is_refused_for_a_synchronous_policy(tmp_path: Path) -> None:
    log = READERS["jsonl"](CASES["verl, asynchronous"].file(tmp_path))
    with pytest.raises(ParameterError, match=r"policy: .*timing_s/param_sync"):
        reproduce(log, logs.base_scenario())


def test_replayed_rollouts_are_refused(tmp_path: Path) -> None:
    case = CASES["verl"]
    table = case.table()
    table.loc[20:, "generation"] = 0.01
    with pytest.raises(ParameterError, match=r"timing_s/gen of 0.01 s in step 21, .*replayed rollouts"):
        case.fit(tmp_path, table)


@pytest.mark.parametrize(("outside", "said"), [(0.0, True), (0.8, False)])
def test_openrlhf_step_total_may_be_a_sum_of_timers(tmp_path: Path, outside: float, said: bool) -> None:
    names = {
        "total_step": "timing/step_total",
        "generation": "timing/generation",
        "passes": "timing/make_experience",
        "update_actor": "timing/ppo_train",
        "sync": "timing/broadcast",
        "mean": "response_length",
        "total": "total_length",
    }
    table = CASES["verl"].table()
    timers = table.generation + table.passes + table.update_actor + table.sync
    log = READERS["wandb-csv"](logs.write_wandb_csv(tmp_path, table.assign(total_step=timers + outside), names))
    found = reproduce(log, logs.base_scenario(((SIGMA, logs.SIGMA),)))
    assert found.steps.framework == "OpenRLHF"
    assert found.steps.step_is_sum is said
    fixed = found.estimate("trainer.fixed_seconds_per_step")
    assert fixed is None if said else fixed is not None and fixed.contains(0.8)
    assert any("spread of response lengths" in one for one in found.unidentified)


def test_prime_rls_orchestrator_tells_the_step_not_its_trainer(tmp_path: Path) -> None:
    log = READERS["prime-rl"](CASES["prime-rl"].file(tmp_path))
    assert {"orchestrator/Time", "trainer/Time"} <= log.names()
    found = fitted("prime-rl")
    assert found.steps.columns["step"] == "orchestrator/Time"


def test_trained_lengths_are_said_to_be_short_where_the_policy_drops_long_ones(tmp_path: Path) -> None:
    case = replace(CASES["TRL"], policy=policy("trl-async-grpo", max_inflight_tasks=64, max_staleness=2))
    assert any("trains on the shorter ones" in said for said in case.fit(tmp_path).unidentified)


def test_where_the_trainer_sets_the_pace_the_engines_stay_open(tmp_path: Path) -> None:
    slow = ("trainer.fixed_seconds_per_step", 60.0)
    case = CASES["TRL"]
    case = replace(case, truth=(*case.truth, slow), known=(*case.known, slow))
    found = case.fit(tmp_path)
    assert found.estimate("rollout.step_time.scale") is None
    assert any("the trainer sets the pace" in said for said in found.unidentified)


# -- refusals ---------------------------------------------------------------------------------------------


def test_a_log_without_variation_is_refused(tmp_path: Path) -> None:
    case = CASES["verl"]
    table = case.table()
    constant = pd.concat([table.iloc[[5]]] * 30, ignore_index=True).assign(number=range(1, 31))
    with pytest.raises(ParameterError, match="varies by 0"):
        case.fit(tmp_path, constant)


def test_noise_without_a_cause_is_refused(tmp_path: Path) -> None:
    case = CASES["verl"]
    table = case.table()
    shuffled = table.generation.sample(frac=1.0, random_state=3).to_numpy()
    with pytest.raises(ParameterError, match="does not grow with the work"):
        case.fit(tmp_path, table.assign(generation=shuffled, step=table.step - table.generation + shuffled))


def test_too_few_steps_are_refused(tmp_path: Path) -> None:
    case = CASES["verl"]
    with pytest.raises(ParameterError, match="8 whole training steps after the first 1"):
        case.fit(tmp_path, case.table().head(9))


@pytest.mark.parametrize(
    ("missing", "named"),
    [("generation", "a time of generation"), ("mean", "mean length of responses"), ("step", None)],
)
def test_a_missing_column_is_named(tmp_path: Path, missing: str, named: str | None) -> None:
    names = {ours: name for ours, name in logs.VERL.items() if ours != missing}
    log = READERS["jsonl"](logs.write_verl_jsonl(tmp_path, CASES["verl"].table(), names))
    if named is None:
        assert reproduce(log, logs.base_scenario()).steps.step_is_sum
    else:
        with pytest.raises(ParameterError, match=named):
            reproduce(log, logs.base_scenario())


def test_without_a_base_scenario_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="import-config"):
        calibrate(CASES["verl"].file(tmp_path), None, tmp_path / "out")


@pytest.mark.parametrize("name", ["verl", "TRL", "prime-rl"])
def test_another_batch_than_the_runs_is_refused(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    log = READERS[case.kind](case.file(tmp_path))
    base = logs.base_scenario((*case.policy, *case.known, ("workload.group_size", 8)))
    with pytest.raises(ParameterError, match="tokens of 32 samples a step"):
        reproduce(log, base)


def test_the_reference_lists_every_column_that_is_read() -> None:
    page = log_columns()
    assert as_markdown() in page
    assert all(f"`{name}`" in page for log in FRAMEWORKS for names in log.columns.values() for name in names)


def test_turns_are_refused(tmp_path: Path) -> None:
    turns = (("workload.turns", {"count": 2, "tool_latency_seconds": 1.0, "tool_output_tokens": 5}),)
    with pytest.raises(ParameterError, match=r"workload\.turns"):
        reproduce(READERS["jsonl"](CASES["verl"].file(tmp_path)), logs.base_scenario(turns))
