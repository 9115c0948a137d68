"""Python files as the keyword arguments of a framework's classes; the file is parsed and never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlsim.core.errors import ScenarioError
from rlsim.frameworks.files import Config
from rlsim.frameworks.mapping import PROGRAM


def read_calls(path: Path, names: tuple[str, ...]) -> Config:
    """What the calls of the classes ``names`` in a file say; of a name, the value that was last given to it.

    Raises ScenarioError for a file that is not Python or calls none of them.
    """
    from rlsim.scenario.reader import read

    try:
        tree = ast.parse(read(str(path)), str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ScenarioError([f"{path}: not valid Python: {error}"]) from None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) in names]
    if not calls:
        raise ScenarioError([f"{path}: found no call of {', '.join(names)}; allowed: their keyword arguments"])
    values = dict(_assigned(tree)) | dict(_options(tree))
    config = Config(str(path))
    for call in calls:
        config.flat[PROGRAM] = _called(call)
        for keyword in call.keywords:
            _put(keyword, values, config)
    return config


def _called(call: ast.Call) -> str:
    """The last component of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _assigned(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _options(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Defaults of the file's own options, by the text ``args.name`` that stands for them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == "add_argument" and node.args:
            name = ast.unparse(node.args[-1]).strip("'\"-").replace("-", "_")
            default = next((keyword.value for keyword in node.keywords if keyword.arg == "default"), None)
            if default is not None:
                yield f"args.{name}", default


def _put(keyword: ast.keyword, values: dict[str, ast.expr], config: Config) -> None:
    value = keyword.value
    if keyword.arg is None or (isinstance(value, ast.Call) and keyword.arg == "args"):
        return
    value = values.get(ast.unparse(value), value)
    config.where[keyword.arg] = f"{config.file}:{keyword.value.lineno}"
    try:
        config.flat[keyword.arg] = _literal(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        config.unresolved[keyword.arg] = f"`{ast.unparse(keyword.value)}`"


def _literal(value: ast.expr) -> Any:
    """A literal, or the checkpoint that ``from_pretrained`` loads."""
    if isinstance(value, ast.Call) and _called(value) == "from_pretrained" and value.args:
        value = value.args[0]
    return ast.literal_eval(value)
