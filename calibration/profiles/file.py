"""One profile file, filled section by section: what is written there stays, and must be of the same set-up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError
from rlsim.costs.profile import Profile, load_profile


@dataclass(frozen=True, slots=True)
class Subject:
    """Model, device and engine that a section describes; ``model`` is empty where it does not matter (transport)."""

    model: str
    device: str
    engine: str
    engine_version: str


def kept_beside(out: Path, subject: Subject) -> Profile | None:
    """The profile that is in ``out`` already.

    Raises ``ParameterError`` at ``out`` for one of another model or device, so that hours of measuring are not lost
    at the end.
    """
    if not out.exists():
        return None
    profile = load_profile(str(out), "out")
    for name in ("model", "device"):
        mine, theirs = getattr(subject, name), getattr(profile, name)
        if mine and theirs and mine != theirs:
            raise ParameterError("out", f"{out}: {name} {theirs}", f"a profile of {mine}, or a new file")
    return profile


def merged(out: Path, subject: Subject, **sections: Any) -> Profile:
    """What is in ``out`` with these sections new or replaced."""
    profile = kept_beside(out, subject)
    if profile is None:
        name = out.stem
        return Profile(name, subject.model, subject.device, 1, 1, subject.engine, subject.engine_version, **sections)
    if profile.transport and "transport" in sections:
        sections["transport"] = {**profile.transport, **sections["transport"]}
    return replace(profile, model=profile.model or subject.model, **sections)


def journal_file(out: Path, what: str) -> Path:
    """Where raw samples go while a calibration runs."""
    return out.with_suffix(f".{what}-samples.part.jsonl")
