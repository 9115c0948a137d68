"""Identity of a run: a hash of everything that its record depends on.

Titles, published numbers and the like are no part of it, nor is the number of replications: a study that is given more
of them keeps those it has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import rlsim
from rlsim.scenario.schema import Scenario

UNREAD = frozenset(
    {"name", "description", "published", "sensitivity", "headline", "live", "search", "framework", "entry"}
)
"""Sections that a simulated run does not read."""
_UNREAD_OF_RUN = frozenset({"replications", "confidence"})
_MAKERS = (
    "core",
    "engine",
    "scenario",
    "policies",
    "presets",
    "costs",
    "workload",
    "learning",
    "controller",
    "resolve",
    "executor",
    "sim",
    "results",
    "studies/runs",
)
"""Folders of the code and data that runs and their records are made from."""
_FILES = (".py", ".yaml", ".json")
_USER_FILES = (".json", ".csv", ".txt")
Measures = frozenset[str]
METRICS_ALONE: Measures = frozenset()
ALL_MEASURES: Measures = frozenset({"latency", "progress", "allocation"})
"""What can be read off a run beside its metrics."""
LETTERS = 32


def identity(scenario: Scenario, measures: Measures = METRICS_ALONE) -> str:
    """Hash of a scenario's runs, with the code and the files that they are made from, whatever their replication.

    Latency is measured against the objectives of the scenario's headline: they count where it is among ``measures``.
    """
    tree = scenario.model_dump(mode="json", exclude=set(UNREAD))
    tree["run"] = {key: value for key, value in tree["run"].items() if key not in _UNREAD_OF_RUN}
    parts: list[Any] = [tree, sorted(_outside(tree)), code_version(), sorted(measures)]
    if "latency" in measures and scenario.headline is not None and scenario.headline.slo is not None:
        parts.append(scenario.headline.slo.model_dump(mode="json"))
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LETTERS]


@cache
def code_version() -> str:
    """The version of rlsim and a digest of the code and data that runs are made from: a changed checkout is another."""
    root = Path(rlsim.__file__).parent
    digest = hashlib.sha256()
    for folder in (root / name for name in _MAKERS):
        for path in sorted(path for path in folder.rglob("*") if path.suffix in _FILES):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{rlsim.__version__}+{digest.hexdigest()[:12]}"


def _outside(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Names and digests of the user's own files and modules that the scenario names."""
    if isinstance(value, dict):
        for inner, part in value.items():
            yield from _outside(part, inner)
    elif isinstance(value, list):
        for part in value:
            yield from _outside(part, key)
    elif isinstance(value, str) and value.endswith(_USER_FILES):
        yield value, _digest(value)
    elif isinstance(value, str) and key == "use" and ":" in value:
        try:
            spec = find_spec(value.partition(":")[0])
        except (ImportError, ValueError):
            spec = None
        yield value, _digest(spec.origin) if spec is not None and spec.origin else ""


@lru_cache(maxsize=256)
def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
