"""The table of coverage names every method of groups b, c and d, and nothing that is not there."""

from __future__ import annotations

import inspect
import re

import pytest
from pydantic import BaseModel

from evidence.findings import load, markdown
from rlsim.learning.staleness import METHODS
from rlsim.policies.registry import parts_of
from rlsim.presets import preset_names
from rlsim.scenario.schema import Scenario

ROW = re.compile(r"^\| *(\d*) \| (.+?) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
ROWS = ROW.findall(markdown(load("coverage")))
STALENESS = {23, 42, 51, 53, 57, 60, 73, 80, 108, 133, 146, 168, 202, 230, 249}
ALLOCATION = {
    *(1, 2, 3, 4, 9, 11, 13, 21, 24, 25, 28, 33, 38, 40, 43, 48, 55, 56, 84, 85, 88, 96, 98, 99, 109, 126, 128, 129),
    *(134, 137, 138, 140, 141, 147, 149, 158, 167, 174, 176, 180, 197, 219, 244, 257, 258, 275, 280, 289, 290, 307),
}
REUSE = {16, 39, 65, 105, 143, 240, 266, 274}
NAMES = {"part": set(parts_of("allocation")), "preset": set(preset_names()), "method": set(METHODS)}


def named(cell: str) -> list[tuple[str, str]]:
    """Kind and name of what a cell says to exist."""
    there = re.sub(r"not yet.*?(;|$)", "", cell)
    return re.findall(r"(part|preset|method|key) `([^`]+)`", there)


def test_every_method_has_a_row() -> None:
    assert (len(STALENESS), len(ALLOCATION), len(REUSE)) == (15, 50, 8)
    numbers = [int(number) for number, *_ in ROWS if number]
    assert len(numbers) == len(set(numbers))
    assert set(numbers) >= STALENESS | ALLOCATION | REUSE


@pytest.mark.parametrize(("method", "cell", "rule"), [row[1:] for row in ROWS], ids=[row[1] for row in ROWS])
def test_a_row_names_what_there_is_or_says_why_not(method: str, cell: str, rule: str) -> None:
    found = named(cell)
    assert found or cell.startswith(("not yet: ", "nothing to express: "))
    assert bool(rule) == bool(found)
    for kind, name in found:
        assert is_key(name) if kind == "key" else name in NAMES[kind], (kind, name)


@pytest.mark.parametrize("cell", [row[2] for row in ROWS if "not yet" in row[2]])
def test_what_is_called_missing_is_missing(cell: str) -> None:
    for kind, name in re.findall(r"(part|preset|method) `([^`]+)`", "".join(re.findall(r"not yet.*?(?:;|$)", cell))):
        assert name not in NAMES[kind], f"{kind} {name} is there"


def is_key(path: str) -> bool:
    """Whether a scenario has this key."""
    model: type[BaseModel] | None = Scenario
    for key in path.split("."):
        if model is None or key not in model.model_fields:
            return False
        kinds = re.findall(r"[\w.]+", str(model.model_fields[key].annotation))
        model = next((cls for cls in subclasses(BaseModel) if f"{cls.__module__}.{cls.__name__}" in kinds), None)
    return True


def subclasses(cls: type[BaseModel]) -> list[type[BaseModel]]:
    """All of them, at any depth."""
    return [found for child in cls.__subclasses__() for found in (child, *subclasses(child))]


def test_a_key_that_is_not_there_is_seen() -> None:
    assert is_key("trainer.epochs")
    assert not is_key("trainer.epoch")
    assert not is_key("learning.effects.baseline")
    assert named("part `a`; not yet: part `b`; key `c.d`") == [("part", "a"), ("key", "c.d")]


@pytest.mark.parametrize("name", sorted(NAMES["part"]))
def test_a_part_that_calls_itself_a_stand_in_is_called_one(name: str) -> None:
    rules = [rule for _, _, cell, rule in ROWS if named(cell) == [("part", name)]]
    stand_in = (inspect.getdoc(parts_of("allocation")[name]) or "").startswith("Stand-in")
    assert not stand_in or all("stand-in" in rule or "not its rule" in rule for rule in rules)
