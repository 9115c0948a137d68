"""Every scenario that is shipped loads, is planned and runs, in every arm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlsim.resolve import ResolveError, resolve
from rlsim.scenario.document import load
from rlsim.sim.simulation import simulate

FOLDER = Path(__file__).parents[2] / "scenarios"
NO_SCENARIO = {FOLDER / "published" / "left-out.yaml", *(FOLDER / "published" / "frameworks").glob("*.yaml")}


def shared(file: Path) -> Path | None:
    """The file of settings that a scenario extends: no scenario of its own."""
    named = re.search(r"^extends: (\S+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return (file.parent / named.group(1)).resolve() if named else None


FILES = sorted(set(FOLDER.rglob("*.yaml")) - NO_SCENARIO - set(map(shared, FOLDER.rglob("*.yaml"))))
SHORT = ("run.steps=2", "run.warmup_steps=0", "run.replications=1", "trainer.updates_per_step=1")


def arms() -> Iterator[tuple[Path, str | None]]:
    """Every arm of every file."""
    for file in FILES:
        yield from ((file, arm) for arm in load(file).resolve_all())


def name_of(value: object) -> str:
    """How a case is called."""
    return str(value.relative_to(FOLDER)) if isinstance(value, Path) else str(value)


def test_there_are_scenarios() -> None:
    assert FOLDER / "quickstart.yaml" in FILES


@pytest.mark.parametrize(("file", "arm"), [*arms()], ids=name_of)
def test_a_shipped_scenario_is_planned_as_it_stands(file: Path, arm: str | None) -> None:
    document = load(file)
    try:
        resolve(document.resolve(arm))
    except ResolveError as error:
        pytest.fail(str(document.scenario_error(error.errors, arm)))


@pytest.mark.parametrize(("file", "arm"), [*arms()], ids=name_of)
def test_a_shipped_scenario_runs_when_shortened(file: Path, arm: str | None) -> None:
    whole = load(file).resolve(arm)
    size = min(16, whole.workload.prompts_per_step)
    members = min(8 if whole.learning else 2, whole.workload.group_size)
    smaller = (f"workload.prompts_per_step={size}", f"workload.group_size={members}")
    log = simulate(resolve(load(file, sets=(*SHORT, *smaller)).resolve(arm))).log
    assert len(log.iterations) == 2
    assert sum(row.tokens for row in log.final) + log.undelivered_tokens == log.generated_tokens > 0
