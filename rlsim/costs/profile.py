"""Profiles: calibrated costs on disk, with where they came from and how far they are off.

A profile is one JSON object, ``schema_version`` 2: who it is of (``model``, ``device``, parallelism, engine), two knobs
for what a framework adds (``scale``, ``offset_seconds``) and sections, each optional and with its own evidence:
``step`` (the law of an engine step), ``training``, ``transport`` by path, ``engine_times``. Shipped ones lie in the
folder ``rlsim/costs/data/profiles``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError, unknown
from rlsim.costs.evidence import Coefficient, Evidence, HoldOutError, Provenance
from rlsim.costs.fields import Fields, Number, Whole, non_negative, positive, read_json_object, record
from rlsim.costs.sections import ENGINE_TIMES, StepFit, TrainingFit, TransportPath
from rlsim.costs.step_model import StepTimeModel

SCHEMA_VERSION = 2
LIMIT_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class Profile:
    """Calibrated costs of one model on one GPU type, sharding and engine."""

    name: str
    model: str
    device: str
    tensor_parallel: Whole
    expert_parallel: Whole
    engine: str
    engine_version: str
    step: StepFit | None = None
    training: TrainingFit | None = None
    transport: Mapping[str, TransportPath] = field(default_factory=dict)
    """By path (``shared-memory``, ``gloo-broadcast``, ``filesystem`` ...)."""
    engine_times: Mapping[str, Coefficient] = field(default_factory=dict)
    """Times of an engine besides its steps; see :data:`rlsim.costs.sections.ENGINE_TIMES`."""
    scale: Number = 1.0
    offset_seconds: Number = 0.0
    """What a framework adds to every engine step: ``scale * fitted step + offset_seconds``. A scenario's
    ``rollout.step_time`` is applied after it (:meth:`StepTimeModel.calibrated`): scales multiply, and the scenario's
    scale also stretches this offset."""
    kv_capacity_tokens: Whole | None = None
    """Of one replica at 0.9 of the GPU memory, where it is known."""
    weight_bytes: Number | None = None
    notes: str = ""

    def __post_init__(self) -> None:
        positive("scale", self.scale)
        non_negative("offset_seconds", self.offset_seconds)
        for name in self.engine_times:
            if name not in ENGINE_TIMES:
                raise ParameterError("engine_times", name, f"{', '.join(ENGINE_TIMES)} (found {name!r})")

    @property
    def law(self) -> StepTimeModel:
        """The law of an engine step with the profile's own overheads. Raises ``ParameterError`` without one."""
        return self._step.law.calibrated(self.scale, self.offset_seconds)

    @property
    def hold_out(self) -> HoldOutError:
        """Errors of the law as fitted. Raises ``ParameterError`` without a law."""
        return self._step.evidence.hold_out

    @property
    def hold_out_by_kind(self) -> Mapping[str, HoldOutError]:
        """The same for ``decode``, ``prefill`` and ``mixed``, where there are such points."""
        return self._step.evidence.hold_out_by_kind

    @property
    def evidences(self) -> dict[str, Evidence]:
        """Of every section, by the section's name."""
        sections = {"step": self.step, "training": self.training}
        evidences = {name: section.evidence for name, section in sections.items() if section is not None}
        return evidences | {f"transport.{name}": path.evidence for name, path in self.transport.items()}

    @property
    def provenance(self) -> Provenance:
        """Where the law of an engine step came from."""
        return self._step.evidence.provenance

    @property
    def _step(self) -> StepFit:
        if self.step is None:
            allowed = "a profile with a step section (rlsim calibrate vllm, rlsim calibrate tables)"
            raise ParameterError("rollout.step_time.profile", self.name, allowed)
        return self.step

    def mismatches(self, model: str, device: str, tensor_parallel: int, expert_parallel: int = 1) -> list[str]:
        """What of this profile differs from what it is asked to stand for, one phrase each."""
        expected = {
            "model": model,
            "device": device,
            "tensor_parallel": tensor_parallel,
            "expert_parallel": expert_parallel,
        }
        mine = {key: getattr(self, key) for key in expected}
        return [f"{key} {mine[key]} is not {expected[key]}" for key in expected if mine[key] != expected[key]]

    def as_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "schema_version": SCHEMA_VERSION,
            **{name: getattr(self, name) for name in _PLAIN},
            "step": None if self.step is None else self.step.as_dict(),
            "training": None if self.training is None else asdict(self.training),
            "transport": {name: asdict(path) for name, path in self.transport.items()},
            "engine_times": {name: asdict(time) for name, time in self.engine_times.items()},
        }

    def write(self, file: Path) -> None:
        """Write the JSON object; a reader sees the old file or the whole new one."""
        part = file.with_name(f".{file.name}.{os.getpid()}.part")
        part.write_text(_json_lines(self.as_dict()) + "\n", encoding="utf-8")
        part.replace(file)


_PLAIN = (
    "name",
    "model",
    "device",
    "tensor_parallel",
    "expert_parallel",
    "engine",
    "engine_version",
    "scale",
    "offset_seconds",
    "kv_capacity_tokens",
    "weight_bytes",
    "notes",
)


def list_profiles() -> list[str]:
    """Names of the shipped profiles, sorted."""
    return sorted(entry.name[:-5] for entry in catalog_folder().iterdir() if entry.name.endswith(".json"))


def fitting_profile(model: str, device: str, tensor_parallel: int, expert_parallel: int) -> str | None:
    """The shipped profile of a catalogue model on a device under a split of one stage; None where there is none."""
    experts = f"_ep{expert_parallel}" if expert_parallel > 1 else ""
    name = f"{model}_{device}_tp{tensor_parallel}{experts}".lower()
    return name if name in list_profiles() else None


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
    return _read(catalog_folder() / f"{text}.json", path)


def catalog_folder() -> Path:
    """Where the shipped profiles lie."""
    return Path(str(files("rlsim.costs") / "data" / "profiles"))


def _read(file: Path, path: str) -> Profile:
    tree = read_json_object(file, LIMIT_BYTES, path)
    top = Fields(tree, str(file), path)
    if top.integer("schema_version") != SCHEMA_VERSION:
        raise top.fault("schema_version", f"{SCHEMA_VERSION} (make the profile again with rlsim calibrate)")
    step = tree.get("step")
    if isinstance(step, dict) and isinstance(step.get("law"), dict):
        law = Fields(step["law"], f"{file}: step: law", path)
        for knob in ("scale", "offset_seconds"):
            if knob in law.tree:
                raise law.fault(knob, "no such key here: it is one of the whole profile")
    profile = record(Profile, tree, str(file), path)
    if profile.step is None:
        return profile
    sourced = replace(profile.step.law, provenance=profile.step.evidence.provenance)
    return replace(profile, step=replace(profile.step, law=sourced))


def _json_lines(value: Any, indent: str = "") -> str:
    """JSON with an object's keys on lines of their own and lists of numbers on one."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, allow_nan=False)
    inner = indent + " "
    lines = [f"{inner}{json.dumps(key)}: {_json_lines(item, inner)}" for key, item in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
