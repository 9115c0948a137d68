"""Where live engines are to be: what is no place, and what it lacks, is said in a line before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlsim.cli import main as cli
from rlsim.live.backends import PLACED, backend
from rlsim.live.ray import cluster as ray_site
from rlsim.live.ray.cluster import RaySite

SCENARIO = str(Path(__file__).parents[2] / "scenarios" / "live" / "paced.yaml")


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a command that is refused."""
    monkeypatch.setattr(sys, "argv", ["rlsim", "run", SCENARIO, "--arm", "sync", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cluster", "ray"), "--cluster: found 'ray'; allowed: only with --live"),
        (("--live", "fake", "--cluster", "rya"), "did you mean 'ray'"),
        (("--live", "fake", "--ray-address", "auto"), "allowed: only with --cluster ray"),
        (("--live", "fake", "--cluster", "ray"), "--cluster: found '--live fake'; allowed: --live vllm or"),
        (("--live", "vllm", "--cluster", "ray", "--ray-address", "ray://a:1"), "from a node of the cluster"),
    ],
)
def test_what_is_no_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.setattr(ray_site, "find_spec", lambda name: object())
    assert words in said(monkeypatch, capsys, *arguments)


@pytest.mark.parametrize("engine", PLACED)
def test_without_ray_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    monkeypatch.setattr(ray_site, "find_spec", lambda name: None)
    line = said(monkeypatch, capsys, "--live", engine, "--cluster", "ray")
    assert "rlsim[cluster]" in line
    assert "README, section Live" in line


def test_a_placed_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_site, "find_spec", lambda name: object())
    for engine in PLACED:
        assert "Ray" in backend(engine, RaySite(None, "pack")).label
        assert "Ray" not in backend(engine).label
