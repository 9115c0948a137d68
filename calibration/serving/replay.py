"""Replay recorded serving runs: how far is the simulated engine off when it is given the same requests?

The requests of a run, with their arrival times and lengths, go through one simulated replica whose step time comes from
layer-time tables, decode attention beside a prefill chunk at the price of the tables' mixed rows. What no table holds
is fitted on the first half of the requests, in order of arrival, and the second half is scored: host overhead, one
constant a step, so that the mean end-to-end latency is right; with tensor parallelism also the all-reduce, one
constant a token, so that the mean time to first token is right too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calibration.fitting.step_model import hold_out_by_kind
from calibration.serving.score import (
    Replayed,
    ReplayReport,
    RunReport,
    Terms,
    end_to_end_seconds,
    first_token_seconds,
    score,
)
from calibration.serving.timelines import EngineSettings, Gauge, RecordedRun, Timeline, read_run
from calibration.silicon_tables.kernels import default_capture_sizes, read_kernel_tables
from rlsim.core.errors import ParameterError
from rlsim.core.log import WindowRow
from rlsim.core.ticks import Ticks, to_seconds, to_ticks
from rlsim.costs.catalogue import model
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.replica import Replica
from rlsim.engine.requests import EngineLimits, Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_HOST_SECONDS = 0.02
LARGEST_ALL_REDUCE_SECONDS = 5e-4
"""Bounds of the fit; the latter is 64 ms for 128 tokens."""


def replay_report(directory: Path, tables: Path | None = None) -> ReplayReport:
    """Replay the run in ``directory``, or every run in the folders in it, and score it.

    ``tables`` is the folder of the run's layer-time tables; by default the one of its GPU, model and tensor
    parallelism in ``kernel-tables`` beside the run. Raises ``ParameterError`` for files that cannot be used, a
    model that the catalogue does not know and tables that are not found.
    """
    folders = [directory, *sorted(directory.iterdir())] if directory.is_dir() else []
    runs = [folder for folder in folders if (folder / "requests.jsonl").exists()]
    if not runs:
        raise ParameterError("directory", str(directory), "a folder with requests.jsonl and meta.json, or one of such")
    return ReplayReport(tuple(_replay_folder(folder, tables) for folder in runs))


def _replay_folder(folder: Path, tables: Path | None) -> RunReport:
    run = read_run(folder)
    settings = run.settings
    layers, captured = model(settings.model).layers, capture_sizes(settings)
    kernels = read_kernel_tables(tables or find_tables(folder, settings))
    law = kernels.step_law(layers, captured)
    limits, asynchronous = engine_limits(run), settings.async_scheduling is not False
    terms = fit_terms(run, limits, law, asynchronous)
    replayed = replay(run, limits, with_terms(law, terms), asynchronous)
    half = len(run.timelines) // 2
    return RunReport(
        name=run.name,
        fitted=half,
        scored=len(run.timelines) - half,
        terms=terms,
        rows=tuple(score(run, replayed, half)),
        assumptions=tuple(_assumptions(settings, replayed)),
        pricing=hold_out_by_kind(law, kernels.step_samples(layers, captured)),
        replayed=replayed,
    )


def find_tables(folder: Path, settings: EngineSettings) -> Path:
    """The tables of a run named ``gpu_model`` among ``kernel-tables/gpu_organisation_model_dtype_tpN`` beside it."""
    gpu, name = folder.name.split("_")[0], settings.model.rsplit("/", 1)[-1].lower()
    ending = f"_tp{settings.tensor_parallel}"

    def matches(folder: str) -> bool:
        return folder.startswith(f"{gpu.lower()}_") and f"_{name}_" in folder and folder.endswith(ending)

    tables = sorted((folder.resolve().parent / "kernel-tables").glob("*/dense.csv"))
    fitting = [file.parent for file in tables if matches(file.parent.name.lower())]
    if len(fitting) != 1:
        names = [file.parent.name for file in tables]
        raise ParameterError("tables", names, f"exactly one folder {gpu}_..._{name}_...{ending} in kernel-tables")
    return fitting[0]


def engine_limits(run: RecordedRun) -> EngineLimits:
    """The run's own limits; where the KV blocks are not recorded, so many that they never run short."""
    settings = run.settings
    longest = max(timeline.input_tokens + timeline.output_tokens for timeline in run.timelines)
    ample = settings.max_num_seqs * -(-longest // settings.block_size)
    return EngineLimits(
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_model_len=longest,
        block_size=settings.block_size,
        kv_blocks=ample if settings.kv_blocks is None else settings.kv_blocks,
        enable_prefix_caching=settings.enable_prefix_caching is not False,
    )


def capture_sizes(settings: EngineSettings) -> tuple[int, ...]:
    """Batch sizes with a CUDA graph, as recorded, or vLLM's default."""
    recorded = settings.capture_sizes
    return default_capture_sizes(settings.max_num_seqs) if recorded is None else recorded


def _assumptions(settings: EngineSettings, replayed: Replayed) -> Iterator[str]:
    yield "no prompt shares a prefix with another (token ids are not recorded)"
    yield "a request arrives when the engine has read it from its input (queued_ts)"
    if settings.kv_blocks is None:
        used = replayed.peak_kv_blocks
        tokens = used * settings.block_size
        yield f"KV blocks are not recorded: never short; about {used} of them, {tokens} tokens, are used"
    if settings.enable_prefix_caching is None:
        yield "prefix caching is not recorded: on"
    if settings.async_scheduling is not False:
        recorded = "is recorded" if settings.async_scheduling else "is not recorded: on"
        yield f"asynchronous scheduling {recorded}; a request is scheduled a step later than it would be otherwise"
    if settings.capture_sizes is None:
        yield "CUDA-graph sizes are not recorded: vLLM's default for max_num_seqs"


# -- simulation -------------------------------------------------------------------------------------------


def replay(run: RecordedRun, limits: EngineLimits, law: StepTimeModel, asynchronous: bool) -> Replayed:
    """Simulate the requests of ``run`` on one replica.

    ``asynchronous``: step N+1 is decided while step N runs, so a request that arrives during N enters N+2.
    Raises ``ParameterError`` when a request can never be admitted.
    """
    return _Replay(run.timelines, limits, law, asynchronous).run()


class _Replay:
    """One replica and the arrivals that are still to come."""

    def __init__(
        self, timelines: Sequence[Timeline], limits: EngineLimits, law: StepTimeModel, asynchronous: bool
    ) -> None:
        self._recorded, self._limits, self._asynchronous = timelines, limits, asynchronous
        self._replica = Replica(0, limits, law.quantise(limits.max_num_batched_tokens, limits.max_num_seqs))
        self._scheduler = self._replica.ranks[0]
        self._arrivals = [to_ticks(timeline.queued_seconds) for timeline in timelines]
        self._requests = [
            Request(sample, sample, timeline.input_tokens, timeline.input_tokens, timeline.output_tokens)
            for sample, timeline in enumerate(timelines)
        ]
        self._ends = [0] * len(timelines)
        self._left, self._now, self._next = len(timelines), 0, 0
        self._noticed: list[Request] = []
        """Arrived while the step now to begin was already decided."""
        self._gauges: list[Gauge] = []
        self._windows: list[WindowRow] = []
        self._least_free = limits.kv_blocks

    def run(self) -> Replayed:
        while self._left:
            arrived = []
            while self._next < len(self._arrivals) and self._arrivals[self._next] <= self._now:
                arrived.append(self._requests[self._next])
                self._next += 1
            idle = not self._scheduler.running_count and not self._noticed
            waits = self._asynchronous and not idle
            admitted, self._noticed = (self._noticed, arrived) if waits else (self._noticed + arrived, [])
            for request in admitted:
                request.arrival = self._now
                self._replica.submit(request)
            end = self._replica.begin(self._now)
            if end is not None:
                self._run_window(end)
            elif not self._noticed:
                if self._next == len(self._arrivals):
                    raise ParameterError("kv_blocks", self._limits.kv_blocks, "enough for the longest request")
                self._now = self._arrivals[self._next]
        self._gauges.append(Gauge(to_seconds(self._now), 0, 0))
        scheduler = self._scheduler
        peak = self._limits.kv_blocks - self._least_free
        return Replayed(
            tuple(self._timelines()),
            tuple(self._gauges),
            self._replica.total_steps,
            scheduler.preemptions,
            peak,
            tuple(self._windows),
        )

    def _run_window(self, end: Ticks) -> None:
        if self._noticed:
            end = _earlier(self._replica.cut(self._now), end)
        if self._next < len(self._arrivals) and self._arrivals[self._next] < end:
            end = _earlier(self._replica.cut(self._arrivals[self._next]), end)
        self._windows.append(self._replica.window(end))
        scheduler = self._scheduler
        waiting = scheduler.waiting_count + len(self._noticed)
        self._least_free = min(self._least_free, scheduler.free_blocks)
        self._gauges.append(Gauge(to_seconds(self._now), scheduler.running_count, waiting))
        for request in self._replica.end(end):
            self._ends[request.sample] = end
            self._left -= 1
        self._now = end

    def _timelines(self) -> Iterator[Timeline]:
        for recorded, request, end in zip(self._recorded, self._requests, self._ends, strict=True):
            first = to_seconds(request.first_token)
            yield recorded._replace(first_token_seconds=first, last_token_seconds=to_seconds(end))


def _earlier(cut: Ticks | None, end: Ticks) -> Ticks:
    return end if cut is None else cut


# -- fit --------------------------------------------------------------------------------------------------


def with_terms(law: StepTimeModel, terms: Terms) -> StepTimeModel:
    """``law`` with the fitted terms: a constant a step and, in the dense part, a constant a token."""
    reduce = terms.all_reduce_seconds
    dense = tuple(work + reduce * tokens for tokens, work in zip(law.tokens, law.dense_seconds, strict=True))
    return replace(law, dense_seconds=dense).calibrated(offset_seconds=terms.host_seconds)


def fit_terms(run: RecordedRun, limits: EngineLimits, law: StepTimeModel, asynchronous: bool) -> Terms:
    """The terms that bring the mean latencies of the first half right, with all requests simulated.

    On one GPU the host overhead alone, by the mean end-to-end latency; on several both terms, by the least squared
    relative errors of that and of the mean time to first token.
    """
    from scipy.optimize import minimize, minimize_scalar

    half = len(run.timelines) // 2
    if half == 0:
        raise ParameterError("requests.jsonl", len(run.timelines), "at least two requests")
    measured = _mean_latencies(run.timelines[:half])

    def errors(terms: Terms) -> NDArray[np.float64]:
        simulated = replay(run, limits, with_terms(law, terms), asynchronous)
        return _mean_latencies(simulated.timelines[:half]) / measured - 1.0

    if run.settings.tensor_parallel == 1:
        bounds = (0.0, LARGEST_HOST_SECONDS)
        scalar_fit = minimize_scalar(
            lambda host: float(errors(Terms(host))[1] ** 2),
            bounds=bounds,
            method="bounded",
            options={"xatol": 1e-6},
        )
        return Terms(float(scalar_fit.x))
    largest = np.array([LARGEST_HOST_SECONDS, LARGEST_ALL_REDUCE_SECONDS])

    def loss(shares: NDArray[np.float64]) -> float:
        return float((errors(Terms(*(shares * largest).tolist())) ** 2).sum())

    fit = minimize(
        loss,
        x0=np.array([0.1, 0.1]),
        bounds=[(0.0, 1.0)] * 2,
        method="Nelder-Mead",
        options={"xatol": 1e-4, "fatol": 1e-10, "maxfev": 200},
    )
    return Terms(*(fit.x * largest).tolist())


def _mean_latencies(timelines: Sequence[Timeline]) -> NDArray[np.float64]:
    """Mean latencies of the first token and end to end."""
    return np.array([first_token_seconds(timelines).mean(), end_to_end_seconds(timelines).mean()])
