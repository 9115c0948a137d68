"""Settings that several scenarios share: ``extends: FILE`` takes what the scenario leaves unsaid from another file.

The file is looked for beside the one that names it. It gives defaults: whatever the scenario, its arm or ``--set`` says
wins, key by key.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache

from rlsim.core.errors import ScenarioError
from rlsim.scenario.reader import parse_file
from rlsim.scenario.tree import Node, value_fault, without

KEY = "extends"


def extended(root: Node, file: str) -> Node:
    """The tree of ``file`` with what it extends; ``ScenarioError`` when that cannot be read or extends another."""
    named = root.children.get(KEY)
    if named is None:
        return root
    if not isinstance(named.value, str):
        raise ScenarioError([str(value_fault(named, "found no text; allowed: the path of a scenario file"))])
    path = os.path.join(os.path.dirname(file), named.value)
    shared = _read(path, os.stat(path).st_mtime_ns if os.path.exists(path) else 0)
    if KEY in shared.children:
        raise ScenarioError([str(value_fault(named, f"found a file with {KEY}; allowed: one that extends no other"))])
    return _filled(without(root, KEY), shared)


@lru_cache(maxsize=32)
def _read(path: str, changed_ns: int) -> Node:
    root, faults = parse_file(path)
    if faults:
        raise ScenarioError(str(fault) for fault in faults)
    return root


def _filled(node: Node, defaults: Node) -> Node:
    """Keys that ``node`` lacks, from ``defaults``, at any depth."""
    if not (isinstance(node.value, dict) and isinstance(defaults.value, dict)):
        return node
    filled = dict(node.value)
    for key, child in defaults.value.items():
        filled[key] = _filled(filled[key], child) if key in filled else child
    return replace(node, value=filled)
