"""What a replay came to: fitted terms, and the simulated latencies beside the recorded ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.serving.timelines import Gauge, RecordedRun, Timeline
from calibration.text import wrapped
from rlsim.core.log import WindowRow
from rlsim.costs.evidence import HoldOutError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Terms:
    """What is fitted to the run; all else comes from the tables."""

    host_seconds: float
    """Host overhead of every step; on several GPUs also what of their exchange does not grow with the tokens."""
    all_reduce_seconds: float = 0.0
    """Exchange of a token between GPUs, in all layers; 0 on one GPU."""

    @property
    def free_parameters(self) -> int:
        """How many were fitted to the run."""
        return 2 if self.all_reduce_seconds else 1

    def __str__(self) -> str:
        host = f"{self.host_seconds * 1e3:.3f} ms a step"
        if not self.all_reduce_seconds:
            return f"host overhead {host}"
        reduce = f"{self.all_reduce_seconds * 1e6:.1f} us a token"
        return f"host overhead and the constant part of the all-reduce {host}, all-reduce {reduce}"


HEADLINES = ("TTFT mean", "TPOT mean", "end-to-end mean", "makespan")
"""Statistics of the first line of a report."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A simulated run, requests in the order of the recorded one."""

    timelines: tuple[Timeline, ...]
    gauges: tuple[Gauge, ...]
    """At every change of the batch."""
    steps: int
    preemptions: int
    peak_kv_blocks: int
    windows: tuple[tuple[WindowRow, ...], ...] = ()
    """Runs of engine steps of each engine, in order."""
    engines: tuple[int, ...] = ()
    """Engine of each request."""


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One statistic, in seconds or requests."""

    statistic: str
    measured: float
    predicted: float
    rms_difference: float | None = None
    """Root mean square over the requests, or the instants, that the statistic is a mean of."""

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1.0 if self.measured else float(self.predicted != 0)


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run: what was fitted, on what, and how the rest came out."""

    name: str
    fitted: int
    """Requests the terms were fitted on; the later ones are scored."""
    scored: int
    terms: Terms
    rows: tuple[ScoreRow, ...]
    assumptions: tuple[str, ...]
    pricing: dict[str, HoldOutError]
    """Error of the law against the tables' own sum of layers, by kind of step."""
    replayed: Replayed
    warnings: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """How the scored requests came out, warnings, the table, then everything fitted and assumed."""
        errors = {row.statistic: f"{row.statistic} {row.error:+.1%}" for row in self.rows}
        which = f"requests {self.fitted + 1} to {self.fitted + self.scored}, fitted to 1 to {self.fitted}"
        headlines = ", ".join(errors[name] for name in HEADLINES)
        yield from wrapped(f"{self.name}: held out: {which}: {headlines}", "  ", first="")
        for warning in self.warnings:
            yield from wrapped(f"warning: {warning}", "    ", first="  ")
        yield f"  {'':<22}{'measured':>12}{'predicted':>12}{'error':>9}{'RMS diff.':>12}"
        for row in self.rows:
            rms = "" if row.rms_difference is None else f"{row.rms_difference:>12.4f}"
            yield f"  {row.statistic:<22}{row.measured:>12.4f}{row.predicted:>12.4f}{row.error:>+9.2%}{rms}"
        yield "  (seconds or requests; makespan and gauges are of all requests)"
        for note in self._notes():
            yield from wrapped(note, "    ", first="  ")

    def _notes(self) -> Iterator[str]:
        yield f"simulated: {self.replayed.steps} steps, {self.replayed.preemptions} preemptions"
        free = f"{self.terms.free_parameters} free parameter{'s' * (self.terms.free_parameters > 1)}"
        yield f"fitted on requests 1 to {self.fitted}, {free}: {self.terms}"
        yield from (f"assumed: {assumption}" for assumption in self.assumptions)
        yield from (f"law against the tables, {kind} steps: {error}" for kind, error in self.pricing.items())


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """All runs of a folder."""

    runs: tuple[RunReport, ...]

    def table(self) -> str:
        """Plain text."""
        return "\n".join(line for run in self.runs for line in run.lines())


def score(run: RecordedRun, replayed: Replayed, first_scored: int) -> Iterator[ScoreRow]:
    """Latencies of the requests from ``first_scored`` on; makespan and gauges of the whole run."""
    measured, predicted = run.timelines[first_scored:], replayed.timelines[first_scored:]
    for name, latency in (
        ("TTFT", first_token_seconds),
        ("TPOT", per_output_token_seconds),
        ("end-to-end", end_to_end_seconds),
    ):
        logged, simulated = latency(measured), latency(predicted)
        yield _mean_row(f"{name} mean", logged, simulated)
        for percent in (50, 99):
            percentiles = (float(np.percentile(values, percent)) for values in (logged, simulated))
            yield ScoreRow(f"{name} p{percent}", *percentiles)
    yield ScoreRow("makespan", _makespan(run.timelines), _makespan(replayed.timelines))
    if run.gauges:
        # at the recorded instants, the simulated value that stood then; zero before the start and after the end
        starts = np.array([gauge.seconds for gauge in replayed.gauges])
        at = np.searchsorted(starts, [gauge.seconds for gauge in run.gauges], side="right") - 1
        for name in ("running", "waiting"):
            values = np.array([getattr(gauge, name) for gauge in replayed.gauges], dtype=float)
            recorded = np.array([float(getattr(gauge, name)) for gauge in run.gauges])
            yield _mean_row(f"{name}, over time", recorded, values[at])


def _mean_row(statistic: str, measured: NDArray[np.float64], predicted: NDArray[np.float64]) -> ScoreRow:
    rms = float(np.sqrt(np.mean((predicted - measured) ** 2)))
    return ScoreRow(statistic, float(measured.mean()), float(predicted.mean()), rms)


def first_token_seconds(timelines: Sequence[Timeline]) -> NDArray[np.float64]:
    """Seconds from queued to the first token, shape (requests,)."""
    return np.array([timeline.first_token_seconds - timeline.queued_seconds for timeline in timelines])


def end_to_end_seconds(timelines: Sequence[Timeline]) -> NDArray[np.float64]:
    """Seconds from queued to the last token, shape (requests,)."""
    return np.array([timeline.last_token_seconds - timeline.queued_seconds for timeline in timelines])


def per_output_token_seconds(timelines: Sequence[Timeline]) -> NDArray[np.float64]:
    """Mean seconds between the tokens after the first, shape (requests,)."""
    decoding = [timeline.last_token_seconds - timeline.first_token_seconds for timeline in timelines]
    return np.array(decoding) / [max(1, timeline.output_tokens - 1) for timeline in timelines]


def _makespan(timelines: Sequence[Timeline]) -> float:
    return max(timeline.last_token_seconds for timeline in timelines)
