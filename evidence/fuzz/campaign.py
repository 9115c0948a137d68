"""Many trials of one kind of input, and what they ended with."""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from evidence.fuzz.inputs import INPUTS, TEXT, Example, Input
from evidence.fuzz.mutations import mutated
from evidence.fuzz.server import URL
from evidence.fuzz.trial import MEMORY_BYTES, Trial, import_what_it_imports, run_alone

RAISED = re.compile(r"^([\w.]+)(?::|$)", re.MULTILINE)
FRAME = re.compile(r'File "[^"]*?((?:rlsim|calibration)/[^"]+)", line (\d+)')


@dataclass(frozen=True, slots=True)
class Fault:
    """One trial that ended as none may."""

    kind: str
    """What is wrong and where: trials of the same kind have the same cause, as far as can be seen."""
    number: int
    command: tuple[str, ...]
    text: str
    """What was printed to standard error."""


@dataclass(slots=True)
class Findings:
    """What the trials of one input ended with."""

    name: str
    results: int = 0
    refusals: int = 0
    deadlocks: int = 0
    faults: list[Fault] = field(default_factory=list)
    slowest_seconds: float = 0.0
    peak_bytes: int = 0

    @property
    def trials(self) -> int:
        """All of them."""
        return self.results + self.refusals + self.deadlocks + len(self.faults)

    def kinds(self) -> list[tuple[str, int]]:
        """Kinds of faults with their counts, the most frequent first."""
        return Counter(fault.kind for fault in self.faults).most_common()

    def merge(self, other: Findings) -> None:
        """Count another slice of the trials as well."""
        for name in ("results", "refusals", "deadlocks"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults
        self.slowest_seconds = max(self.slowest_seconds, other.slowest_seconds)
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)

    def add(self, number: int, command: tuple[str, ...], trial: Trial, kind: str) -> None:
        """Count a trial; ``kind`` is empty where nothing is wrong with it."""
        self.slowest_seconds = max(self.slowest_seconds, trial.seconds)
        self.peak_bytes = max(self.peak_bytes, trial.peak_bytes)
        if kind:
            self.faults.append(Fault(kind, number, command, trial.stderr[-4000:]))
        elif trial.code == 0:
            self.results += 1
        elif trial.code == 3:
            self.deadlocks += 1
        else:
            self.refusals += 1


def campaign(tested: Input, trials: range, seed: int, seconds: float = 10.0, keep: Path | None = None) -> Findings:
    """The trials with these numbers: trial ``n`` of a seed is the same whenever it is made.

    ``keep`` is a folder for what led to a fault: the first trial of every kind.
    """
    findings = Findings(tested.name)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        whole.mkdir()
        examples = tested.make(whole)
        for example in examples:
            for command in example.commands:
                import_what_it_imports(example.folder, command)
        for number in trials:
            rng = random.Random(f"{tested.name} {seed} {number}")
            place = Path(folder) / "trial"
            command, damaged = _damage(rng.choice(examples), place, rng)
            trial = run_alone(place, command, seconds)
            kind = fault_of(trial, damaged, tested.lines, seconds)
            if kind and keep is not None and kind not in dict(findings.kinds()):
                _keep(keep / f"{tested.name}-{number}", place, command, trial)
            findings.add(number, command, trial, kind)
            shutil.rmtree(place)
    return findings


def campaign_of(name: str, trials: range, seed: int, keep: Path | None) -> Findings:
    """The campaign of an input by its name."""
    return campaign(next(one for one in INPUTS if one.name == name), trials, seed, keep=keep)


def _damage(example: Example, place: Path, rng: random.Random) -> tuple[tuple[str, ...], str]:
    """Copy the example with a damaged file; the command, and the word by which a refusal must name what is damaged."""
    shutil.copytree(example.folder, place)
    command = rng.choice(example.commands)
    if not example.damaged:
        value = mutated(rng.choice(example.texts).encode(), rng).replace(b"\0", b"")[:10_000]
        return tuple(os.fsdecode(value) if word == TEXT else word for word in command), "--set"
    name = rng.choice(example.damaged)
    file = place / name
    file.write_bytes(mutated(file.read_bytes(), rng))
    return command, URL if URL in command else file.name


def fault_of(trial: Trial, damaged: str, lines: bool, seconds: float) -> str:
    """What is wrong with how a trial ended; empty where nothing is."""
    if "Traceback (most recent call last)" in trial.stderr:
        last = (RAISED.findall(trial.stderr) or ["?"])[-1]
        frames = FRAME.findall(trial.stderr)
        return f"traceback: {last[:60]} at {':'.join(frames[-1]) if frames else '?'}"
    if trial.peak_bytes > MEMORY_BYTES:
        return "memory"
    if trial.code == -14 or trial.seconds > seconds:
        return "hang"
    if trial.code not in (0, 2, 3):
        return f"exit code {trial.code}"
    if trial.code == 2 and not _named(trial.stderr, damaged, lines):
        return "a refusal that does not name " + (damaged if damaged == "--set" else "the file" + " and line" * lines)
    if re.search(r"\b(NaN|Infinity)\b", trial.stdout):
        return "not a number in the output"
    return ""


def _named(refusal: str, damaged: str, lines: bool) -> bool:
    if damaged in (URL, "--set"):
        return bool(refusal.strip()) if damaged == URL else damaged in refusal or "arms.yaml" in refusal
    return bool(re.search(re.escape(damaged) + (r":\d+" if lines else ""), refusal))


def _keep(folder: Path, place: Path, command: tuple[str, ...], trial: Trial) -> None:
    shutil.copytree(place, folder, dirs_exist_ok=True)
    (folder / "command.txt").write_text(f"{command!r}\n{trial.stderr}", encoding="utf-8", errors="surrogateescape")
