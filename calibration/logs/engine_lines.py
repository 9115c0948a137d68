"""Statistics lines of engines: vLLM's of both generations, and SGLang's.

Sources: vLLM 005a810bc and 0.32 ``v1/metrics/loggers.py``, V0 ``engine/metrics.py`` (``Swapped``, ``Pending``); SGLang
01bb3c807 ``managers/scheduler_metrics_mixin.py``, whose older lines have a dot after ``batch``.

A line gives, over its interval, prompt and generation tokens a second, and at its end the requests that run and the
tokens in the KV cache. SGLang's interval is a number of decode steps; its prefill lines stand in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from calibration.logs.texts import CUT, Line, LogText
from rlsim.core.errors import ParameterError

STEADY = 0.15
"""Relative change of the running requests over an interval up to which their mean stands for them."""
DECODE_LOG_INTERVAL = 40
"""Decode steps between two of SGLang's lines, unless the log says another number."""
CLOSEST_SECONDS, MOST_CLOSE = 2, 0.25
"""Lines of one vLLM engine are at least 5 s apart: when more than this share is closer, several write them."""

_REAL = r"(\d{1,12}(?:\.\d{1,12})?)"
_COUNT = r"(\d{1,12})"
_RATES = re.compile(rf"Avg prompt throughput: {_REAL} tokens/s,\s*Avg generation throughput: {_REAL} tokens/s")
_RUNNING = re.compile(rf"Running: {_COUNT} reqs,")
_KV = re.compile(rf"(?:^|[ ,])(?:GPU )?KV cache usage: {_REAL}%")
_CAPACITY = re.compile(rf"(?:GPU KV cache size: (\d[\d,]{{,15}}) tokens|max_total_num_tokens={_COUNT})")
_ENGINE = re.compile(rf"Engine {_COUNT}:")
_AGGREGATED = re.compile(rf"\b{_COUNT} Engines Aggregated:")
_ACCEPTED = re.compile(rf"(?:Mean acceptance length|accept len): {_REAL}")
_CLOCK = re.compile(r"\b(\d\d):(\d\d):(\d\d)\b")
_BATCH = r"batch(?: \[\d+\])?[.,]"
_DECODE = re.compile(rf"Decode {_BATCH} #running-req: {_COUNT}, .*gen throughput \(token/s\): {_REAL},")
_PREFILL = re.compile(rf"Prefill {_BATCH} #new-seq: \d+, #new-token: {_COUNT}, ")
_PREFILL_RUNNING = re.compile(rf"#running-req: {_COUNT}")
_TOKENS = re.compile(rf"#(?:full )?token: {_COUNT}")
_RANKS = re.compile(rf"\b(DP|TP|PP){_COUNT}\b")
_LOG_INTERVAL = re.compile(rf"decode_log_interval={_COUNT}")


class StatLine(NamedTuple):
    """One line of one engine."""

    place: str
    """In the log, for messages."""
    seconds: int | None
    """Time of the day."""
    generation_rate: float
    running: float
    prompt_rate: float = 0.0
    kv_share: float = 0.0
    """Of the capacity; SGLang's lines have tokens instead."""
    kv_tokens: int | None = None
    prefill_tokens: int = 0
    """In the decode steps since the line before (SGLang)."""
    idle: bool = False
    """Whether nothing ran for some of the interval (SGLang)."""
    accepted: float = 1.0
    """Tokens that a sequence is given in a step: more than 1 with speculative decoding."""


class Interval(NamedTuple):
    """What an engine did between two lines."""

    step_seconds: float
    running: float
    kv_tokens: float
    prefill_per_step: float
    """Prompt tokens in a step."""


@dataclass(frozen=True, slots=True)
class StatLines:
    """The lines of a log, by engine."""

    origin: str
    engine: str
    """Who wrote them: vllm or sglang."""
    engines: dict[str, list[StatLine]]
    kv_tokens: int | None
    """Capacity, where the log says it."""
    decode_log_interval: int = DECODE_LOG_INTERVAL
    notes: tuple[str, ...] = ()

    def intervals(self, kv_tokens: int) -> Iterator[tuple[str, Interval]]:
        """Intervals with their places in which about as many requests ran at the end as at the start."""
        for stats in self.engines.values():
            for before, after in zip(stats, stats, strict=True) if is_mixed(stats) else pairwise(stats):
                running = (before.running + after.running) / 2
                steady = running and abs(after.running - before.running) <= STEADY * running
                if not steady or not after.generation_rate or after.idle:
                    continue
                step = running * after.accepted / after.generation_rate
                held = [one.kv_share * kv_tokens if one.kv_tokens is None else one.kv_tokens for one in (before, after)]
                prefill = after.prompt_rate * step + after.prefill_tokens / self.decode_log_interval
                yield after.place, Interval(step, running, sum(held) / 2, prefill)


def is_mixed(stats: list[StatLine]) -> bool:
    """Whether lines without an engine's name come too close for one vLLM engine."""
    timed = [one.seconds for one in stats if one.seconds is not None and one.kv_tokens is None]
    close = sum(abs(after - before) < CLOSEST_SECONDS for before, after in pairwise(timed))
    return close > MOST_CLOSE * len(timed)


def is_vllm_line(text: str) -> bool:
    """Whether it is one of vLLM's statistics."""
    return "Avg generation throughput" in text and _RATES.search(text) is not None


def is_sglang_line(text: str) -> bool:
    """Whether it is one of SGLang's decode lines."""
    return "Decode batch" in text and _DECODE.search(text) is not None


@dataclass(slots=True)
class _Reading:
    """What is known so far."""

    engines: dict[str, list[StatLine]] = field(default_factory=dict)
    capacity: int | None = None
    interval: int = DECODE_LOG_INTERVAL
    aggregated: int = 1
    prefill: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """Tokens since the last decode line, and whether nothing ran before them."""
    ranks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The tensor- and pipeline-parallel rank whose lines count, by engine."""


def read_stat_lines(path: Path) -> StatLines:
    """All lines of the engine that wrote most; ``ParameterError`` when there is none."""
    log, vllm, sglang = LogText(path), _Reading(), _Reading()
    for line in log:
        if "Engine " in line.text or "throughput" in line.text or "acceptance" in line.text:
            _read_vllm(log, line, vllm)
        if " batch" in line.text or "decode_log_interval" in line.text:
            _read_sglang(log, line, sglang)
        if ("KV cache size" in line.text or "max_total_num_tokens" in line.text) and (
            match := _CAPACITY.search(line.text)
        ):
            vllm.capacity = sglang.capacity = int((match[1] or match[2]).replace(",", ""))
    best = max((vllm, sglang), key=lambda reading: sum(map(len, reading.engines.values())))
    if not best.engines:
        allowed = "vLLM's lines with Avg generation throughput and Running, or SGLang's with Decode batch"
        raise ParameterError(path.name, "no statistics lines", allowed)
    name = "vllm" if best is vllm else "sglang"
    notes = (*log.notes(), *_notes(best, name))
    return StatLines(path.name, name, best.engines, best.capacity, best.interval, notes)


def _notes(reading: _Reading, name: str) -> Iterator[str]:
    if len(reading.engines) > 1:
        counts = ", ".join(f"{engine or 'without a name'} {len(stats)}" for engine, stats in reading.engines.items())
        yield f"{len(reading.engines)} engines, lines of each: {counts}"
    if reading.aggregated > 1:
        yield f"lines sum up {reading.aggregated} engines: each is taken to have run a {reading.aggregated}th of it"
    if any(map(is_mixed, reading.engines.values())):
        yield "several engines write lines without a name: each line is read by itself, as if its batch had not changed"
    if any(one.accepted > 1 for stats in reading.engines.values() for one in stats):
        yield "speculative decoding: a step gives each sequence as many tokens as the log's acceptance length says"
    if name == "sglang":
        yield f"a decode line is read as {reading.interval} steps (decode_log_interval)"


def _seconds(text: str) -> int | None:
    match = _CLOCK.search(text)
    return None if match is None else 3600 * int(match[1]) + 60 * int(match[2]) + int(match[3])


def _read_vllm(log: LogText, line: Line, reading: _Reading) -> None:
    rates, running, named = _RATES.search(line.text), _RUNNING.search(line.text), _ENGINE.search(line.text)
    engine = " ".join(filter(None, (line.source, named[1] if named else "")))
    stats = reading.engines.get(engine)
    if rates is None:
        accepted = _ACCEPTED.search(line.text)
        if accepted is not None and stats:
            stats[-1] = stats[-1]._replace(accepted=max(1.0, float(accepted[1])))
        return
    kv, together = _KV.search(line.text), _AGGREGATED.search(line.text)
    if not line.whole or running is None:
        log.lose(CUT if not line.whole else "statistics lines without Running", line)
        return
    count = int(together[1]) if together else 1
    reading.aggregated = max(reading.aggregated, count)
    prompt, generated = (float(rate) / max(1, count) for rate in rates.groups())
    share = float(kv[1]) / 100 if kv else 0.0
    stat = StatLine(line.place, _seconds(line.text), generated, int(running[1]) / max(1, count), prompt, share)
    reading.engines.setdefault(engine, []).append(stat)


def _sglang_engine(line: Line) -> tuple[str, tuple[int, int]]:
    """The engine by process and data-parallel rank, and the rank inside it."""
    ranks = {kind: int(rank) for kind, rank in _RANKS.findall(line.text)}
    engine = " ".join(filter(None, (line.source, f"DP{ranks['DP']}" if "DP" in ranks else "")))
    return engine, (ranks.get("PP", 0), ranks.get("TP", 0))


def _read_sglang(log: LogText, line: Line, reading: _Reading) -> None:
    interval, decode, prefill = (pattern.search(line.text) for pattern in (_LOG_INTERVAL, _DECODE, _PREFILL))
    if interval is not None:
        reading.interval = max(1, int(interval[1]))
    if decode is None and prefill is None:
        return
    if not line.whole:
        log.lose(CUT, line)
        return
    engine, rank = _sglang_engine(line)
    if rank != reading.ranks.setdefault(engine, rank):
        log.lose("lines of other ranks of the same engine", line)
        return
    tokens, idle = reading.prefill.pop(engine, (0, False))
    if prefill is not None:
        began = _PREFILL_RUNNING.search(line.text)
        reading.prefill[engine] = tokens + int(prefill[1]), idle or (began is not None and began[1] == "0")
    if decode is None:
        return
    held, accepted = _TOKENS.search(line.text), _ACCEPTED.search(line.text)
    stat = StatLine(
        line.place,
        _seconds(line.text),
        float(decode[2]),
        int(decode[1]),
        kv_tokens=int(held[1]) if held else 0,
        prefill_tokens=tokens,
        idle=idle,
        accepted=max(1.0, float(accepted[1])) if accepted else 1.0,
    )
    reading.engines.setdefault(engine, []).append(stat)
