"""Words that name nothing do not come back: the counts below may fall, and not grow."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EMPTY = frozenset({"told", "made", "found", "given", "seen", "asked"})
"""Names of variables, parameters and attributes that say nothing of what they hold."""
MOST = {"empty": 820, "luck": 6, "law": 267}
"""What there is; a bar is lowered when there is less. Texts are not counted; fields ``law`` are users' keys."""


def names() -> Counter[str]:
    """Every identifier that the packages give: variables, parameters, attributes, functions, classes, modules."""
    found: Counter[str] = Counter()
    for path in (*(ROOT / "rlsim").rglob("*.py"), *(ROOT / "calibration").rglob("*.py")):
        found[path.stem] += 1
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found[node.id] += 1
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found[node.attr] += 1
            elif isinstance(node, ast.arg):
                found[node.arg] += 1
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[node.name] += 1
    return found


NAMES = names()


def has(word: str, name: str) -> bool:
    """Whether a word is a part of a name: ``draw_luck`` and ``StepLuck`` have luck, ``clucky`` has none."""
    return re.search(rf"(?:^|_|(?<=[a-z]))(?:{word}|{word.capitalize()})s?(?:$|_|(?=[A-Z0-9]))", name) is not None


def count(word: str) -> int:
    return sum(number for name, number in NAMES.items() if has(word, name))


def test_no_name_says_nothing() -> None:
    assert sum(NAMES[name] for name in EMPTY) <= MOST["empty"]


def test_random_draws_are_not_called_luck() -> None:
    assert count("luck") <= MOST["luck"]


def test_distributions_and_step_time_models_are_not_called_laws() -> None:
    assert count("law") <= MOST["law"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("luck", True),
        ("draw_luck", True),
        ("StepLuck", True),
        ("luck_ticks", True),
        ("clucky", False),
        ("lucky", False),
    ],
)
def test_a_word_is_found_as_a_part_of_a_name(name: str, expected: bool) -> None:
    assert has("luck", name) is expected
