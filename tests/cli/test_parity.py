"""``rlsim parity`` from the command line, on fake engines."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from policy_runs import scenario

from rlsim.cli import main as cli


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = scenario({"preset": "areal"}).model_dump(mode="json")
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(made))
    return path


def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str, int]:
    monkeypatch.setattr(sys, "argv", ["rlsim", "parity", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return out, err, int(ended.value.code or 0)


def test_one_policy(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out, err, code = told(monkeypatch, capsys, str(file), "--live", "fake", "--repeats", "2")
    assert code == 0
    assert "EMULATED" in out
    assert "policy error 0" in out
    assert "step time" in out
    assert "live run 2 of 2" in err


def test_a_ranking_with_a_table_and_files(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out_folder, markdown = tmp_path / "out", tmp_path / "table.md"
    arguments = ["--policies", "areal,sync-disaggregated", "--repeats", "1", "--out", str(out_folder)]
    out, _, code = told(
        monkeypatch, capsys, str(file), "--live", "fake", "--calibrate", *arguments, "--markdown", str(markdown)
    )
    assert code == 0
    assert "Kendall tau" in out
    assert "not scored" in out
    assert f"--markdown {markdown}" in markdown.read_text()
    assert {path.name for path in out_folder.glob("*.png")} == {
        "parity.png",
        "parity-areal.png",
        "parity-sync-disaggregated.png",
    }


def test_json(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out, _, code = told(monkeypatch, capsys, str(file), "--live", "fake", "--repeats", "1", "--json")
    whole = json.loads(out)
    assert code == 0
    assert "EMULATED" in whole["label"]
    assert whole["policies"]["small"]["policy_errors"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--live", "fakes"], "fake"),
        (["--live", "fake", "--policies", "areal,arealistic"], "areal"),
        (["--live", "fake", "--arm", "none"], "none"),
    ],
)
def test_what_does_not_exist_is_named(
    arguments: list[str],
    message: str,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, err, code = told(monkeypatch, capsys, str(file), *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
