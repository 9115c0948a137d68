"""Shell scripts read as lists of arguments: assignments, ``--key value``, ``key=value`` and the program started."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from rlsim.core.errors import ScenarioError
from rlsim.frameworks.mapping import PROGRAM

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_HYDRA = re.compile(r"\+{0,2}([A-Za-z_][\w@/.-]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_ARITHMETIC = re.compile(r"\$\(\(([\w\s+*/()-]{1,200}?)\)\)")
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
}
LARGEST = 2**63
MOST_ROUNDS = 20


def read_script(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Values by key, and the texts of those that only a shell could make; the last value of a key counts."""
    variables: dict[str, str] = {}
    arguments: dict[str, str | bool] = {}
    for words in _lines(text):
        for key, value in _settings(words, variables):
            arguments[key] = value if isinstance(value, bool) else _expanded(value, variables)
    unresolved = {key: value for key, value in arguments.items() if isinstance(value, str) and set("$`") & set(value)}
    return {key: _value(value) for key, value in arguments.items() if key not in unresolved}, unresolved


def _lines(text: str) -> Iterator[list[str]]:
    """The words of each logical line; a line whose quotes do not close says nothing to us."""
    for line in re.sub(r"\\\r?\n", " ", _uncommented(text)).splitlines():
        try:
            yield shlex.split(_ARITHMETIC.sub(_without_blanks, line), comments=True)
        except ValueError:
            continue


def _without_blanks(match: re.Match[str]) -> str:
    return re.sub(r"\s", "", match[0])


def _uncommented(text: str) -> str:
    """Without comment lines: one between continued lines would otherwise end the command."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _settings(words: list[str], variables: dict[str, str]) -> Iterator[tuple[str, str | bool]]:
    """Keys and values of one line; assignments before the command go to ``variables``."""
    rest = _command(words, variables)
    while rest:
        word = rest.pop(0)
        flag, setting = _FLAG.fullmatch(word), _HYDRA.fullmatch(word)
        if flag:
            takes = flag[2] is None and rest and not _starts_anew(rest[0])
            yield flag[1], flag[2] if flag[2] is not None else rest.pop(0) if takes else True
        elif word == "-m" and rest:
            yield PROGRAM, rest.pop(0)
        elif word.endswith(".py"):
            yield PROGRAM, word.rpartition("/")[2]
        elif setting:
            yield setting[1], setting[2]


def _starts_anew(word: str) -> bool:
    """Whether a word cannot be the value of the flag before it."""
    return word.startswith("--") or word in ("-m", ")", "\\")


def _command(words: list[str], variables: dict[str, str]) -> list[str]:
    """What follows the assignments at the start of a line."""
    rest = [word for word in words if word != "export"] if words[:1] == ["export"] else list(words)
    while rest and (match := _ASSIGNMENT.fullmatch(rest[0])):
        rest.pop(0)
        variables[match[1]] = _expanded(match[2], variables)
    return rest


def _expanded(text: str, variables: dict[str, str]) -> str:
    """References and whole-number arithmetic worked out, as far as the script itself says."""
    for _ in range(MOST_ROUNDS):
        known = _REFERENCE.sub(lambda match: _looked_up(match, variables), text)
        expanded = _ARITHMETIC.sub(lambda match: _worked_out(match, variables), known)
        if expanded == text or len(expanded) > 10_000:
            break
        text = expanded
    return text


def _looked_up(match: re.Match[str], variables: dict[str, str]) -> str:
    name = match[1] or match[2]
    return variables.get(name, match[3] if match[3] is not None else match[0])


def _worked_out(match: re.Match[str], variables: dict[str, str]) -> str:
    try:
        return str(_number(ast.parse(match[1].strip(), mode="eval").body, variables))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return match[0]


def _number(node: ast.expr, variables: dict[str, str]) -> int:
    if isinstance(node, ast.Name):
        return int(variables.get(node.id, ""))
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value < LARGEST:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        result = _OPERATORS[type(node.op)](_number(node.left, variables), _number(node.right, variables))
        if abs(result) < LARGEST:
            return result
    raise ValueError("whole numbers with + - * /")


def _value(text: str | bool) -> Any:
    """The value that the framework's own parser would make of a word."""
    from rlsim.scenario.reader import parse
    from rlsim.scenario.tree import plain

    if isinstance(text, bool):
        return text
    try:
        root, faults = parse(text, "argument", numbered=False)
    except ScenarioError:
        return text
    return text if faults else plain(root)
