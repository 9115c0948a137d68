"""Policies and controller decide on events alone: what their source may import and call."""

from __future__ import annotations

import ast
import inspect
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

import pytest

import rlsim
from rlsim.core.view import Pool, RequestClass, RunSizes
from rlsim.policies import protocols
from rlsim.policies.registry import CHOICES, parts_of

PACKAGE = Path(rlsim.__file__).parent
PLACES = ("core", "engine", "policies", "controller")
DECIDING = [path for place in PLACES for path in sorted((PACKAGE / place).rglob("*.py"))]
IMPURE = {"simpy", "time", "datetime", "random", "secrets", "uuid", "asyncio", "threading", "socket", "torch", "vllm"}
NUMPY = {"core/streams.py", "workload/draws.py", "engine/steptime.py"}
CLOCKS = {"time", "perf_counter", "monotonic", "process_time", "sleep", "now", "utcnow", "today", "urandom"}


def imports(tree: ast.AST) -> set[str]:
    """Top-level modules imported anywhere, functions included."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def called(tree: ast.AST) -> set[str]:
    """Names of everything called, attributes by their last name."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            names.add(node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
    return names


def fault(source: str, numpy: bool = False) -> set[str]:
    """What a deciding module may not do and does."""
    tree = ast.parse(source)
    return (imports(tree) & (IMPURE if numpy else IMPURE | {"numpy"})) | (called(tree) & CLOCKS)


@pytest.mark.parametrize("path", DECIDING, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_decides_knows_no_clock_no_chance_and_no_io(path: Path) -> None:
    assert not fault(path.read_text(encoding="utf-8"), str(path.relative_to(PACKAGE)) in NUMPY)


@pytest.mark.parametrize(
    "source",
    [
        "import simpy",
        "from time import perf_counter",
        "def f():\n    import random",
        "view.clock.now()",
        "import numpy as np",
    ],
)
def test_the_check_sees_what_it_looks_for(source: str) -> None:
    assert fault(source)


def test_policies_import_only_the_core_and_each_other() -> None:
    for path in sorted((PACKAGE / "policies").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        ours = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        assert all(name.startswith(("rlsim.core", "rlsim.policies")) for name in ours if name.startswith("rlsim")), path


@pytest.mark.parametrize(("choice", "name"), [(choice, name) for choice in CHOICES for name in parts_of(choice)])
def test_a_part_is_a_frozen_dataclass_with_what_its_protocol_asks(choice: str, name: str) -> None:
    cls = parts_of(choice)[name]
    assert is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    required = {field.name: 1 for field in fields(cls) if field.default is field.default_factory is MISSING}
    given = {"mode": "drain"} if "mode" in required else required
    pools = (Pool("prefill", 0, 1, 8), Pool("decode", 1, 1, 8))
    group_size = 1 if name == "single" else 8
    started = cls(**given).start(
        RunSizes(4, group_size, 2, 8, pools, (RequestClass("decode"),), lent_replicas=range(1, 2))
    )
    protocol = protocols.PROTOCOLS[choice]
    assert all(hasattr(started, member) for member in vars(protocol) if not member.startswith("_"))
    assert inspect.getdoc(cls)
