"""rlsim from Python: what notebooks and scripts call."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rlsim
from rlsim.core.errors import ParameterError, ScenarioError

ROOT = Path(__file__).parents[1]
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"
RACE = ROOT / "scenarios" / "allocation" / "race.yaml"
LITTLE = {
    "run.replications": 2, "run.steps": 3, "run.warmup_steps": 1, "workload.prompts_per_step": 4,
    "workload.group_size": 4, "trainer.updates_per_step": 1, "sensitivity": [],
}  # fmt: skip


def test_importing_it_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import rlsim; print(sorted(set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "rlsim" in found
    assert not re.search(r"numpy|pandas|pydantic|rlsim\.", found), found


def test_its_names_are_there_and_others_are_refused() -> None:
    for name in rlsim.__all__:
        assert getattr(rlsim, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulte'"):
        rlsim.simulte  # noqa: B018


def test_variants_differ_in_what_was_set_alone_and_meet_the_same_luck() -> None:
    made = rlsim.variants(QUICKSTART, {"a": {}, "b": {"rollout.max_num_seqs": 1}, "again": {}}, LITTLE, "one-off 8+8")
    assert [made[name].scenario.rollout.max_num_seqs for name in made] == [256, 1, 256]
    told = rlsim.compare(made)
    assert told.arms[0].values("step_seconds") == told.arms[2].values("step_seconds")
    assert told.arms[0].values("step_seconds") != told.arms[1].values("step_seconds")
    assert "again" in rlsim.text(told)


def test_a_document_is_compared_and_reported(tmp_path: Path) -> None:
    document = rlsim.load(
        QUICKSTART, LITTLE | {"run.replications": 1, "arms.over-sample + partial.policy.over_sampling_batch_size": 6}
    )
    told = rlsim.compare(document, out=tmp_path / "out")
    assert [arm.name for arm in told.arms] == document.arms()
    assert rlsim.report(tmp_path / "out").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_variants_are_raced_and_a_run_has_its_tables() -> None:
    made = rlsim.variants(RACE, {"uniform": {}, "more": {"workload.group_size": 8}}, LITTLE, arm="uniform")
    raced = rlsim.race(made, to=0.9)
    assert [arm.name for arm in raced.arms] == ["uniform", "more"]
    assert "not reached" in rlsim.text(raced)
    tables = rlsim.tables(rlsim.simulate(made["uniform"], replication=1))
    assert len(tables["updates"]) == 3


def test_mistakes_are_refused_by_key() -> None:
    with pytest.raises(ScenarioError, match=r"rollout\.gpu_s"):
        rlsim.variants(QUICKSTART, {"a": {"rollout.gpu_s": 1}}, arm="one-off 8+8")
    with pytest.raises(ParameterError, match="learning"):
        rlsim.race(rlsim.variants(QUICKSTART, {"a": {}}, LITTLE, arm="one-off 8+8"), to=0.5)


def test_the_example_of_the_documents_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "start" / "read-a-result.md").read_text(), re.S | re.M
    )
    monkeypatch.chdir(ROOT)
    exec(compile(example, "docs/start/read-a-result.md", "exec"), {})
    assert "256 slots" in capsys.readouterr().out
