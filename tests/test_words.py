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
MOST = {"empty": 4, "luck": 0, "law": 143}
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


def undocumented() -> list[str]:
    """Public methods without a docstring that no protocol of the packages documents under their name."""
    classes = [
        (path, node)
        for path in (*(ROOT / "rlsim").rglob("*.py"), *(ROOT / "calibration").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    methods = [
        (path, owner, method)
        for path, owner in classes
        for method in owner.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_")
    ]
    protocols = {owner for _, owner in classes if any(ast.unparse(base) == "Protocol" for base in owner.bases)}
    documented = {method.name for _, owner, method in methods if owner in protocols and ast.get_docstring(method)}
    return [
        f"{path.name}: {owner.name}.{method.name}"
        for path, owner, method in methods
        if not ast.get_docstring(method)
        and method.name not in documented
        and not owner.name.startswith("_")
        and not any("overload" in ast.unparse(decorator) for decorator in method.decorator_list)
    ]


def test_every_public_method_is_documented_where_it_stands_or_in_a_protocol() -> None:
    assert undocumented() == []


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
