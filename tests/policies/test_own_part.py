"""A part outside the package, written by the recipe of the documentation, acts; and a run that it stalls says why."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from policy_runs import commands, moments, ran, scenario

from rlsim.core.commands import Submit
from rlsim.core.errors import DeadlockError
from rlsim.core.events import Noticed, Scored
from rlsim.core.log import RunLog
from rlsim.policies.allocation import early_stopping
from rlsim.resolve import ResolveError, resolve

RECIPE = Path(__file__).parents[2] / "docs" / "develop" / "extending.md"


def recipe(place: int = 1) -> str:
    """The Python block of the recipe for a part, or for a strategy (2)."""
    return RECIPE.read_text(encoding="utf-8").split("```python\n")[place].split("```")[0]


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of the user's that is the current one; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def admission(use: str, **given: Any) -> dict[str, Any]:
    return {"preset": "sync-disaggregated", "parts": {"admission": {"use": use, **given}}}


def test_the_part_of_the_recipe_acts_without_touching_the_package(beside: Path) -> None:
    (beside / "my_module.py").write_text(recipe(), encoding="utf-8")
    log = ran(admission("my_module:Trickle", limit=3))
    open_groups = [len({sample // 2 for sample in moment.calls}) for moment in moments(log)]
    assert max(open_groups) == 3
    assert {row.gate for row in log.gates} >= {"trickle"}
    assert len(log.iterations) == 5


def test_the_strategy_of_the_recipe_decides_by_rewards_without_touching_the_package(beside: Path) -> None:
    (beside / "my_strategy.py").write_text(recipe(2), encoding="utf-8")
    policy = {"preset": "sync-colocated", "parts": {"allocation": {"use": "my_strategy:SecondChance", "more": 3}}}
    log = ran(policy, learning={}, workload__group_size=4, run__steps=8)
    rewards = {row.event.sample: row.event.reward for row in log.decisions if isinstance(row.event, Scored)}
    groups: dict[int, list[Submit]] = {}
    for _, made in commands(log, Submit):
        groups.setdefault(made.draw, []).append(made)
    for members in groups.values():
        first = [rewards.get(made.sample) for made in members if made.member < 4]
        if len(members) > 4:
            assert first == [0.0] * 4
            assert len(members) == 7
    assert any(len(members) == 7 for members in groups.values())
    assert {row.outcome for row in log.final} >= {"trained", "filtered"}


def test_two_limits_of_the_same_part_give_two_runs(beside: Path) -> None:
    (beside / "my_module.py").write_text(recipe(), encoding="utf-8")
    one, three = (ran(admission("my_module:Trickle", limit=limit)) for limit in (1, 3))
    assert one.end > three.end
    assert commands(one, Submit)[0][1] == commands(three, Submit)[0][1]


def test_a_module_of_the_current_directory_hides_no_installed_one(
    beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    (beside / "colorsys.py").write_text("raise RuntimeError('hidden')", encoding="utf-8")
    (beside / "my_module.py").write_text(recipe() + "\nimport colorsys\n", encoding="utf-8")
    assert ran(admission("my_module:Trickle", limit=3), run__steps=1).iterations


@pytest.mark.parametrize(
    ("use", "source", "reason"),
    [
        ("my_absent:Trickle", "", "No module named 'my_absent'"),
        ("my_module:Tricle", "class Trickle: ...", "has no attribute 'Tricle'"),
        ("my_module:Trickle", "class Trickle(:", "SyntaxError"),
        ("my_module:Trickle", "raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("my_module:Trickle", "class Trickle: ...", "a dataclass with start(shape)"),
        ("my_module:Trickle", "Trickle = 3", "a dataclass with start(shape)"),
        (":Trickle", "", "module:Class that can be imported"),
    ],
)
def test_a_part_that_cannot_be_had_is_named_with_the_reason(beside: Path, use: str, source: str, reason: str) -> None:
    (beside / "my_module.py").write_text(source, encoding="utf-8")
    with pytest.raises(ResolveError) as caught:
        resolve(scenario(admission(use, limit=3)))
    assert caught.value.path == "policy.parts.admission.use"
    assert caught.value.found == use
    assert reason in caught.value.allowed


@pytest.mark.parametrize(
    ("given", "key", "found"),
    [
        ({"limit": "3"}, "limit", "3"),
        ({"limits": 3}, "limits", "limits"),
        ({}, "limit", None),
        ({"limit": 0}, "limit", 0),
    ],
)
def test_its_parameters_are_checked_like_any_others(
    beside: Path, given: dict[str, Any], key: str, found: object
) -> None:
    (beside / "my_module.py").write_text(recipe(), encoding="utf-8")
    with pytest.raises(ResolveError) as caught:
        resolve(scenario(admission("my_module:Trickle", **given)))
    assert (caught.value.path, caught.value.found) == (f"policy.parts.admission.{key}", found)


def test_a_part_that_lacks_what_its_choice_asks_is_refused(beside: Path) -> None:
    (beside / "my_module.py").write_text(recipe().replace("def capacity", "def space"), encoding="utf-8")
    with pytest.raises(ResolveError, match=r"a part with capacity \(rlsim\.policies\.protocols\.Admission\)"):
        resolve(scenario(admission("my_module:Trickle", limit=3)))


def test_a_part_with_the_former_name_of_capacity_still_works_and_says_the_new_one(beside: Path) -> None:
    (beside / "my_module.py").write_text(recipe(), encoding="utf-8")
    (beside / "my_older_module.py").write_text(recipe().replace("def capacity", "def room"), encoding="utf-8")
    with pytest.warns(FutureWarning, match=r"Trickle\.room is now named capacity"):
        older = ran(admission("my_older_module:Trickle", limit=3))
    assert older.decisions == ran(admission("my_module:Trickle", limit=3)).decisions


def test_a_strategy_with_the_former_name_of_on_watch_still_watches_and_says_the_new_one(beside: Path) -> None:
    now = re.sub(r"@part\(.*\)\n", "", inspect.getsource(early_stopping))
    (beside / "my_module.py").write_text(now, encoding="utf-8")
    (beside / "my_older_module.py").write_text(now.replace("def on_watch", "def noticed"), encoding="utf-8")

    def log(module: str) -> RunLog:
        strategy = {"use": f"{module}:OnlinePruning", "mark_tokens": 20, "least_seen": 4}
        policy = {"preset": "sync-colocated", "parts": {"allocation": strategy}}
        return ran(policy, learning={}, workload__response_tokens=50)

    with pytest.warns(FutureWarning, match=r"_Pruner\.noticed is now named on_watch"):
        older = log("my_older_module")
    assert any(isinstance(row.event, Noticed) for row in older.decisions)
    assert older.decisions == log("my_module").decisions


def test_a_run_that_stalls_reports_the_gate_what_waits_and_since_when(beside: Path) -> None:
    stops = recipe().replace("self.limit - view.open_groups", "self.limit - view.started_groups")
    (beside / "my_module.py").write_text(stops, encoding="utf-8")
    with pytest.raises(DeadlockError) as caught:
        ran(admission("my_module:Trickle", limit=4), workload__response_tokens=50)
    first, *lines = str(caught.value).splitlines()
    assert first.startswith("deadlock at ")
    assert "after 1 of 5 training iterations: nothing is left to happen." in first
    assert lines[0].startswith("  gate: trickle (since ")
    assert lines[0].endswith(" s); trainer: idle")
    assert lines[1] == "  complete groups waiting: 1 of 3 for a batch; open groups: 0"
    assert lines[2] == "  samples in flight: 0 (0 calls on replicas); parked: 0"
