"""Replay recorded serving runs: how far is the simulated engine off when it is given the same requests?

The requests of a run, with their arrival times and lengths, go through simulated engines whose step time comes from
layer-time tables, decode attention beside a prefill chunk at the price of the tables' mixed rows. What no table holds
is fitted on the first half of the requests, in order of arrival, and the second half is scored: host overhead, one
constant a step, so that the mean end-to-end latency is right; where GPUs exchange tokens (tensor parallelism, ranks
of a mixture of experts) also that exchange, one constant a token, so that the mean time to first token is right too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calibration.fitting.step_model import hold_out_by_kind
from calibration.serving.engines import replay
from calibration.serving.score import (
    Replayed,
    ReplayReport,
    RunReport,
    Terms,
    end_to_end_seconds,
    first_token_seconds,
    score,
)
from calibration.serving.timelines import EngineSettings, RecordedRun, Timeline, read_run
from calibration.silicon_tables.kernels import ExpertLayers, StepShape, default_capture_sizes, read_kernel_tables
from rlsim.core.errors import ParameterError
from rlsim.costs.step_model import StepTimeModel
from rlsim.engine.requests import EngineLimits

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_HOST_SECONDS = 0.02
LARGEST_ALL_REDUCE_SECONDS = 5e-4
"""Bounds of the fit; the latter is 64 ms for 128 tokens."""
AT_BOUND = 0.999
"""Share of a bound from which a term is said to be at it."""


def replay_report(directory: Path, tables: Path | None = None, config: Path | None = None) -> ReplayReport:
    """Replay the run in ``directory``, or every run in the folders in it, and score it.

    ``tables`` is the folder of the run's layer-time tables; by default the one of its GPU, model and tensor
    parallelism in ``kernel-tables`` beside the run. ``config`` is the model's ``config.json``; by default the one in
    the run's folder, or the catalogue's shape of its name. Raises ``ParameterError`` for files that cannot be used, a
    model whose shape is not known and tables that are not found.
    """
    folders = [directory, *sorted(directory.iterdir())] if directory.is_dir() else []
    runs = [folder for folder in folders if (folder / "requests.jsonl").exists()]
    if not runs:
        raise ParameterError("directory", str(directory), "a folder with requests.jsonl and meta.json, or one of such")
    return ReplayReport(tuple(_replay_folder(folder, tables, config) for folder in runs))


def _replay_folder(folder: Path, tables: Path | None, config: Path | None) -> RunReport:
    run = read_run(folder, config)
    settings, shape = run.settings, step_shape(run)
    kernels = read_kernel_tables(tables or find_tables(folder, settings))
    law = kernels.step_law(shape)
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
        assumptions=tuple(_assumptions(run, replayed)),
        warnings=tuple(bounds_hit(terms)),
        pricing=hold_out_by_kind(law, kernels.step_samples(shape)),
        replayed=replayed,
    )


def step_shape(run: RecordedRun) -> StepShape:
    """What the steps of the run's engine are priced by; routed experts are split over tensor and lockstep ranks."""
    settings, architecture, experts = run.settings, run.architecture, None
    if architecture.experts is not None:
        data_ranks = run.lockstep_ranks
        ranks = settings.tensor_parallel * data_ranks
        experts = ExpertLayers(architecture.moe_layers, architecture.experts, ranks, data_ranks)
    return StepShape(architecture.layers, capture_sizes(settings), experts)


def bounds_hit(terms: Terms) -> Iterator[str]:
    """Terms that are at a bound of their fit."""
    for name, value, bound in (
        ("host overhead", terms.host_seconds, LARGEST_HOST_SECONDS),
        ("the exchange of a token", terms.all_reduce_seconds, LARGEST_ALL_REDUCE_SECONDS),
    ):
        if value >= AT_BOUND * bound:
            yield f"{name} is at its bound {bound:g} s: are the tables of this engine (GPU, model, precision, split)?"


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


def _assumptions(run: RecordedRun, replayed: Replayed) -> Iterator[str]:
    settings = run.settings
    yield "no prompt shares a prefix with another (token ids are not recorded)"
    yield "a request arrives when the engine has read it from its input (queued_ts)"
    if settings.data_parallel > 1:
        how = "in lockstep, as experts meet" if run.lockstep_ranks > 1 else "each an engine of its own"
        yield f"{settings.data_parallel} data-parallel ranks {how}; a request goes to the least loaded"
    if run.architecture.experts is not None:
        yield "tokens are routed evenly over the experts"
    if settings.pipeline_parallel > 1:
        stages = settings.pipeline_parallel
        yield f"{stages} pipeline stages are priced as one GPU; their exchange is in the host overhead"
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


# -- fit --------------------------------------------------------------------------------------------------


def with_terms(law: StepTimeModel, terms: Terms) -> StepTimeModel:
    """``law`` with the fitted terms: a constant a step and, in the dense part, a constant a token."""
    reduce = terms.all_reduce_seconds
    dense = tuple(work + reduce * tokens for tokens, work in zip(law.tokens, law.dense_seconds, strict=True))
    return replace(law, dense_seconds=dense).calibrated(offset_seconds=terms.host_seconds)


def fit_terms(run: RecordedRun, limits: EngineLimits, law: StepTimeModel, asynchronous: bool) -> Terms:
    """The terms that bring the mean latencies of the first half right, with all requests simulated.

    On one GPU the host overhead alone, by the mean end-to-end latency; where GPUs exchange tokens both terms, by the
    least squared relative errors of that and of the mean time to first token.
    """
    from scipy.optimize import minimize, minimize_scalar

    half = len(run.timelines) // 2
    if half == 0:
        raise ParameterError("requests.jsonl", len(run.timelines), "at least two requests")
    measured = _mean_latencies(run.timelines[:half])

    def errors(terms: Terms) -> NDArray[np.float64]:
        simulated = replay(run, limits, with_terms(law, terms), asynchronous)
        return _mean_latencies(simulated.timelines[:half]) / measured - 1.0

    if run.settings.tensor_parallel * run.lockstep_ranks == 1:
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
