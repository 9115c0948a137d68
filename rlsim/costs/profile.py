"""Profiles: calibrated step laws on disk, with where they came from and how far they are off.

A profile is one JSON object, ``schema_version`` 1. Shipped ones lie in the folder ``calibration/catalog``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from rlsim.core.errors import ParameterError, unknown
from rlsim.costs.fields import Fields, read_json_object
from rlsim.costs.provenance import KINDS, Kind, Provenance
from rlsim.costs.steplaw import StepLaw

SCHEMA_VERSION = 1
LIMIT_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class HoldOutError:
    """Absolute relative errors of the law on points it was not fitted to."""

    median: float
    p95: float
    worst: float
    where: str
    """The point of the worst error."""
    points: int = 0

    def __str__(self) -> str:
        return f"median {self.median:.1%}, p95 {self.p95:.1%}, worst {self.worst:.1%} at {self.where}"


@dataclass(frozen=True, slots=True)
class Profile:
    """A step law of one model on one GPU type, sharding and engine."""

    name: str
    model: str
    device: str
    tensor_parallel: int
    expert_parallel: int
    engine: str
    engine_version: str
    law: StepLaw
    hold_out: HoldOutError
    hold_out_by_kind: Mapping[str, HoldOutError] = field(default_factory=dict)
    """Keys ``decode``, ``prefill``, ``mixed``, where there are such points."""
    kv_capacity_tokens: int | None = None
    """Of one replica at 0.9 of the GPU memory, where it is known."""
    weight_bytes: float | None = None
    notes: str = ""

    @property
    def provenance(self) -> Provenance:
        """Where the coefficients came from."""
        return self.law.provenance

    def mismatches(self, model: str, device: str, tensor_parallel: int, expert_parallel: int = 1) -> list[str]:
        """What of this profile differs from what it is asked to stand for, one phrase each."""
        asked = {
            "model": model,
            "device": device,
            "tensor_parallel": tensor_parallel,
            "expert_parallel": expert_parallel,
        }
        mine = {key: getattr(self, key) for key in asked}
        return [f"{key} {mine[key]} is not {asked[key]}" for key in asked if mine[key] != asked[key]]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {
            "schema_version": SCHEMA_VERSION,
            **plain,
            "provenance": asdict(self.provenance),
            "hold_out": asdict(self.hold_out),
            "hold_out_by_kind": {kind: asdict(error) for kind, error in self.hold_out_by_kind.items()},
            "law": self.law.as_dict(),
        }

    def write(self, file: Path) -> None:
        """Write the JSON object; a reader sees the old file or the whole new one."""
        part = file.with_name(f".{file.name}.{os.getpid()}.part")
        part.write_text(json.dumps(self.as_dict(), indent=1) + "\n", encoding="utf-8")
        part.replace(file)


_PLAIN = (
    "name",
    "model",
    "device",
    "tensor_parallel",
    "expert_parallel",
    "engine",
    "engine_version",
    "kv_capacity_tokens",
    "weight_bytes",
    "notes",
)


def list_profiles() -> list[str]:
    """Names of the shipped profiles, sorted."""
    return sorted(entry.name[:-5] for entry in _catalog().iterdir() if entry.name.endswith(".json"))


def load_profile(name_or_path: str | Path, path: str = "rollout.step_time.profile") -> Profile:
    """A shipped profile by name, or the profile in a JSON file.

    Raises ``ParameterError`` at ``path`` for an unknown name, with the nearest spelling, and for a file
    that is too large, not JSON, of another schema version or with a missing or impossible key, which is
    named.
    """
    text = str(name_or_path)
    if text.endswith(".json") or "/" in text:
        return _read(Path(text), path)
    if text not in list_profiles():
        raise unknown(path, text, list_profiles())
    return _read(_catalog() / f"{text}.json", path)


def _catalog() -> Path:
    return Path(str(files("calibration") / "catalog"))


def _read(file: Path, path: str) -> Profile:
    top = Fields(read_json_object(file, LIMIT_BYTES, path), str(file), path)
    if top.integer("schema_version") != SCHEMA_VERSION:
        raise top.fault("schema_version", str(SCHEMA_VERSION))
    try:
        return _profile(top)
    except ParameterError as error:
        if error.path == path:
            raise
        raise ParameterError(path, f"{file}: {error.path}: {error.found!r}", error.allowed) from error


def _profile(top: Fields) -> Profile:
    by_kind = top.child("hold_out_by_kind") if "hold_out_by_kind" in top.tree else None
    return Profile(
        name=top.text("name"),
        model=top.text("model"),
        device=top.text("device"),
        tensor_parallel=top.integer("tensor_parallel"),
        expert_parallel=top.integer("expert_parallel", default=1),
        engine=top.text("engine"),
        engine_version=top.text("engine_version"),
        law=StepLaw.from_fields(top.child("law"), _provenance(top.child("provenance"))),
        hold_out=_hold_out(top.child("hold_out")),
        hold_out_by_kind={kind: _hold_out(by_kind.child(kind)) for kind in by_kind.tree} if by_kind else {},
        kv_capacity_tokens=_optional(top, "kv_capacity_tokens", Fields.integer),
        weight_bytes=_optional(top, "weight_bytes", Fields.number),
        notes=top.text("notes", default=""),
    )


def _optional(top: Fields, key: str, read: Any) -> Any:
    return None if top.tree.get(key) is None else read(top, key)


def _provenance(given: Fields) -> Provenance:
    if given.text("kind") not in KINDS:
        raise given.fault("kind", ", ".join(KINDS))
    return Provenance(
        kind=cast(Kind, given.text("kind")),
        source=given.text("source"),
        date=given.text("date", default=""),
        licence=given.text("licence", default=""),
    )


def _hold_out(given: Fields) -> HoldOutError:
    return HoldOutError(
        median=given.number("median"),
        p95=given.number("p95"),
        worst=given.number("worst"),
        where=given.text("where"),
        points=given.integer("points", least=0, default=0),
    )
