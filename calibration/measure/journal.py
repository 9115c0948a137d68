"""Raw samples on disk, appended line by line, so that an interrupted calibration goes on where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic

from calibration.measure.measurements import MeasurementT
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
            first, *self.lines = objects(file) or [{}]
            stored, wanted = first.get("header"), json.loads(json.dumps(header))
            if not isinstance(stored, dict):
                raise ParameterError("--out", str(file), "raw samples that begin with a header, or no such file")
            differs = [
                f"{key} {stored.get(key)!r} is not {wanted.get(key)!r}"
                for key in sorted(stored.keys() | wanted.keys())
                if stored.get(key) != wanted.get(key)
            ]
            if differs:
                mismatch = f"{file}: {'; '.join(differs)}"
                raise ParameterError("--out", mismatch, "samples of the same set-up, another --out, or no such file")
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


def objects(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; a torn last one is cut off, on disk too."""
    if file.stat().st_size > LIMIT_BYTES:
        raise ParameterError("--out", str(file), f"at most {LIMIT_BYTES} bytes of raw samples")
    whole, _, torn = file.read_bytes().rpartition(b"\n")
    if torn:
        os.truncate(file, len(whole) + 1 if whole else 0)
    trees = []
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            trees.append(json.loads(line))
        except ValueError as error:
            raise ParameterError("--out", f"{file}:{number}", "a JSON object a line") from error
        if not isinstance(trees[-1], dict):
            raise ParameterError("--out", f"{file}:{number}", "a JSON object a line")
    return trees


def stored_header(file: Path) -> dict[str, Any] | None:
    """The header of a journal that is there already."""
    lines = objects(file) if file.exists() else []
    header = lines[0].get("header") if lines else None
    return header if isinstance(header, dict) else None


class MeasurementJournal(Generic[MeasurementT]):
    """Measurements of one kind and other records of a calibration, kept in a :class:`LineFile`."""

    def __init__(self, file: Path, header: Mapping[str, Any], kind: type[MeasurementT]) -> None:
        self.measurements: list[MeasurementT] = []
        self.records: list[dict[str, Any]] = []
        """Lines that are no measurements, each with the key ``record``."""
        self.used_seconds = 0.0
        """Seconds of the budget used by all runs so far, where the lines say it."""
        self._lines = LineFile(file, header)
        for number, line in enumerate(self._lines.lines, start=2):
            try:
                if "record" in line:
                    self.records.append(line)
                else:
                    self.measurements.append(kind.from_dict(line))
            except (KeyError, TypeError, ValueError) as error:
                raise ParameterError("--out", f"{file}:{number}", "a measurement or a record") from error
            self._count_used(line)

    @property
    def file(self) -> Path:
        """Path of the journal."""
        return self._lines.file

    @property
    def next_number(self) -> int:
        """Number of the pass to begin: an unfinished one counts as done."""
        return max((measurement.number for measurement in self.measurements), default=-1) + 1

    def add(self, measurement: MeasurementT) -> None:
        """Keep a measurement, on disk too."""
        self.measurements.append(measurement)
        line = measurement.as_dict()
        self._lines.add(line)
        self._count_used(line)

    def add_record(self, name: str, /, **values: Any) -> None:
        """Keep something else that was measured."""
        self.records.append({"record": name, **values})
        self._lines.add(self.records[-1])
        self._count_used(values)

    def recorded(self, name: str) -> list[dict[str, Any]]:
        """Records of a name."""
        return [record for record in self.records if record["record"] == name]

    def _count_used(self, line: Mapping[str, Any]) -> None:
        self.used_seconds = max(self.used_seconds, float(line.get("used_seconds", 0.0)))
