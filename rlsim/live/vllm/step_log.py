"""What a real engine writes down as it runs: its steps, and how many tokens each call had at its end.

The scheduler inside the engine's process writes, one line at a time, so that a killed engine leaves all but the line
it was writing; the process that drives it reads. Times in the files are nanoseconds of CLOCK_MONOTONIC, which the
processes of a host share (``asyncio`` loops run on it too).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rlsim.core.log import WindowRow
from rlsim.core.ticks import Ticks
from rlsim.live.protocols import Now

TICKS_PER_NANOSECOND = 1000
LAST_BYTES = 1024
"""More than a step takes on disk."""
GAP_TICKS = 10**9
"""Between two equal steps that are told as one window: what an engine needs to hand out tokens, a millisecond."""


class StepNote(NamedTuple):
    """One engine step."""

    start_ns: int
    end_ns: int
    decodes: int
    kv_tokens: int
    chunks: int
    prefill_tokens: int
    sampled_tokens: int
    preempted: int
    law_ticks: Ticks = 0
    """How long the step was to last; 0 for an engine that keeps no pace."""
    late_ticks: Ticks = 0
    """By how much it ended after its time."""


class EndNote(NamedTuple):
    """The end of a call, by the engine's own count."""

    output_tokens: int
    thrown_tokens: int
    """Sampled beyond them: by steps under way when the call ended, or lost to a preemption."""

    @property
    def sampled_tokens(self) -> int:
        """All tokens that the engine made for the call."""
        return self.output_tokens + self.thrown_tokens


@dataclass(frozen=True, slots=True)
class EngineFiles:
    """The folder that an engine's process and the one that drives it share, as vLLM's ``additional_config``."""

    folder: Path

    def compute_hash(self) -> str:
        """Of what compiled graphs depend on: nothing. vLLM asks."""
        return "rlsim"

    @property
    def law(self) -> Path:
        """The step law of a paced engine."""
        return self.folder / "law.json"

    @property
    def steps(self) -> Path:
        """One line a step."""
        return self.folder / "steps.txt"

    @property
    def ends(self) -> Path:
        """One line a call that ended."""
        return self.folder / "ends.txt"


class NoteWriter:
    """Appends to both files, line by line."""

    def __init__(self, files: EngineFiles) -> None:
        self._steps = files.steps.open("a", buffering=1, encoding="ascii")
        self._ends = files.ends.open("a", buffering=1, encoding="ascii")

    def step(self, note: StepNote) -> None:
        """Write a step."""
        self._steps.write(" ".join(map(str, note)) + "\n")

    def end(self, call: str, note: EndNote) -> None:
        """Write the end of a call."""
        self._ends.write(f"{call} {note.output_tokens} {note.thrown_tokens}\n")


class EndReader:
    """Looks up ends of calls while the engine runs."""

    def __init__(self, files: EngineFiles) -> None:
        self._path = files.ends
        self._read_bytes = 0
        self._found: dict[str, EndNote] = {}

    def take(self, call: str) -> EndNote | None:
        """The end of a call, once; None where it has not been written yet."""
        if call not in self._found:
            self._read_on()
        return self._found.pop(call, None)

    def _read_on(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            whole, _, _ = file.read().rpartition(b"\n")
        if not whole:
            return
        self._read_bytes += len(whole) + 1
        for line in whole.decode("ascii").split("\n"):
            call, output, thrown = line.split()
            self._found[call] = EndNote(int(output), int(thrown))


def read_steps(files: EngineFiles) -> list[StepNote]:
    """All steps in order, but for a last line that is not whole."""
    if not files.steps.exists():
        return []
    whole, _, _ = files.steps.read_text(encoding="ascii").rpartition("\n")
    return [StepNote(*map(int, line.split())) for line in whole.split("\n") if line]


def forget_steps(files: EngineFiles) -> None:
    """Drop the steps so far; the engine goes on at the start of the file. None may be under way."""
    if files.steps.exists():
        os.truncate(files.steps, 0)


def last_end_ns(files: EngineFiles) -> int | None:
    """End of the last step that is written down; None before the first."""
    if not files.steps.exists():
        return None
    with files.steps.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_BYTES))
        lines = file.read().split(b"\n")[:-1]
    return int(lines[-1].split()[StepNote._fields.index("end_ns")]) if lines else None


def zero_ns(now: Now) -> int:
    """CLOCK_MONOTONIC at the zero of a run's clock that runs as fast."""
    return time.monotonic_ns() - now() // TICKS_PER_NANOSECOND


def windows(replica: int, steps: list[StepNote], zero: int) -> list[WindowRow]:
    """Steps as rows of the run's log; decode steps of the same requests in close order are one row.

    Equal counts of decodes whose KV has grown by a token each are the same requests: who enters does so in a chunk.
    """
    rows: list[WindowRow] = []
    for step in steps:
        row = _row(replica, step, zero)
        if rows and _goes_on(rows[-1], row):
            last = rows[-1]
            rows[-1] = last._replace(end=row.end, steps=last.steps + 1)
        else:
            rows.append(row)
    return rows


def _row(replica: int, step: StepNote, zero: int) -> WindowRow:
    start, end = ((at - zero) * TICKS_PER_NANOSECOND for at in (step.start_ns, step.end_ns))
    return WindowRow(replica, start, end, 1, step.decodes, step.chunks, step.prefill_tokens, step.kv_tokens)


def _goes_on(last: WindowRow, row: WindowRow) -> bool:
    grown = last.kv_tokens + last.steps * last.decodes
    is_same = not (last.chunks or row.chunks) and row.decodes == last.decodes and row.kv_tokens == grown
    return is_same and row.start - last.end <= GAP_TICKS


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What the steps of one engine add up to."""

    steps: int
    sampled_tokens: int
    """Response tokens, those that nobody got included."""
    prefill_tokens: int
    preemptions: int
    law_ticks: Ticks
    """Sum of the steps by the law; 0 for an engine that keeps no pace."""
    late_steps: int
    """Steps that took longer than the law says: with many of them a paced run is not to be trusted."""
    late_ticks: Ticks
    """Sum over them."""
    worst_late_ticks: Ticks

    @property
    def late_share(self) -> float:
        """Of the steps."""
        return self.late_steps / self.steps if self.steps else 0.0


def report(steps: list[StepNote]) -> EngineReport:
    """Sums over all steps."""
    late = [step.late_ticks for step in steps if step.late_ticks]
    return EngineReport(
        steps=len(steps),
        sampled_tokens=sum(step.sampled_tokens for step in steps),
        prefill_tokens=sum(step.prefill_tokens for step in steps),
        preemptions=sum(step.preempted for step in steps),
        law_ticks=sum(step.law_ticks for step in steps),
        late_steps=len(late),
        late_ticks=sum(late),
        worst_late_ticks=max(late, default=0),
    )
