"""Step log of a real engine: its steps, and how many tokens each call had at its end.

The scheduler inside the engine's process writes, one line at a time, so that a killed engine leaves all but the line
it was writing; the process that drives it reads. Times in the files are nanoseconds of CLOCK_MONOTONIC, which the
processes of a host share (``asyncio`` loops run on it too).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rlsim.core.log import WindowRow
from rlsim.core.ticks import Ticks
from rlsim.live.protocols import Now
from rlsim.live.vllm.batch import Composer, StepBatch

TICKS_PER_NANOSECOND = 1000
LAST_BYTES = 1024
"""More than a step takes on disk."""
GAP_TICKS = 10**9
"""Longest gap between two equal steps of one window: what an engine needs to hand out tokens, a millisecond."""


class StepRow(NamedTuple):
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
    pairs: int = 0
    """(query, key) pairs of the chunks."""
    cpu_ns: int = 0
    """CPU time of all threads of the engine's process meanwhile."""


class CallEnd(NamedTuple):
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
        """A constant, for vLLM: compiled graphs depend on nothing here."""
        return "rlsim"

    def open(self) -> StepLogWriter:
        """Begin the log, in the engine's process."""
        return StepLogWriter(self)

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


class StepLogWriter:
    """Appends to both files of an engine, line by line."""

    def __init__(self, files: EngineFiles) -> None:
        self._steps = files.steps.open("a", buffering=1, encoding="ascii")
        self._ends = files.ends.open("a", buffering=1, encoding="ascii")

    def step(self, row: StepRow) -> None:
        self._steps.write(" ".join(map(str, row)) + "\n")

    def end(self, call: str, end: CallEnd) -> None:
        self._ends.write(f"{call} {end.output_tokens} {end.thrown_tokens}\n")


class StepSink(Protocol):
    """Takes the rows of a step log."""

    def step(self, row: StepRow) -> None:
        """Keep a step."""

    def end(self, call: str, end: CallEnd) -> None:
        """Keep the end of a call."""


class OpenStep(NamedTuple):
    """A step that the scheduler has decided and whose tokens have not been taken yet."""

    began_ns: int
    began_cpu_ns: int
    batch: StepBatch


class StepLog:
    """Turns a scheduler's plans and their ends into rows.

    A step lasts from its scheduling to the end of its update, or from the end of the step before if that is later:
    with asynchronous scheduling step N+1 is scheduled while N runs.
    """

    def __init__(
        self,
        write: Callable[[StepRow], None],
        clock: Callable[[], int] = time.monotonic_ns,
        cpu_clock: Callable[[], int] = time.process_time_ns,
    ) -> None:
        self._write, self._clock, self._cpu_clock = write, clock, cpu_clock
        self._composer = Composer()
        self.open_steps: dict[int, OpenStep] = {}
        """By the identity of their plan."""
        self._last_end_ns = self._last_cpu_ns = 0

    def now(self) -> tuple[int, int]:
        """Wall-clock and CPU time in nanoseconds."""
        return self._clock(), self._cpu_clock()

    def begin(self, plan: Any, began: tuple[int, int], requests: Mapping[str, Any]) -> None:
        """Open the step of ``plan``, decided since ``began``; ``requests`` have already been advanced by it."""
        if plan.total_num_scheduled_tokens:
            self.open_steps[id(plan)] = OpenStep(*began, self._composer.batch(plan, requests))

    def take(self, plan: Any) -> OpenStep | None:
        """Close the step of ``plan``; None for a plan of nothing."""
        return self.open_steps.pop(id(plan), None)

    def end(self, step: OpenStep) -> None:
        """Write a step that ends now."""
        self.write(step, step.began_ns, self._clock())

    def write(self, step: OpenStep, start_ns: int, end_ns: int, law_ticks: Ticks = 0, late_ticks: Ticks = 0) -> None:
        """Write a step from ``start_ns``, or from the end of the step before, to ``end_ns``."""
        batch, cpu_now = step.batch, self._cpu_clock()
        row = StepRow(
            start_ns=max(start_ns, self._last_end_ns),
            end_ns=end_ns,
            decodes=batch.decodes,
            kv_tokens=batch.kv_tokens,
            chunks=batch.chunks,
            prefill_tokens=batch.prefill_tokens,
            sampled_tokens=len(batch.samplers),
            preempted=batch.preempted,
            law_ticks=law_ticks,
            late_ticks=late_ticks,
            pairs=batch.pairs,
            cpu_ns=cpu_now - max(step.began_cpu_ns, self._last_cpu_ns),
        )
        self._last_end_ns, self._last_cpu_ns = end_ns, cpu_now
        self._write(row)


class CallEndReader:
    """Looks up ends of calls while the engine runs."""

    def __init__(self, files: EngineFiles) -> None:
        self._path = files.ends
        self._read_bytes = 0
        self._ends: dict[str, CallEnd] = {}

    def take(self, call: str) -> CallEnd | None:
        """The end of a call, once; None where it has not been written yet."""
        if call not in self._ends and self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read_bytes += len(whole) + len(newline)
            for line in whole.decode("ascii").splitlines():
                name, output, thrown = line.split()
                self._ends[name] = CallEnd(int(output), int(thrown))
        return self._ends.pop(call, None)


def read_steps(files: EngineFiles) -> list[StepRow]:
    """All steps in order, but for a last line that is not whole."""
    if not files.steps.exists():
        return []
    whole, _, _ = files.steps.read_text(encoding="ascii").rpartition("\n")
    return [StepRow(*map(int, line.split())) for line in whole.split("\n") if line]


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
    return int(lines[-1].split()[StepRow._fields.index("end_ns")]) if lines else None


def zero_ns(now: Now) -> int:
    """CLOCK_MONOTONIC at the zero of a run's clock that runs as fast."""
    return time.monotonic_ns() - now() // TICKS_PER_NANOSECOND


def windows(replica: int, steps: list[StepRow], zero: int) -> list[WindowRow]:
    """Steps as rows of the run's log; decode steps of the same requests in close order are one row.

    Equal counts of decodes whose KV has grown by a token each are the same requests: who enters does so in a chunk.
    """
    rows: list[WindowRow] = []
    for step in steps:
        row = WindowRow(
            replica=replica,
            start=(step.start_ns - zero) * TICKS_PER_NANOSECOND,
            end=(step.end_ns - zero) * TICKS_PER_NANOSECOND,
            steps=1,
            decodes=step.decodes,
            chunks=step.chunks,
            prefill_tokens=step.prefill_tokens,
            kv_tokens=step.kv_tokens,
        )
        last = rows[-1] if rows else row
        has_grown = row.kv_tokens == last.kv_tokens + last.steps * last.decodes
        is_same = not (last.chunks or row.chunks) and row.decodes == last.decodes and has_grown
        if rows and is_same and row.start - last.end <= GAP_TICKS:
            rows[-1] = last._replace(end=row.end, steps=last.steps + 1)
        else:
            rows.append(row)
    return rows


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
        """Share of the steps that were late."""
        return self.late_steps / self.steps if self.steps else 0.0


def report(steps: list[StepRow]) -> EngineReport:
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
