"""Raw samples on disk, appended line by line, so that an interrupted calibration goes on where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibration.measure.measurements import Visit
from rlsim.core.errors import ParameterError

LIMIT_BYTES = 200_000_000


def beside(profile: Path) -> Path:
    """The file of the raw samples of a profile."""
    return profile.with_name(profile.name + ".samples.jsonl")


class LineFile:
    """JSON objects, a line each, under a header that says of what they are.

    A line is one write, so a crash loses at most the last one; a torn last line is dropped. Raises
    ``ParameterError`` when the file is of something else: samples of two set-ups are never fitted together.
    """

    def __init__(self, file: Path, header: Mapping[str, Any]) -> None:
        self.file = file
        self.lines: list[dict[str, Any]] = []
        """What was there when it was opened, without the header."""
        if file.exists():
            whole = objects(file)
            self._check_header(whole[0].get("header") if whole else None, json.loads(json.dumps(header)))
            self.lines = whole[1:]
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            self.add({"header": header})

    def add(self, line: Mapping[str, Any]) -> None:
        """Append it, at once."""
        data = (json.dumps(line) + "\n").encode()
        handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)

    def _check_header(self, found: Any, header: Mapping[str, Any]) -> None:
        if not isinstance(found, dict):
            raise ParameterError("--out", str(self.file), "raw samples that begin with a header, or no such file")
        differs = [
            f"{key} {found.get(key)!r} is not {header.get(key)!r}"
            for key in sorted(found.keys() | header.keys())
            if found.get(key) != header.get(key)
        ]
        if differs:
            found_there = f"{self.file}: {'; '.join(differs)}"
            raise ParameterError("--out", found_there, "samples of the same set-up, another --out, or no such file")


def objects(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; a torn last one is cut off, on disk too."""
    if file.stat().st_size > LIMIT_BYTES:
        raise ParameterError("--out", str(file), f"at most {LIMIT_BYTES} bytes of raw samples")
    whole, _, torn = file.read_bytes().rpartition(b"\n")
    if torn:
        os.truncate(file, len(whole) + 1 if whole else 0)
    return [_object(file, number, line) for number, line in enumerate(whole.splitlines(), start=1)]


def _object(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(line)
    except ValueError as error:
        raise ParameterError("--out", f"{file}:{number}", "a JSON object a line") from error
    if not isinstance(tree, dict):
        raise ParameterError("--out", f"{file}:{number}", "a JSON object a line")
    return tree


class SampleStore:
    """Visits and other records of an engine's calibration, kept in a :class:`LineFile`."""

    def __init__(self, file: Path, header: Mapping[str, Any]) -> None:
        self.visits: list[Visit] = []
        self.records: list[dict[str, Any]] = []
        """Everything that is no visit, each with the key ``record``."""
        self._lines = LineFile(file, header)
        for number, line in enumerate(self._lines.lines, start=2):
            self._take(number, line)

    @property
    def file(self) -> Path:
        """Where they are."""
        return self._lines.file

    @property
    def used_seconds(self) -> float:
        """Of the budget, by all runs so far."""
        used = [visit.used_seconds for visit in self.visits] + [float(r.get("used_seconds", 0.0)) for r in self.records]
        return max(used, default=0.0)

    @property
    def next_number(self) -> int:
        """Of the pass to begin: an unfinished one counts as done."""
        return max((visit.number for visit in self.visits), default=-1) + 1

    def add_visit(self, visit: Visit) -> None:
        """Keep a visit."""
        self.visits.append(visit)
        self._lines.add(visit.as_dict())

    def add_record(self, name: str, /, **values: Any) -> None:
        """Keep something else that was measured."""
        self.records.append({"record": name, **values})
        self._lines.add(self.records[-1])

    def recorded(self, name: str) -> list[dict[str, Any]]:
        """Records of a name."""
        return [record for record in self.records if record["record"] == name]

    def _take(self, number: int, line: dict[str, Any]) -> None:
        try:
            if "record" in line:
                self.records.append(line)
            else:
                self.visits.append(Visit.from_dict(line))
        except (KeyError, TypeError) as error:
            raise ParameterError("--out", f"{self.file}:{number}", "a visit or a record") from error
