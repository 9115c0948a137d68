"""What ``rlsim run --out`` and ``rlsim compare --out`` left in a directory, read back.

Every file is somebody's: sizes are limited, shapes are checked, nothing in them is executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError, unknown
from rlsim.resolve import Source
from rlsim.results.metrics import Metrics
from rlsim.results.statistics import Estimate, interval
from rlsim.results.store import SCENARIO
from rlsim.scenario.schema import Scenario
from rlsim.studies.compare import Shift, arm_folder
from rlsim.studies.save import COMPARISON, PROVENANCE

MAX_BYTES = 64 * 1024**2
ALLOWED = "what --out of rlsim run or rlsim compare wrote"

Flat = Mapping[str, int | float | bool | str]
"""Metrics of a replication, as ``Metrics.as_dict`` names them."""


@dataclass(frozen=True, slots=True)
class SavedArm:
    """An arm of a saved comparison."""

    name: str
    folder: Path
    metrics: tuple[Flat, ...]
    """One a replication."""
    scenario: Scenario
    scenario_text: str
    verdict: str
    sources: tuple[Source, ...]

    def values(self, metric: str) -> list[float]:
        """The metric of every replication."""
        return [float(run[metric]) for run in self.metrics]

    def estimate(self, metric: str) -> Estimate:
        """Mean and interval over replications."""
        return interval(self.values(metric), self.scenario.run.confidence)

    def mean(self, metric: str) -> float:
        """Mean over replications; 0 where no replication has the metric."""
        return sum(float(run.get(metric, 0.0)) for run in self.metrics) / len(self.metrics)

    @property
    def estimated(self) -> list[str]:
        """The costs that are estimates."""
        return [source.what for source in self.sources if source.estimate]

    @property
    def replication(self) -> Path:
        """The directory of its first replication."""
        return self.folder / f"replication-{int(self.metrics[0]['replication'])}"


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved comparison, or one arm of it."""

    directory: Path
    name: str
    rlsim: str
    arms: tuple[SavedArm, ...]
    shifts: tuple[Shift, ...]
    provenance: Mapping[str, Any]
    """Command and versions; empty where an older rlsim wrote the directory."""

    @property
    def confidence(self) -> float:
        """Level of its intervals."""
        return self.arms[0].scenario.run.confidence


def read_saved(directory: Path) -> Saved:
    """A directory of ``--out``, an arm's folder in it or the directory of a replication: the last two give the arm.

    Raises ``ParameterError`` with the file for what is not there or is not what rlsim writes, ``ScenarioError`` for
    a ``scenario.yaml`` that this rlsim refuses.
    """
    path = directory.resolve()
    root = next(
        (folder for folder in (directory, path.parent, path.parent.parent) if (folder / COMPARISON).is_file()), None
    )
    if root is None:
        raise ParameterError(str(directory), f"no {COMPARISON} there or above it", ALLOWED)
    whole, provenance = _json(root / COMPARISON), root / PROVENANCE
    try:
        arms = tuple(_arm(root, name, section) for name, section in whole["arms"].items())
        if not arms:
            raise ValueError("no arms")
        name, version = str(whole["name"]), str(whole["rlsim"])
        shifts = tuple(
            Shift(
                str(shift["arm"]),
                str(shift["key"]),
                float(shift["value"]),
                str(shift.get("label", f"{shift['value']:g}")),
                str(shift["reason"]),
                float(shift["change"]),
            )
            for shift in whole["sensitivity"]
        )
        saved = Saved(root, name, version, arms, shifts, _json(provenance) if provenance.is_file() else {})
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        if isinstance(error, ParameterError):
            raise
        raise ParameterError(str(root / COMPARISON), f"{type(error).__name__}: {error}", ALLOWED) from None
    return saved if root == directory else _of_arm(saved, directory)


def _of_arm(saved: Saved, directory: Path) -> Saved:
    """What is saved of the one arm whose folder, or whose replication's, the directory is."""
    names = {path.name for path in (directory.resolve(), directory.resolve().parent)}
    arm = next((arm for arm in saved.arms if arm.folder.name in names), None)
    if arm is None:
        raise unknown(str(directory), directory.name, [arm.folder.name for arm in saved.arms])
    shifts = tuple(shift for shift in saved.shifts if shift.arm == arm.name)
    return replace(saved, directory=directory, name=f"{saved.name}: {arm.name}", arms=(arm,), shifts=shifts)


def _arm(root: Path, name: str, section: Mapping[str, Any]) -> SavedArm:
    from rlsim.scenario.document import load

    folder = root / arm_folder(name)
    path = folder / SCENARIO
    scenario = load(str(path)).resolve()
    sources = tuple(Source(str(s["what"]), str(s["text"]), bool(s["estimate"])) for s in section["sources"])
    metrics = _flat(section["replications"])
    return SavedArm(name, folder, metrics, scenario, _text(path), str(section["verdict"]), sources)


def _flat(runs: Sequence[Mapping[str, Any]]) -> tuple[Flat, ...]:
    """Metrics of replications: all that rlsim knows, numbers where it has numbers."""
    if not runs:
        raise ValueError("an arm without replications")
    for run in runs:
        for name, kind in _scalars():
            if not isinstance(run[name], kind):
                raise ValueError(f"{run[name]!r} as {name}")
        bad = next((value for value in run.values() if not isinstance(value, int | float | str)), None)
        if bad is not None:
            raise ValueError(f"{bad!r} as a metric")
    return tuple(dict(run) for run in runs)


def _scalars() -> Iterator[tuple[str, Any]]:
    kinds = {"int": int, "float": int | float, "bool": bool, "str": str}
    return ((field.name, kinds[str(field.type)]) for field in fields(Metrics) if str(field.type) in kinds)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise ParameterError(str(path), f"no JSON ({error})", ALLOWED) from None
    if not isinstance(content, dict):
        raise ParameterError(str(path), type(content).__name__, ALLOWED)
    return content


def _text(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ParameterError(str(path), f"more than {MAX_BYTES} bytes", ALLOWED)
        return data.decode("utf-8")
    except OSError as error:
        raise ParameterError(str(path), error.strerror, ALLOWED) from None
