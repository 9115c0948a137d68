"""Sweeps: what is run, on which luck, what is refused, and that a killed one goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sweep_files import ARMS, ENVIRONMENT, ROOT, command, rlsim, told, written

from rlsim.core.errors import ParameterError, ScenarioError
from rlsim.results.statistics import paired_ratio
from rlsim.scenario.document import load
from rlsim.scenario.variation import arms_factor, choices, factor, listed
from rlsim.studies.runs.executor import Processes, RunExecutor, local_executor, make_run
from rlsim.studies.runs.record import RunRecord, RunRequest, requests_of
from rlsim.studies.runs.store import RunStore
from rlsim.studies.sweep import Variant, baseline_of, sweep, variants

SIGMAS = "workload.response_tokens.sigma=0.6,0.8,1.0"


def made(path: Path, *sets: str) -> list[Variant]:
    return variants(load(path), choices([factor(text) for text in sets]))


def test_factors_are_crossed_the_last_varying_fastest_and_joined_keys_change_together(tmp_path: Path) -> None:
    found = made(written(tmp_path), "rollout.gpus:trainer.gpus=2:6,4:4", "seed=1,2")
    seen = [(one.scenario.rollout.gpus, one.scenario.trainer.gpus, one.scenario.seed) for one in found]
    assert seen == [(2, 6, 1), (2, 6, 2), (4, 4, 1), (4, 4, 2)]


def test_values_with_commas_in_brackets_are_one_value(tmp_path: Path) -> None:
    found = made(written(tmp_path), "workload.response_tokens={law: constant, tokens: 5},{law: constant, tokens: 7}")
    assert [one.scenario.workload.response_tokens.fields["tokens"] for one in found] == [5, 7]


def test_arms_are_a_factor_and_rows_of_a_list_are_variants(tmp_path: Path) -> None:
    document = load(written(tmp_path, ARMS))
    rows = tmp_path / "rows.yaml"
    rows.write_text("- {seed: 1, rollout.gpus: 2}\n- {seed: 2, rollout.gpus: 4}\n")
    arms = arms_factor([], document.arms())
    assert arms is not None
    found = variants(document, choices([arms], listed(str(rows))))
    seen = [(one.levels["arm"], one.scenario.policy.preset, one.scenario.rollout.gpus) for one in found]
    assert seen == [
        ("fresh", "sync-disaggregated", 2),
        ("fresh", "sync-disaggregated", 4),
        ("one-off", "one-step-off", 2),
        ("one-off", "one-step-off", 4),
    ]


def test_every_variant_meets_the_luck_that_a_run_by_itself_meets(tmp_path: Path) -> None:
    found = made(written(tmp_path), SIGMAS)
    with local_executor(tmp_path) as runs:
        swept = sweep(found, found[1], 2, runs)
    for result in swept.results:
        alone = [make_run(request) for request in requests_of("alone", result.variant.scenario, range(2))]
        assert result.values("step_seconds") == [record.metrics.step_seconds for record in alone]
    first, base = swept.results[0], swept.results[1]
    expected = paired_ratio(first.values("step_seconds"), base.values("step_seconds"))
    assert first.ratio(swept.baseline, "step_seconds") == expected


def test_processes_make_the_same_runs_as_this_one(tmp_path: Path) -> None:
    requests = [request for one in made(written(tmp_path), SIGMAS) for request in one.requests(2)]
    with Processes(2) as backend:
        apart = {record.key: record.metrics for _, record in backend.records(requests)}
    with Processes(1) as backend:
        here = {record.key: record.metrics for _, record in backend.records(requests)}
    assert apart == here


class Counting:
    """Makes runs and remembers which."""

    def __init__(self) -> None:
        self.keys: list[tuple[str, int]] = []

    def records(self, requests: list[RunRequest]) -> Iterator[tuple[RunRequest, RunRecord]]:
        for request in requests:
            self.keys.append(request.key)
            yield request, RunRecord(request.label, request.replication, request.identity, error="not made")


def runs_of(store: RunStore, path: Path, replications: int, *sets: str) -> list[tuple[str, int]]:
    counting = Counting()
    requests = [request for one in made(path, *sets) for request in one.requests(replications)]
    RunExecutor(counting, store).run_all(requests)  # type: ignore[arg-type]
    return counting.keys


def test_a_store_is_added_to_by_new_variants_and_replications_and_by_nothing_else(tmp_path: Path) -> None:
    path = written(tmp_path)
    with RunStore(tmp_path) as store:
        assert len(runs_of(store, path, 2, SIGMAS)) == 6
        assert runs_of(store, path, 2, SIGMAS) == []
        assert len(runs_of(store, path, 3, SIGMAS)) == 3
        assert len(runs_of(store, path, 3, "workload.response_tokens.sigma=1.0,1.2")) == 3
        titled = written(tmp_path, "description: other words\n", ("name: small", "name: another title"))
        assert runs_of(store, titled, 3, SIGMAS) == []
        longer = written(tmp_path, "", ("steps: 3", "steps: 4"))
        assert len(runs_of(store, longer, 1, SIGMAS)) == 3


def test_a_part_of_the_users_own_is_another_run_when_its_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    from rlsim.studies.runs import identity

    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "own_part_of_a_sweep.py"
    tree = {"policy": {"parts": {"admission": {"use": "own_part_of_a_sweep:Part"}}}}
    seen = []
    for text in ("x = 1\n", "x = 2\n"):
        module.write_text(text)
        importlib.invalidate_caches()
        identity._digest.cache_clear()
        seen.append(sorted(identity._outside(tree)))
    assert seen[0][0][1]
    assert seen[0] != seen[1]


def test_the_same_run_asked_for_by_two_variants_is_made_once(tmp_path: Path) -> None:
    twice = "arms:\n  a: {}\n  b: {description: the same by another name}\n"
    document = load(written(tmp_path, twice))
    arms = arms_factor(["a,b"], document.arms())
    assert arms is not None
    requests = [request for one in variants(document, choices([arms])) for request in one.requests(2)]
    counting = Counting()
    with RunStore() as store:
        RunExecutor(counting, store).run_all(requests)  # type: ignore[arg-type]
    assert len(requests) == 4
    assert len(counting.keys) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rollout.gpuz=1,2", ("rollout.gpuz", "unknown key", "did you mean 'gpus'")),
        ("rollout.gpus=2,0", ("rollout.gpus=0", "found 0", "at least 1")),
        ("rollout.gpus=2,99", ("rollout.gpus", "found 99", "at most cluster.gpus (16)")),
        ("model=Qwen3-0.6B,Qwen3-0.7B", ("model: found 'Qwen3-0.7B'", "Qwen3-0.6B")),
        ("policy.preset=sync-disaggregated,areall", ("policy.preset", "did you mean 'areal'")),
    ],
)
def test_one_wrong_value_refuses_the_sweep_before_anything_runs(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(ScenarioError) as refused:
        made(written(tmp_path), text, SIGMAS)
    for word in words:
        assert word in str(refused.value)


def test_a_key_in_two_factors_is_refused(tmp_path: Path) -> None:
    for other in ("seed=3,4", "rollout.gpus:seed=2:3,4:4"):
        with pytest.raises(ParameterError, match=r"seed.*one factor alone"):
            made(written(tmp_path), "seed=1,2", other)


def test_a_wrong_value_in_a_list_is_told_with_file_line_and_key(tmp_path: Path) -> None:
    rows = tmp_path / "rows.yaml"
    rows.write_text("- rollout.gpus: 2\n- rollout.gpus: many\n")
    with pytest.raises(ScenarioError, match=r"rows\.yaml:2: .*rollout\.gpus.*: found 'many'; allowed: a whole number"):
        variants(load(written(tmp_path)), choices([], listed(str(rows))))


def test_the_baseline_is_one_variant(tmp_path: Path) -> None:
    found = made(written(tmp_path), SIGMAS, "seed=1,2")
    assert baseline_of(found, []) is found[0]
    assert baseline_of(found, ["seed=2,workload.response_tokens.sigma=0.8"]) is found[3]
    with pytest.raises(ParameterError, match="3 have these"):
        baseline_of(found, ["seed=2"])
    with pytest.raises(ParameterError, match=r"0\.6, 0\.8, 1\.0"):
        baseline_of(found, ["workload.response_tokens.sigma=0.7"])


def test_a_variant_that_cannot_end_is_told_and_the_others_are_not_lost(tmp_path: Path) -> None:
    path = written(tmp_path)
    done = rlsim("sweep", str(path), "--set", "run.max_simulated_seconds=1,1000", "--json")
    assert done.returncode == 3, done.stderr
    first, second = json.loads(done.stdout)["variants"]
    assert "run.warmup_steps" in first["fault"]
    assert second["fault"] is None
    assert second["estimates"]["step_seconds"]["n"] == 2


def test_a_place_that_is_none_is_refused(tmp_path: Path) -> None:
    path = str(written(tmp_path))
    assert "did you mean 'ray'" in rlsim("sweep", path, "--cluster", "rai", "--set", SIGMAS).stderr
    assert "only with --cluster ray" in rlsim("sweep", path, "--ray-address", "auto", "--set", SIGMAS).stderr


def kept_runs(out: Path) -> int:
    """Runs in a store that a command has open: the frames of its log are read from a copy."""
    folder = out / "runs"
    if not (folder / "runs.sqlite3").exists():
        return 0
    with tempfile.TemporaryDirectory() as copy:
        for path in folder.iterdir():
            with suppress(FileNotFoundError):
                shutil.copy(path, copy)
        with closing(sqlite3.connect(Path(copy) / "runs.sqlite3")) as database, suppress(sqlite3.DatabaseError):
            return int(database.execute("select count(*) from runs").fetchone()[0])
    return 0


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in tasks.read_text().split()] if tasks.exists() else []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
def test_a_sweep_killed_in_the_middle_goes_on_without_losing_or_repeating_a_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["sweep", str(written(tmp_path)), "--set", f"seed={','.join(map(str, range(60)))}"]
    arguments += ["--replications", "2", "--workers", "2", "--out", str(out)]
    with subprocess.Popen(
        command(*arguments), cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while kept_runs(out) < 20:
            assert process.poll() is None
            time.sleep(0.005)
        workers = children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    finished = kept_runs(out)
    assert finished < 200
    resumed = told(*arguments)
    assert resumed["runs_reused"] == finished
    assert resumed["runs_made"] == 120 - finished
    assert kept_runs(out) == 120
    assert [one["replications"] for one in resumed["variants"][::20]] == [_metrics_of(tmp_path, s) for s in (0, 20, 40)]
    assert not [worker for worker in workers if _runs(worker)]


def _metrics_of(folder: Path, seed: int) -> list[dict[str, object]]:
    """Of a variant's runs, made here without a store."""
    (one,) = made(written(folder), f"seed={seed}")
    return [dict(make_run(request).flat()) for request in one.requests(2)]


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{process}/stat").read_text().split(")")[1][:3]
