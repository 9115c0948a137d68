"""A run as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Format: "Trace Event Format" (Google); times are microseconds, here with three decimals, since the start of the run.
"""

from __future__ import annotations

import gzip
import heapq
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlsim.results.curves import (
    ENGINE,
    TRAINER,
    Curve,
    Tables,
    curve,
    groups_waiting,
    publications,
    replicas,
    samples_decoding,
    samples_in_flight,
)
from rlsim.results.store import replacing

if TYPE_CHECKING:
    from pandas import DataFrame

TraceEvent = dict[str, Any]

ROLLOUT_PROCESS, TRAINER_PROCESS, TOOLS_PROCESS = 1, 2, 3
MOST_SLICES = 400_000
"""More than this and the viewer stalls: adjacent windows of a replica are merged."""
MOST_POINTS = 50_000
"""Points of one counter."""
MOST_LANES = 64
"""Tool or reward calls drawn at once; all are counted."""


def write_trace(
    path: str | os.PathLike[str], tables: Tables, name: str = "rlsim", most_slices: int = MOST_SLICES
) -> None:
    """Write a trace of one run; gzip when ``path`` ends in ``.gz``. The same tables give the same bytes.

    ``name`` heads the process names. The file appears under its name only when it is complete.
    """
    with replacing(path) as part, part.open("wb") as raw:
        lines = (line.encode() for line in _lines(tables, name, most_slices))
        if Path(path).suffix != ".gz":
            raw.writelines(lines)
            return
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
            packed.writelines(lines)


def _lines(tables: Tables, name: str, most_slices: int) -> Iterator[str]:
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    separator = ""
    for event in trace_events(tables, name, most_slices):
        yield separator + json.dumps(event, separators=(",", ":"), allow_nan=False)
        separator = ",\n"
    yield "\n]}\n"


def trace_events(tables: Tables, name: str = "rlsim", most_slices: int = MOST_SLICES) -> Iterator[TraceEvent]:
    """Trace events of one run: names, slices, counters, then instants.

    A process per role, a thread per replica; tool and reward calls fill as many lanes as run at once. Beyond
    ``most_slices`` adjacent windows of a replica become one slice that says how many it holds.
    """
    services = _lanes(tables["services"])
    yield from _names(tables, services, name)
    yield from _activity_slices(tables["activity"], most_slices - len(services))
    for lane, what, start, end, sample in services:
        yield _slice(TOOLS_PROCESS, lane, what, start, end, {"sample": sample})
    yield from _counter("samples in flight", ROLLOUT_PROCESS, samples_in_flight(tables))
    yield from _counter("samples decoding", ROLLOUT_PROCESS, samples_decoding(tables))
    yield from _counter("complete groups waiting", TRAINER_PROCESS, groups_waiting(tables))
    for service, calls in tables["services"].groupby("what", sort=True):
        running = curve(calls["start_seconds"], calls["end_seconds"])
        yield from _counter(f"{service} calls running", TOOLS_PROCESS, running)
    for version, seconds in enumerate(publications(tables).tolist(), start=1):
        yield _instant(f"version {version}", TRAINER_PROCESS, "g", seconds)
    gates = tables["gates"]
    for seconds, gate in zip(gates["start_seconds"].tolist(), gates["gate"].tolist(), strict=True):
        yield _instant(f"gate: {gate or 'open'}", ROLLOUT_PROCESS, "p", seconds)


# -- names ------------------------------------------------------------------------------------------------


def _names(tables: Tables, services: list[_Service], name: str) -> Iterator[TraceEvent]:
    for process, role in ((ROLLOUT_PROCESS, "rollout"), (TRAINER_PROCESS, "trainer"), (TOOLS_PROCESS, "tools")):
        if process != TOOLS_PROCESS or services:
            yield _metadata("process_name", process, 0, name=f"{name}: {role}")
            yield _metadata("process_sort_index", process, 0, sort_index=process)
    for replica in replicas(tables):
        yield _metadata("thread_name", ROLLOUT_PROCESS, _thread(replica), name=f"replica {replica}")
        yield _metadata("thread_sort_index", ROLLOUT_PROCESS, _thread(replica), sort_index=replica)
    yield _metadata("thread_name", TRAINER_PROCESS, _thread(TRAINER), name="trainer")
    for lane, what in sorted({(lane, what) for lane, what, *_ in services}):
        yield _metadata("thread_name", TOOLS_PROCESS, lane, name=f"{what} {lane % MOST_LANES}")


def _metadata(kind: str, process: int, thread: int, **args: Any) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": args}


def _thread(who: int) -> int:
    return 1 if who == TRAINER else who + 1


# -- slices -----------------------------------------------------------------------------------------------

_Rows = dict[str, NDArray[Any]]
_Service = tuple[int, str, int, int, int]
"""lane, what, start and end in nanoseconds, sample"""


def _slice(process: int, thread: int, name: str, start: int, end: int, args: dict[str, Any]) -> TraceEvent:
    times = {"ts": start / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "name": name, "pid": process, "tid": thread, **times, "args": args}


def _activity_slices(activity: DataFrame, most: int) -> Iterator[TraceEvent]:
    rows = _rows(activity)
    first = _merged(rows, most)
    if not len(first):
        return
    last = np.append(first[1:], len(rows["who"])) - 1
    size = last - first + 1
    steps = np.add.reduceat(rows["steps"], first)
    prefill = np.add.reduceat(rows["prefill_tokens"], first)
    decodes = np.add.reduceat(rows["decodes"] * rows["steps"], first)
    engine = np.isin(rows["what"], ENGINE)
    for index, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        who, whats = int(rows["who"][begin]), rows["what"][begin : end + 1]
        is_one = (whats == whats[0]).all()
        what = str(whats[0]).replace("idle:", "idle: ") if is_one else "decode and prefill"
        process = TRAINER_PROCESS if who == TRAINER else ROLLOUT_PROCESS
        args: dict[str, Any] = {}
        if engine[begin]:
            count = max(int(steps[index]), 1)
            args = {"steps": int(steps[index]), "decodes": _mean(int(decodes[index]), count)}
            args |= {"prefill_tokens": int(prefill[index]), "kv_tokens": int(rows["kv_tokens"][end])}
        if size[index] > 1:
            args["windows"] = int(size[index])
        yield _slice(process, _thread(who), what, int(rows["start"][begin]), int(rows["end"][end]), args)


def _mean(total: int, count: int) -> int | float:
    return total // count if total % count == 0 else round(total / count, 1)


def _rows(activity: DataFrame) -> _Rows:
    ordered = activity.sort_values(["who", "start_seconds", "end_seconds"], kind="stable")
    rows: _Rows = {name: ordered[name].to_numpy(np.int64) for name in ("who", "steps", "decodes")}
    rows |= {name: ordered[name].to_numpy(np.int64) for name in ("prefill_tokens", "kv_tokens")}
    rows["what"] = ordered["what"].to_numpy(object)
    rows["start"], rows["end"] = _nanoseconds(ordered["start_seconds"]), _nanoseconds(ordered["end_seconds"])
    return rows


def _nanoseconds(seconds: Any) -> NDArray[np.int64]:
    return np.rint(np.asarray(seconds, float) * 1e9).astype(np.int64)


def _merged(rows: _Rows, most: int) -> NDArray[np.int64]:
    """First row of each slice, with as little merging as ``most`` slices allow.

    First decode windows that touch, then whatever engine windows follow each other: by twos, fours, and so on.
    """
    count = len(rows["who"])
    if count <= most:
        return np.arange(count)
    engine, decode = np.isin(rows["what"], ENGINE), rows["what"] == "decode"
    touch = rows["start"][1:] == rows["end"][:-1]
    same = rows["who"][1:] == rows["who"][:-1]
    follows = [same & decode[1:] & decode[:-1] & touch, same & engine[1:] & engine[:-1]]
    first = np.arange(count)
    for joined in follows:
        size = 1
        while len(first) > most and size < count:
            size *= 2
            # Where a slice of at most ``size`` rows begins; ``joined[i]`` says that row i + 1 may continue row i.
            begins = np.append(True, ~joined)
            place = np.arange(len(begins))
            within = place - np.maximum.accumulate(np.where(begins, place, 0))
            first = np.flatnonzero(within % size == 0)
    return first


def _lanes(services: DataFrame) -> list[_Service]:
    """Tool and reward calls on the lowest free lane; calls beyond the last lane are left to the counter."""
    slices: list[_Service] = []
    for place, (what, calls) in enumerate(services.groupby("what", sort=True)):
        ordered = calls.sort_values(["start_seconds", "sample"], kind="stable")
        free, busy = list(range(MOST_LANES)), list[tuple[int, int]]()
        starts, ends = _nanoseconds(ordered["start_seconds"]), _nanoseconds(ordered["end_seconds"])
        for start, end, sample in zip(starts.tolist(), ends.tolist(), ordered["sample"].tolist(), strict=True):
            while busy and busy[0][0] <= start:
                heapq.heappush(free, heapq.heappop(busy)[1])
            if free:
                lane = heapq.heappop(free)
                heapq.heappush(busy, (end, lane))
                slices.append((place * MOST_LANES + lane, str(what), start, end, int(sample)))
    return slices


# -- counters and instants --------------------------------------------------------------------------------


def _counter(name: str, process: int, curve: Curve) -> Iterator[TraceEvent]:
    every = max(1, -(-len(curve.seconds) // MOST_POINTS))
    kept = np.unique(np.append(np.arange(0, len(curve.seconds), every), max(len(curve.seconds) - 1, 0)))
    for index in kept.tolist() if len(curve.seconds) else []:
        at = int(_nanoseconds(curve.seconds[index]))
        args = {"value": int(curve.values[index])}
        yield {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": at / 1000, "args": args}


def _instant(name: str, process: int, scope: str, seconds: float) -> TraceEvent:
    at = int(_nanoseconds(seconds))
    return {"ph": "i", "name": name, "pid": process, "tid": 1, "ts": at / 1000, "s": scope}
