"""What those who wait for answers see: latency, time to the first token, time per token, and goodput.

A request is one turn of a sample, from its first submission to the end of its response, in however many calls (chunks,
calls cut and resumed). Measured are the requests that end in the measured window; in a steady state they are alike
those that begin in it, and under overload they are the lucky ones, so what has not ended is counted beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlsim.core.commands import Submit
from rlsim.core.events import Aborted, Cut, Finished
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks, to_seconds
from rlsim.executor.run import FinishedRun
from rlsim.results.columns import Columns, integers, seconds
from rlsim.results.metrics import measured
from rlsim.results.utilisation import Measured
from rlsim.scenario.schema import Slo


@dataclass(frozen=True, slots=True)
class Latency:
    """Of the requests that ended in the measured window; seconds are NaN where there is none."""

    requests: int
    unfinished: int
    """Submitted in or before the window and not ended in it: large beside ``requests`` under overload."""
    requests_per_second: float
    latency_mean_seconds: float
    """Submission to end, queueing and service."""
    latency_median_seconds: float
    latency_p99_seconds: float
    ttft_mean_seconds: float
    """Submission to the first token."""
    ttft_p99_seconds: float
    tpot_mean_seconds: float
    """Mean over requests of (end - first token) / (tokens - 1); 0 for a response of one token."""
    goodput_per_second: float | None
    """Requests a second within the objectives; None without objectives."""


class _Turn:
    """One request, as its commands and replies tell it."""

    __slots__ = ("draw", "finished", "first_token", "sample", "submitted", "tokens", "turn")

    def __init__(self, command: Submit, now: Ticks) -> None:
        self.sample, self.draw, self.turn, self.submitted = command.sample, command.draw, command.turn, now
        self.first_token = self.finished = -1
        self.tokens = 0

    def called(self, call: Finished | Cut) -> None:
        if call.tokens and self.first_token < 0:
            self.first_token = call.first_token_at
        self.tokens += call.tokens

    def row(self) -> tuple[int, ...]:
        return self.sample, self.draw, self.turn, self.tokens, self.submitted, self.first_token, self.finished


def request_columns(log: RunLog) -> Columns:
    """One row a request, those that ended first; NaN in the seconds of what never came."""
    ended: list[_Turn] = []
    under_way: dict[int, _Turn] = {}
    decisions = log.decisions[:-1] if log.last_commands_idle else log.decisions
    for now, event, commands in decisions:
        if isinstance(event, Finished):
            under_way[event.sample].called(event)
            if event.reason != "chunk":
                turn = under_way.pop(event.sample)
                turn.finished = now
                ended.append(turn)
        elif isinstance(event, Aborted):
            for cut in event.cuts:
                under_way[cut.sample].called(cut)
        for command in commands:
            if isinstance(command, Submit) and command.sample not in under_way:
                under_way[command.sample] = _Turn(command, now)
    table = integers((turn.row() for turn in (*ended, *under_way.values())), 7)
    columns: Columns = dict(zip(("sample", "draw", "turn", "response_tokens"), table[:, :4].T.copy(), strict=True))
    times = zip(("submitted", "first_token", "finished"), table[:, 4:].T, strict=True)
    return columns | {f"{name}_seconds": seconds(ticks) for name, ticks in times}


def latency(run: FinishedRun, slo: Slo | None = None) -> Latency:
    """Over the measured window of a run."""
    window = measured(run.log, run.plan.scenario.run.warmup_steps)
    return _latency(request_columns(run.log), window, slo)


def latency_by_class(run: FinishedRun, slo: Slo | None = None) -> dict[str, Latency]:
    """The same by the class of the prompt."""
    window = measured(run.log, run.plan.scenario.run.warmup_steps)
    rows, workload = request_columns(run.log), run.plan.workload_of(run.replication)
    kinds = np.array([workload.class_of(workload.prompt_at(draw)[0]) for draw in rows["draw"].tolist()], np.int64)
    names = [kind.name for kind in run.plan.shape.classes]
    return {
        name: _latency({column: values[kinds == kind] for column, values in rows.items()}, window, slo)
        for kind, name in enumerate(names)
    }


def _latency(rows: Columns, window: Measured, slo: Slo | None) -> Latency:
    start, end = to_seconds(window.start), to_seconds(window.end)
    finished = rows["finished_seconds"]
    chosen = (finished > start) & (finished <= end)
    took = (finished - rows["submitted_seconds"])[chosen]
    ttft = (rows["first_token_seconds"] - rows["submitted_seconds"])[chosen]
    tokens = rows["response_tokens"][chosen]
    tpot = (took - ttft) / np.maximum(tokens - 1, 1)
    count = int(chosen.sum())
    return Latency(
        requests=count,
        unfinished=int(((rows["submitted_seconds"] <= end) & ~(finished <= end)).sum()),
        requests_per_second=count / (end - start),
        latency_mean_seconds=_mean(took),
        latency_median_seconds=_quantile(took, 0.5),
        latency_p99_seconds=_quantile(took, 0.99),
        ttft_mean_seconds=_mean(ttft),
        ttft_p99_seconds=_quantile(ttft, 0.99),
        tpot_mean_seconds=_mean(tpot),
        goodput_per_second=None if slo is None else _within(ttft, tpot, slo) / (end - start),
    )


def _within(ttft: NDArray[np.float64], tpot: NDArray[np.float64], slo: Slo) -> int:
    return int(((ttft <= slo.ttft_seconds) & (tpot <= slo.tpot_seconds)).sum())


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _quantile(values: NDArray[np.float64], quantile: float) -> float:
    return float(np.quantile(values, quantile)) if len(values) else float("nan")
