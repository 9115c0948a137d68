"""The step law of an engine from vLLM's own statistics lines: throughput over what was running.

A line gives, over its interval, prompt and generation tokens a second, and at its end the requests that run and the
share of the KV cache in use. With ``R`` running, a token each a step, steps follow each other every ``R / rate``
seconds; base, ``R`` sequences, KV tokens and ``p R / rate`` prompt tokens (``p`` a second) each have their share of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from calibration.fitting.robust_regression import hold_out
from calibration.logs.estimates import MOST_SHARED, LogEstimate, check_varies, least_squares, shared
from calibration.logs.records import read_text
from rlsim.core.errors import ParameterError
from rlsim.costs.evidence import HoldOutError, Provenance
from rlsim.costs.step_model import StepTimeModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RATES = re.compile(r"Avg prompt throughput: ([\d.]+) tokens/s,\s*Avg generation throughput: ([\d.]+) tokens/s")
_COUNTS = re.compile(r"Running: (\d+) reqs,\s*Waiting: (\d+) reqs")
_KV = re.compile(r"KV cache usage: ([\d.]+)%")
_CAPACITY = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_ENGINE = re.compile(r"Engine (\d+):")

FEWEST_INTERVALS = 9
STEADY = 0.15
"""Relative change of the running requests over an interval up to which their mean stands for them."""
COLUMNS = ("base_seconds", "per_sequence_seconds", "per_kv_token_seconds", "per_prefill_token_seconds")
"""Coefficients of the affine law, as a scenario names them."""


class StatLine(NamedTuple):
    """One line of one engine."""

    number: int
    """In the file."""
    prompt_rate: float
    generation_rate: float
    running: int
    waiting: int
    kv_share: float


@dataclass(frozen=True, slots=True)
class StatLines:
    """The lines of a log, by engine."""

    origin: str
    engines: dict[str, list[StatLine]]
    kv_tokens: int | None
    """Capacity, where the log says it."""


@dataclass(frozen=True, slots=True)
class LineFit:
    """An affine step law, and how it does on the last third of the intervals."""

    law: StepTimeModel
    estimates: tuple[LogEstimate, ...]
    unidentified: tuple[str, ...]
    hold_out: HoldOutError
    intervals: int


def is_stat_line(line: str) -> bool:
    """Whether it is one of vLLM's statistics."""
    return _RATES.search(line) is not None


def read_stat_lines(file: Path) -> StatLines:
    """All statistics lines; ``ParameterError`` when there is none."""
    text = read_text(file)
    engines: dict[str, list[StatLine]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        rates, counts = _RATES.search(line), _COUNTS.search(line)
        if rates is None or counts is None:
            continue
        engine, kv = _ENGINE.search(line), _KV.search(line)
        share = float(kv[1]) / 100 if kv else 0.0
        stat = StatLine(number, float(rates[1]), float(rates[2]), int(counts[1]), int(counts[2]), share)
        engines.setdefault(engine[1] if engine else "", []).append(stat)
    if not engines:
        raise ParameterError(file.name, "no statistics lines", "lines with Avg generation throughput and Running")
    capacity = _CAPACITY.search(text)
    return StatLines(file.name, engines, int(capacity[1].replace(",", "")) if capacity else None)


class Interval(NamedTuple):
    """What an engine did between two lines."""

    number: int
    step_seconds: float
    running: float
    kv_tokens: float
    prefill_per_step: float
    """Prompt tokens in a step."""


def intervals(lines: StatLines, kv_tokens: int) -> Iterator[Interval]:
    """Intervals in which about as many requests ran at the end as at the start."""
    for stats in lines.engines.values():
        for before, after in pairwise(stats):
            running = (before.running + after.running) / 2
            if not after.generation_rate or abs(after.running - before.running) > STEADY * running:
                continue
            step = running / after.generation_rate
            held = (before.kv_share + after.kv_share) / 2 * kv_tokens
            yield Interval(after.number, step, running, held, after.prompt_rate * step)


def fit_stat_lines(lines: StatLines, kv_tokens: int) -> LineFit:
    """The law of least relative squares over the first two thirds of the intervals.

    Raises ``ParameterError`` for fewer than nine steady intervals, and when as many requests run in all of them.
    """
    steady = list(intervals(lines, kv_tokens))
    if len(steady) < FEWEST_INTERVALS:
        said = f"{len(steady)} intervals with steadily running requests"
        raise ParameterError(lines.origin, said, f"at least {FEWEST_INTERVALS}")
    table = np.array(steady, dtype=float)
    last = len(steady) // 3
    fitted, held = table[:-last], table[-last:]
    check_varies(lines.origin, "Running", fitted[:, 2], "the cost of a sequence")
    kept, unknown = _distinguishable(fitted)
    line = least_squares(np.ones(len(fitted)), [_column(fitted, name) / fitted[:, 1] for name in kept])
    while (worst := int(line.coefficients.argmin())) >= 0 and line.coefficients[worst] < 0:
        unknown.append(f"{kept.pop(worst)}: not above zero in this log")
        line = least_squares(np.ones(len(fitted)), [_column(fitted, name) / fitted[:, 1] for name in kept])
    values = dict(zip(kept, line.coefficients.tolist(), strict=True))
    predicted = np.sum([value * _column(held, name) for name, value in values.items()], axis=0)
    source = f"{len(fitted)} intervals of the engine's statistics"
    law = StepTimeModel.affine(*(values.get(name, 0.0) for name in COLUMNS))
    return LineFit(
        replace(law, provenance=Provenance("fitted", f"vLLM's statistics lines ({lines.origin})")),
        tuple(line.estimate(n, f"rollout.step_time.{name}", source) for n, name in enumerate(kept)),
        tuple(unknown),
        hold_out(predicted, held[:, 1], [f"line {number:.0f}" for number in held[:, 0]]),
        len(steady),
    )


def _column(table: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    return np.ones(len(table)) if name == COLUMNS[0] else table[:, 1 + COLUMNS.index(name)]


def _distinguishable(table: NDArray[np.float64]) -> tuple[list[str], list[str]]:
    """Columns whose effects can be seen, and what is said of the others."""
    kept, unknown = list(COLUMNS), []
    if not table[:, 3].any():
        unknown.append("per_kv_token_seconds: no KV usage in the log")
    elif shared(table[:, 2], table[:, 3]) > MOST_SHARED:
        unknown.append("per_kv_token_seconds: KV grows with the running requests; in per_sequence_seconds")
    if not table[:, 4].any():
        unknown.append("per_prefill_token_seconds: no prefill in steady intervals")
    return [name for name in kept if not any(said.startswith(name) for said in unknown)], unknown
