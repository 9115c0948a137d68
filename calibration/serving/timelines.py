"""Recorded serving runs: when each request was queued, got its first and its last token, and the engine's settings.

A folder holds ``requests.jsonl`` (one JSON object a line: input_toks, output_toks and, in seconds on the engine's
clock, queued_ts, first_token_ts, last_token_ts), ``meta.json`` (model, engine_kwargs and, where recorded, started_at,
kv_cache and resolved_config of vLLM) and, if there is one, ``timeseries.csv`` (t, running, waiting).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from calibration.logs.records import json_object
from rlsim.core.errors import ParameterError
from rlsim.costs.architecture import Architecture
from rlsim.costs.catalogue import model
from rlsim.costs.fields import Fields, read_json_object

LIMIT_BYTES = 500_000_000
META_LIMIT_BYTES = 5_000_000
CONFIG = "config.json"


class Timeline(NamedTuple):
    """One request; seconds since the first request of the run was queued."""

    input_tokens: int
    output_tokens: int
    queued_seconds: float
    first_token_seconds: float
    last_token_seconds: float


class Gauge(NamedTuple):
    """Requests that ran and waited at one instant, seconds since the first request was queued."""

    seconds: float
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the run's ``meta.json`` says of its engine; None where it does not."""

    model: str
    engine_version: str
    tensor_parallel: int
    max_num_seqs: int
    max_num_batched_tokens: int
    data_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: bool = False
    block_size: int = 16
    kv_blocks: int | None = None
    """Blocks requests can hold: vLLM's ``num_gpu_blocks`` less its null block."""
    enable_prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    capture_sizes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run as it was measured, requests in the order in which they were queued."""

    name: str
    settings: EngineSettings
    timelines: tuple[Timeline, ...]
    gauges: tuple[Gauge, ...] = ()
    config: Path | None = None
    """The model's ``config.json``, where it is not looked up by name."""

    @property
    def model(self) -> str:
        """What a scenario calls the model: its name, or its ``config.json``."""
        return self.settings.model if self.config is None else str(self.config)

    @property
    def architecture(self) -> Architecture:
        """Shape of the model; ``ParameterError`` for a name that the catalogue does not know."""
        return model(self.model, "meta.json: model")

    @property
    def lockstep_ranks(self) -> int:
        """Data-parallel ranks that step together: those of a mixture of experts."""
        ranks = self.settings.data_parallel
        return ranks if ranks > 1 and self.architecture.experts is not None else 1


def read_run(directory: Path, config: Path | None = None) -> RecordedRun:
    """The run in a folder; the model's shape is that of ``config``, of ``config.json`` in the folder, or its name's.

    Raises ``ParameterError`` naming file, line and key for what is missing, too large or cannot be.
    """
    meta = Fields(read_json_object(directory / "meta.json", META_LIMIT_BYTES, "meta.json"), "meta.json", "meta.json")
    lines = list(_request_lines(directory / "requests.jsonl"))
    if not lines:
        raise ParameterError("requests.jsonl", "no requests", "one JSON object a line")
    start = min(line.number("queued_ts") for line in lines)
    timelines = []
    for line in lines:
        queued, first, last = (line.number(key) - start for key in ("queued_ts", "first_token_ts", "last_token_ts"))
        if not queued <= first <= last:
            raise line.fault("first_token_ts", "a time from queued_ts to last_token_ts")
        timelines.append(Timeline(line.integer("input_toks"), line.integer("output_toks"), queued, first, last))
    timelines.sort(key=lambda timeline: timeline.queued_seconds)
    gauges = directory / "timeseries.csv"
    offset = _sampling_offset(meta, lines)
    return RecordedRun(
        name=directory.name,
        settings=_settings(meta),
        timelines=tuple(timelines),
        gauges=tuple(_gauges(gauges, offset)) if gauges.exists() else (),
        config=config or (directory / CONFIG if (directory / CONFIG).exists() else None),
    )


def _request_lines(file: Path) -> Iterator[Fields]:
    try:
        if file.stat().st_size > LIMIT_BYTES:
            raise ParameterError(file.name, f"{file.stat().st_size} bytes", f"at most {LIMIT_BYTES} bytes")
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(file.name, str(file), f"a readable file ({error})") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield Fields(json_object(line, f"{file.name}:{number}"), f"{file.name}:{number}", file.name)


def _settings(meta: Fields) -> EngineSettings:
    kwargs = meta.child("engine_kwargs")
    cache = _optional(meta, "kv_cache")
    resolved = _optional(meta, "resolved_config")
    blocks = cache.tree.get("num_gpu_blocks")
    captured = _optional(resolved, "compilation_config")
    return EngineSettings(
        model=meta.text("model"),
        engine_version=meta.text("vllm_version", default="unknown"),
        tensor_parallel=kwargs.integer("tensor_parallel_size", default=1),
        max_num_seqs=kwargs.integer("max_num_seqs"),
        max_num_batched_tokens=kwargs.integer("max_num_batched_tokens"),
        data_parallel=kwargs.integer("data_parallel_size", default=1),
        expert_parallel=_flag(kwargs, "enable_expert_parallel") is True,
        pipeline_parallel=kwargs.integer("pipeline_parallel_size", default=1),
        block_size=cache.integer("block_size", default=16),
        kv_blocks=None if blocks is None else cache.integer("num_gpu_blocks", least=2) - 1,
        enable_prefix_caching=_flag(cache, "enable_prefix_caching"),
        async_scheduling=_flag(_optional(resolved, "scheduler_config"), "async_scheduling"),
        capture_sizes=_sizes(captured),
    )


def _optional(parent: Fields, key: str) -> Fields:
    """The mapping at ``key``, an empty one where it is not recorded."""
    return parent.child(key) if parent.tree.get(key) is not None else Fields({}, f"{parent.origin}: {key}", parent.path)


def _flag(parent: Fields, key: str) -> bool | None:
    value = parent.tree.get(key)
    if value is not None and not isinstance(value, bool):
        raise parent.fault(key, "true or false")
    return value


def _sizes(captured: Fields) -> tuple[int, ...] | None:
    if captured.tree.get("cudagraph_capture_sizes") is None:
        return None
    sizes = tuple(sorted(captured.integers("cudagraph_capture_sizes")))
    if sizes[0] < 1:
        raise captured.fault("cudagraph_capture_sizes", "whole numbers >= 1")
    return sizes


def _sampling_offset(meta: Fields, lines: list[Fields]) -> float:
    """Seconds from the start of sampling to the first arrival; 0 where the wall clock was not recorded."""
    if "started_at" not in meta.tree or any("arrival_time" not in line.tree for line in lines):
        return 0.0
    try:
        started = datetime.fromisoformat(meta.text("started_at")).timestamp()
    except ValueError as error:
        raise meta.fault("started_at", "an ISO date and time") from error
    return min(line.number("arrival_time") for line in lines) - started


def _gauges(file: Path, offset: float) -> Iterator[Gauge]:
    reader = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    for line, row in enumerate(reader, start=2):
        try:
            gauge = Gauge(float(row["t"]) - offset, int(row["running"]), int(row["waiting"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ParameterError(f"{file.name}:{line}", row, "numbers t, running, waiting") from error
        if not math.isfinite(gauge.seconds) or min(gauge.running, gauge.waiting) < 0:
            raise ParameterError(f"{file.name}:{line}", row, "finite numbers, counts >= 0")
        yield gauge
