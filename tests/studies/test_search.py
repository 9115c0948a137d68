"""Plans: the choice is the best of what was allowed, found with few runs, and what is said of it is so."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from search_problems import ONE_OFF, PROBLEMS, Problem, evaluator
from small_cases import written as small_case
from sweep_files import ENVIRONMENT, ROOT, command, rlsim, told, written
from test_sweep import kept_runs

from rlsim.core.errors import ParameterError, RlsimError, ScenarioError
from rlsim.results.metrics import Metrics
from rlsim.results.progress import used_at
from rlsim.results.statistics import Estimate, paired_ratio
from rlsim.scenario.document import load
from rlsim.scenario.override import override
from rlsim.studies.optimize.candidates import NOMINAL
from rlsim.studies.optimize.explore import SEED, TpeSearch, explore
from rlsim.studies.optimize.gpu_changes import GpuChange, held_utilisation
from rlsim.studies.optimize.selection import MARGIN
from rlsim.studies.optimize.study import OptimizeResult, optimize, optimize_request
from rlsim.studies.runs.executor import local_executor, make_run
from rlsim.studies.runs.record import requests_of
from rlsim.studies.sweep import WITH_PROGRESS
from rlsim.studies.text.optimize import as_text, gpu_sentence

LITTLE = Problem((), ("split={gpus: 6, step: 1}",))


def answered(problem: Problem, folder: Path, **others: object) -> OptimizeResult:
    with local_executor(folder) as runs:
        return optimize(problem.asked(folder, **others), runs)  # type: ignore[arg-type]


def alone(found: OptimizeResult, at: tuple[int, ...]) -> list[Metrics]:
    """Runs of a point, made without a search."""
    space = found.request.space
    texts = dict(path_and_value for one in space.choice(at).values() for path_and_value in one.settings)
    sets = [f"{'.'.join(path)}={node.value}" for path, node in texts.items()]
    scenario = load(space.document.file, sets=sets).resolve()
    return [make_run(one).metrics for one in requests_of("alone", scenario, range(found.request.replications))]


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_quarter_of_the_evaluations_finds_the_optimum_within_one_percent(name: str, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    asked = PROBLEMS[name].asked(tmp_path)
    with local_executor(tmp_path, 2) as runs:
        all_points = explore(evaluator(asked, runs), asked.space.size)
        best = min(one.value for one in all_points.values())
        for seed in (SEED, 0, 1):
            counting = evaluator(asked, runs)
            found = TpeSearch(counting, len(all_points) // 4, NOMINAL, seed).run()
            assert len(counting.spent.points) <= len(all_points) // 4
            assert min(one.value for one in found.values()) <= 1.01 * best


def test_the_choice_has_the_least_mean_of_runs_made_one_by_one(tmp_path: Path) -> None:
    found = answered(LITTLE, tmp_path)
    assert found.selection is not None
    means = {}
    for at in found.request.space.points():
        runs = alone(found, at)
        means[at] = sum(run.step_seconds for run in runs) / len(runs)
    assert found.selection.best.point == min(means, key=lambda at: means[at])
    assert found.selection.best.value == pytest.approx(min(means.values()), rel=1e-12)


def test_ratios_are_paired_and_the_flat_region_is_what_is_within_the_margin(tmp_path: Path) -> None:
    selection = answered(LITTLE, tmp_path).selection
    assert selection is not None
    for one in selection.contenders:
        expected = paired_ratio(one.values("step_seconds"), selection.best.values("step_seconds"))
        assert selection.ratio(one) == expected
        assert (one in selection.flat) == (expected.mean <= 1 + MARGIN)


def test_nothing_beats_the_front_in_both_and_everything_else_is_beaten(tmp_path: Path) -> None:
    problem = Problem(PROBLEMS["seats"].changes, ("split={gpus: [4, 8], step: 1}",))
    selection = answered(problem, tmp_path).selection
    assert selection is not None

    def place(one: object) -> tuple[float, float]:
        return tuple(one.estimate(name).mean for name in ("step_seconds", "usd_per_million_trained_tokens"))  # type: ignore[attr-defined]

    assert len(selection.front) > 1
    for one in selection.contenders:
        beaten = any(
            place(other) != place(one) and all(b <= a for a, b in zip(place(one), place(other), strict=True))
            for other in selection.contenders
        )
        assert (one in selection.front) == (not beaten)


def test_infeasible_points_are_counted_by_what_they_fail_for_and_none_is_dropped(tmp_path: Path) -> None:
    utilization = ("max_num_seqs: 8", "gpu_memory_utilization: 0.75")  # 60 of 80 GB: too little for 32B on one GPU.
    changes = (("model: Qwen3-0.6B", "model: Qwen2.5-32B"), utilization, *PROBLEMS["policies"].changes[2:])
    problem = Problem(
        changes,
        ("split={gpus: 16, step: 2}", "rollout.tensor_parallel=1,4", "cluster.device=H100-SXM,H200-SXM"),
        budget=("max_gpus=16", "max_usd_per_hour=50"),
    )
    found = answered(problem, tmp_path)
    assert found.selection is not None
    counts = {kind: count for kind, (count, _) in found.infeasible.items()}
    assert "Qwen2.5-32B needs" in found.infeasible["engine memory"][1]
    assert "trainer GPUs hold at least" in found.infeasible["trainer memory"][1]
    assert counts["refused: rollout.gpus"] == 2 * 4  # Splits of 2, 6, 10, 14 are no multiple of tensor parallelism 4.
    assert len(found.selection.looked_at) + sum(counts.values()) == found.request.space.size


def test_limits_that_only_a_run_can_tell_exclude_and_are_counted(tmp_path: Path) -> None:
    stale = "{preset: areal, max_head_offpolicyness: 4, max_concurrent_rollouts: 256}"
    more = f"arms:\n  fresh: {{}}\n  stale: {{policy: {stale}}}\n"
    problem = Problem((), ("split={gpus: 6, step: 2}",), more=more, budget=("max_start_lag=0",))
    found = answered(problem, tmp_path)
    assert found.selection is not None
    assert found.infeasible["max_start_lag"][0] >= 1
    assert {one.candidate.variant.levels["arm"] for one in found.selection.contenders} == {"fresh"}


def test_where_nothing_is_feasible_the_reasons_are_told(tmp_path: Path) -> None:
    done = rlsim("plan", str(written(tmp_path)), "--search", "split={gpus: 6, step: 2}", "--budget", "max_start_lag=0",
                 "--budget", "max_step_seconds=0.001")  # fmt: skip
    assert done.returncode == 4
    assert "infeasible, max_step_seconds: 2" in done.stdout
    with pytest.raises(RlsimError, match=r"5 x max_gpus: 6 GPUs in use; allowed: 3"):
        answered(Problem((), LITTLE.axes, budget=("max_gpus=3",)), tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--search", "rollout.gpuz=1,2"], ["refused: rollout.gpuz", "did you mean 'gpus'"]),
        (["--search", "seed=1,2", "--budget", "max_gpu=4"], ["--budget", "did you mean 'max_gpus'"]),
        (["--search", "seed=1,2", "--objective", "step"], ["--objective", "step_seconds"]),
        (["--search", "workload.group_size=2,4"], ["--objective", "seconds_per_million_trained_tokens"]),
        (["--search", "seed=1,2", "--uncertain", "workload.response_tokens.sigmma=1,2"], ["sigmma"]),
        (["--search", "seed=1,2", "--sensitivity", "seed=3,4"], ["sensitivity", "is no axis"]),
        (
            ["--search", "split={gpus: 4, step: 1}", "--search", "trainer.gpus=1,2"],
            ["trainer.gpus", "one factor alone"],
        ),
        (["--search", "split={gpus: 4, steps: 1}"], ["split", "allowed: gpus"]),
        (["--search", "seed={from: 4, to: 1, step: 1}"], ["found 0 values"]),
        ([], ["no axis"]),
    ],
)
def test_a_question_that_cannot_be_meant_is_refused_before_anything_runs(
    tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    done = rlsim("plan", str(written(tmp_path)), "--out", str(tmp_path / "out"), *arguments)
    assert done.returncode == 2, done.stderr
    for word in words:
        assert word in done.stderr
    assert not kept_runs(tmp_path / "out")


def test_axes_of_a_file_are_ranges_lists_and_splits_with_the_line_of_what_is_wrong(tmp_path: Path) -> None:
    section = (
        "search:\n  axes:\n    rollout.max_num_seqs: {from: 2, to: 16, factor: 2}\n    split: {gpus: 8, step: 3}\n"
    )
    space = optimize_request(load(written(tmp_path, section))).space
    assert [[level.text for level in axis.factor.levels] for axis in space.axes] == [
        ["2", "4", "8", "16"],
        ["3+5", "6+2"],
    ]
    wrong = written(tmp_path, "search:\n  axes:\n    split: {gpus: 8, step: nine}\n")
    with pytest.raises(ScenarioError, match=r"small\.yaml:\d+: split: .*allowed: gpus"):
        optimize_request(load(wrong))
    with pytest.raises(ParameterError, match=r"--budget max_gpus"):
        optimize_request(load(written(tmp_path)), ["seed=1,2"], budget=["max_gpus=many"])


def test_a_choice_under_uncertain_inputs_has_the_least_worst_regret(tmp_path: Path) -> None:
    uncertain = ["trainer.mfu=0.002,0.2"]
    found = answered(Problem(PROBLEMS["seats"].changes, LITTLE.axes), tmp_path, uncertain=uncertain).robust
    assert found is not None
    table = {one.point: one.values for one in found.points}
    for state in range(2):
        best = min(values[state] for values in table.values())
        for one in found.points:
            assert one.regrets[state] == pytest.approx(one.values[state] / best - 1)
    assert found.points[0].worst == min(one.worst for one in found.points)
    assert (
        len({min(table, key=lambda at: table[at][state]) for state in range(2)}) == 2
    )  # Else there is nothing to doubt.


def test_an_input_that_matters_changes_the_choice_and_one_that_does_not_does_not(tmp_path: Path) -> None:
    sensitivity = ["trainer.mfu=-90%,+0%", "sync.base_seconds=0,0.001"]
    found = answered(Problem(PROBLEMS["seats"].changes, LITTLE.axes), tmp_path, sensitivity=sensitivity)
    assert found.selection is not None
    swings = {(one.key, one.text): one for one in found.swings}
    low = swings["trainer.mfu", "0.002"]
    assert low.changes_the_choice
    assert low.change.mean > 1.5
    assert low.regret.mean > 1
    same = swings["trainer.mfu", "0.02"]
    assert (same.change.mean, same.regret.mean) == (1, 1)
    assert not same.changes_the_choice
    assert not swings["sync.base_seconds", "0.001"].changes_the_choice


def test_one_more_gpu_is_worth_what_runs_with_it_say(tmp_path: Path) -> None:
    found = answered(LITTLE, tmp_path)
    assert found.selection is not None
    scenario = found.selection.best.candidate.variant.scenario
    for more in (change for change in found.gpu_changes if change.role):
        gpus = {"rollout": scenario.rollout.gpus, "trainer": scenario.trainer.gpus, "cluster": scenario.cluster.gpus}
        gpus = {**gpus, more.role: gpus[more.role] + more.gpus, "cluster": gpus["cluster"] + more.gpus}
        sets = [f"{role}.gpus={count}" for role, count in gpus.items()]
        larger = load(found.request.space.document.file, sets=sets).resolve()
        own = [make_run(one).metrics.step_seconds for one in requests_of("larger", larger, range(2))]
        mean = sum(own) / 2 - found.selection.best.value
        assert more.seconds.mean == pytest.approx(mean, abs=1e-9)
    assert {more.role for more in found.gpu_changes if more.role} == {"rollout", "trainer"}


def test_the_plan_ends_in_what_another_number_of_gpus_is_worth(tmp_path: Path) -> None:
    found = answered(Problem((), ("split={gpus: [4, 8], step: 2}",)), tmp_path, replications=5)
    assert found.selection is not None
    best, change = found.selection.best, next(one for one in found.gpu_changes if one.usd_per_hour_saved is not None)
    hour = best.candidate.usd_per_hour
    rate = hour / best.estimate("usd_per_million_trained_tokens").mean
    gpus = best.candidate.gpus + change.gpus
    assert change.usd_per_hour_ratio == pytest.approx(gpus / best.candidate.gpus)
    # As fast for as much money an hour is what a token costs.
    assert change.cost_ratio.mean == pytest.approx(change.usd_per_hour_ratio / change.speedup.mean, rel=1e-6)
    assert change.usd_per_hour_saved is not None
    dearer, hours_saved = hour / rate * (change.cost_ratio.mean - 1), (1 - 1 / change.speedup.mean) / rate
    assert change.usd_per_hour_saved == pytest.approx(dearer / hours_saved)
    text = as_text(found)
    last = " ".join(text.split("\n\n")[-1].split())
    assert "x the money an hour, " in last
    assert f"{change.usd_per_hour_saved:,.2f} USD for an hour saved" in last


def estimate(mean: float, half: float = 0.01) -> Estimate:
    return Estimate(mean, mean - half, mean + half, 3)


@pytest.mark.parametrize(
    ("gpus", "speedup", "cost", "saved", "words"),
    [
        (
            32,
            1.44,
            1.04,
            310.0,
            "32 more GPUs: 1.44 ± 0.01x as fast for 1.50x the money an hour, 4% more a token; n",
        ),
        (32, 1.44, 1.04, 310.0, "not worth it below 310.00 USD for an hour saved; trainer.mfu 0.4 is held fixed."),
        (32, 1.002, 1.5, None, "no faster for certain: not worth it"),
        (32, 1.6, 0.94, -12.0, "6% less a token; worth it at any price of time"),
        (-1, 0.7, 0.95, 20.0, "1 fewer GPU: 0.70 ± 0.01x as fast"),
        (-1, 0.7, 0.95, 20.0, "worth it up to 20.00 USD for an hour saved"),
        (-1, 0.999, 0.7, None, "no slower for certain: worth it"),
        (-1, 0.7, 1.1, -3.0, "not worth it: slower and dearer"),
    ],
)
def test_the_sentence_says_from_which_price_of_time_gpus_pay(
    gpus: int, speedup: float, cost: float, saved: float | None, words: str
) -> None:
    rest = (estimate(speedup), 1.5, estimate(cost), saved, "trainer.mfu 0.4 is held fixed")
    assert words in gpu_sentence(GpuChange("", {}, gpus, estimate(0.0), estimate(0.0), *rest))


def test_a_utilisation_is_held_fixed_where_sizes_differ(tmp_path: Path) -> None:
    one = load(str(small_case(tmp_path, ""))).resolve()
    more = override(one, {"cluster.gpus": 3, "trainer.gpus": 2})
    assert held_utilisation(one, more) == "trainer.mfu 0.4 is held fixed"
    assert held_utilisation(one, override(one, {"rollout.max_num_seqs": 8})) == ""


LEARNS = "learning:\n  curve: {half_updates: 2}\n"


def test_the_way_to_a_target_is_that_of_runs_made_alone_and_one_that_ends_before_is_counted(tmp_path: Path) -> None:
    changes = (*ONE_OFF, ("steps: 3", "steps: 8"))
    budget = ("target_success=0.45",)
    problem = Problem(changes, ("split={gpus: 4, step: 1}",), LEARNS, budget, "seconds_to_target")
    found = answered(problem, tmp_path)
    assert found.selection is not None
    assert found.request.measures == ("seconds_to_target", "usd_to_target")
    for one in found.selection.contenders:
        scenario = one.candidate.variant.scenario
        columns = [make_run(one).progress for one in requests_of("alone", scenario, range(2), WITH_PROGRESS)]
        assert all(column is not None for column in columns)
        for used, metric in (("seconds", "seconds_to_target"), ("usd", "usd_to_target")):
            assert one.values(metric) == [used_at(column, 0.45, used) for column in columns if column is not None]
    short = Problem((*ONE_OFF,), problem.axes, LEARNS, ("target_success=0.99",), "seconds_to_target")
    missed = answered(short, tmp_path)
    assert missed.selection is None
    assert missed.infeasible["target_success"][0] == 3


def test_a_target_needs_a_learning_section(tmp_path: Path) -> None:
    with pytest.raises(RlsimError, match="no learning section"):
        answered(Problem((), LITTLE.axes, budget=("target_success=0.5",)), tmp_path)
    with pytest.raises(ParameterError, match="a success rate"):
        answered(Problem((), LITTLE.axes, objective="usd_to_target"), tmp_path)


def test_a_killed_search_goes_on_and_simulates_nothing_twice(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    out = tmp_path / "out"
    problem = PROBLEMS["seats"]
    path = written(tmp_path, problem.more, *problem.changes)
    arguments = ["plan", str(path), "--out", str(out), "--evaluations", "20", "--workers", "1"]
    arguments += [piece for axis in problem.axes for piece in ("--search", axis)]
    with subprocess.Popen(
        command(*arguments), cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while kept_runs(out) < 8:
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = kept_runs(out)
    resumed = told(*arguments)
    assert kept_runs(out) == kept + resumed["runs_made"]
    again = told(*arguments)
    assert again["runs_made"] == 0
    assert again["best"] == resumed["best"]
    assert json.loads((out / "plan.json").read_text())["best"] == again["best"]
    assert {path.name for path in out.glob("*.png")} >= {"pareto.png", "optimum_split.png"}


@pytest.mark.slow
def test_the_best_split_of_verls_seven_billion_case_beats_the_published_one(tmp_path: Path) -> None:
    """Published for 64 + 64 GPUs: 150.63 s, and no other split (docs/advance/fully_async.md)."""
    document = load(ROOT / "scenarios" / "planning" / "verl-7b.yaml", sets=["run.replications=2"])
    asked = optimize_request(document, ["split={gpus: 128, step: 16}"], ["asynchronous"], uncertain=(), sensitivity=())
    with local_executor(tmp_path, 2) as runs:
        looked = explore(evaluator(asked, runs), asked.space.size)
    values = {one.candidate.variant.levels["split"]: one.value for one in looked.values()}
    assert min(values, key=lambda split: values[split]) in ("48+80", "64+64")
    assert min(values.values()) <= values["64+64"]
    assert values["64+64"] == pytest.approx(150.63, rel=0.15)  # Lengths are assumed: of the right size, no more.
    assert values["16+112"] > 1.5 * values["48+80"] < values["112+16"]
