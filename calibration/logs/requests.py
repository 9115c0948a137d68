"""A serving run's timelines, request by request: the step law that replays them, and a scenario like them.

With layer-time tables of the GPU the law is theirs, and the terms that no table holds are fitted
(:mod:`calibration.serving.replay`). Without, an affine law is fitted to the first half of the requests
(:mod:`calibration.logs.exposure`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.fitting.robust_regression import hold_out
from calibration.logs.estimates import CONFIDENCE, LogEstimate, check_varies
from calibration.logs.exposure import fit_law
from calibration.logs.profiles import log_profile, profile_source
from calibration.logs.report import LogReport
from calibration.serving.engines import replay
from calibration.serving.replay import engine_limits, find_tables, fit_terms, step_shape, with_terms
from calibration.serving.score import Replayed, Terms, end_to_end_seconds, first_token_seconds, score
from calibration.serving.timelines import RecordedRun, Timeline, read_run
from calibration.silicon_tables.kernels import read_kernel_tables
from rlsim.core.errors import ParameterError
from rlsim.costs.catalogue import device_names, model
from rlsim.costs.evidence import HoldOutError
from rlsim.costs.profile import Profile
from rlsim.costs.step_model import StepTimeModel
from rlsim.scenario.override import override
from rlsim.scenario.schema import Scenario

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_REQUESTS = 40
BLOCKS = 10
"""Runs of consecutive requests whose mean latencies are fitted: single requests are not independent."""
HOST, ALL_REDUCE = "host seconds a step", "all-reduce seconds a token"


def reproduce_requests(
    folder: Path, base: Scenario | None = None, tables: Path | None = None
) -> tuple[LogReport, Scenario, Profile]:
    """Fit on the first half, score the second, and describe the run as a scenario with open arrivals.

    Raises ``ParameterError`` for fewer than 40 requests, requests that are all alike, and without ``base`` when the
    folder's name does not begin with a GPU that the catalogue knows.
    """
    run = read_run(folder)
    if len(run.timelines) < FEWEST_REQUESTS:
        raise ParameterError(run.name, f"{len(run.timelines)} requests", f"at least {FEWEST_REQUESTS}")
    table = np.array([timeline[:2] for timeline in run.timelines], dtype=float)
    check_varies(run.name, "output_toks", table[:, 1], "the cost of a decode step")
    scenario = base or _scenario(run, folder)
    law, estimates, columns, unknown = _fit(run, folder, tables)
    asynchronous = run.settings.async_scheduling is not False
    half = len(run.timelines) // 2
    replayed = replay(run, engine_limits(run), law, asynchronous)
    errors = _errors(run, replayed, half)
    rows = {row.statistic: row for row in score(run, replayed, half)}
    said = [f"{name} {rows[name].error:+.1%}" for name in ("TTFT mean", "TPOT mean", "end-to-end mean", "makespan")]
    report = LogReport(
        title=f"{run.name}: timelines of {len(run.timelines)} requests, 1 to {half} fitted",
        columns=columns,
        estimates=estimates,
        unidentified=(*unknown, *_not_recorded(run)),
        notes=("the scenario draws arrivals and lengths from laws; errors are of the recorded ones, replayed",),
        held_out=errors,
        summary=f"requests {half + 1} to {len(run.timelines)}. " + ", ".join(said),
    )
    return (
        report,
        override(scenario, {"rollout.step_time": profile_source(0.0)}),
        _profile(run, scenario, law, errors),
    )


def _fit(
    run: RecordedRun, folder: Path, tables: Path | None
) -> tuple[StepTimeModel, tuple[LogEstimate, ...], dict[str, str], list[str]]:
    limits, asynchronous = engine_limits(run), run.settings.async_scheduling is not False
    columns = {"lengths": "input_toks, output_toks", "times": "queued_ts, first_token_ts, last_token_ts"}
    kernels = tables
    if kernels is None:
        with suppress(ParameterError):
            kernels = find_tables(folder, run.settings)
    measured = _latencies(run.timelines)

    def residuals(law: StepTimeModel) -> NDArray[np.float64]:
        return _latencies(replay(run, limits, law, asynchronous).timelines) / measured - 1.0

    if kernels is None:
        law, estimates, unknown = fit_law(run, limits, asynchronous)
        return law, estimates, columns, [*unknown, "pairs of prefill attention: not told from prompt tokens"]
    priced = read_kernel_tables(kernels).step_law(step_shape(run))
    terms = fit_terms(run, limits, priced, asynchronous)
    values = np.array([terms.host_seconds, terms.all_reduce_seconds][: terms.free_parameters])
    columns["step law"] = f"layer-time tables {kernels.name}"
    source = "mean latencies, all requests replayed"
    reach = _reach(values, lambda at: residuals(with_terms(priced, Terms(*at))))
    names = (HOST, ALL_REDUCE)[: len(values)]
    estimates = tuple(
        LogEstimate(name, float(value), float(value - half), float(value + half), source)
        for name, value, half in zip(names, values, reach, strict=True)
    )
    return with_terms(priced, terms), estimates, columns, []


def _latencies(timelines: tuple[Timeline, ...]) -> NDArray[np.float64]:
    """Means of both latencies in blocks of the first half."""
    half = timelines[: len(timelines) // 2]
    parts = [np.array_split(each(half), BLOCKS) for each in (first_token_seconds, end_to_end_seconds)]
    return np.array([part.mean() for blocks in parts for part in blocks])


def _reach(
    values: NDArray[np.float64], residuals: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Half the intervals of fitted values, from how the errors that are left turn with them."""
    at = residuals(values)
    steps = np.maximum(np.abs(values), 1e-5) * 0.02 + 1e-6
    jacobian = np.stack([(residuals(values + one) - at) / one.sum() for one in np.diag(steps)], axis=1)
    from scipy.stats import t

    freedom = len(at) - jacobian.shape[1]
    variance = float((at**2).sum()) / freedom
    covariance = variance * np.linalg.pinv(jacobian.T @ jacobian)
    reach: NDArray[np.float64] = float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * np.sqrt(np.diag(covariance))
    return reach


def _errors(run: RecordedRun, replayed: Replayed, half: int) -> dict[str, HoldOutError]:
    by_latency = {}
    for name, latency in (("first token", first_token_seconds), ("end to end", end_to_end_seconds)):
        measured, predicted = latency(run.timelines[half:]), latency(replayed.timelines[half:])
        names = [f"request {number}" for number in range(half + 1, len(run.timelines) + 1)]
        by_latency[name] = hold_out(predicted, np.maximum(measured, 1e-9), names)
    return by_latency


def _not_recorded(run: RecordedRun) -> list[str]:
    settings = run.settings
    said = ["prefix hits: token ids are not recorded; none assumed"]
    if settings.kv_blocks is None:
        said.append("KV blocks: not recorded; as many as the requests need")
    if settings.async_scheduling is None:
        said.append("asynchronous scheduling: not recorded; on")
    return said


def _profile(run: RecordedRun, scenario: Scenario, law: StepTimeModel, errors: dict[str, HoldOutError]) -> Profile:
    settings = run.settings
    return log_profile(
        override(scenario, {"model": model(scenario.model).name}),
        scenario.cluster.device,
        law,
        errors["end to end"],
        errors,
        source="timelines",
        method="latencies of replayed requests",
        engine="vllm",
        engine_version=settings.engine_version,
        kv_capacity_tokens=None if settings.kv_blocks is None else settings.kv_blocks * settings.block_size,
        notes=f"{len(run.timelines)} requests of {run.name}",
    )


def _scenario(run: RecordedRun, folder: Path) -> Scenario:
    """The run as a scenario: lengths as they were, arrivals at random at their mean rate, no training."""
    settings, timelines = run.settings, run.timelines
    limits, gpus, ranks = engine_limits(run), settings.tensor_parallel * settings.data_parallel, run.lockstep_ranks
    rate = (len(timelines) - 1) / max(timeline.queued_seconds for timeline in timelines)
    admission = {"use": "open-arrivals", "requests_per_second": round(rate, 4)}
    tree: dict[str, Any] = {
        "name": f"{run.name}, as recorded",
        "model": run.model,
        "cluster": {"device": _device(folder), "gpus": 2 * gpus},
        "rollout": {
            "gpus": gpus,
            "tensor_parallel": settings.tensor_parallel,
            "data_parallel": ranks,
            "expert_parallel": settings.tensor_parallel * ranks if settings.expert_parallel else 1,
            "max_num_seqs": limits.max_num_seqs,
            "max_num_batched_tokens": limits.max_num_batched_tokens,
            "max_model_len": limits.max_model_len,
            "block_size": limits.block_size,
            "kv_blocks": limits.kv_blocks,
            "step_time": {"source": "roofline"},
        },
        "trainer": {"gpus": gpus, "mfu": 0.4, "old_log_prob": False, "optimizer_offload": True},
        "workload": {
            "prompts_per_step": len(timelines),
            "group_size": 1,
            "prompt_tokens": {"law": "empirical", "values": [timeline.input_tokens for timeline in timelines]},
            "response_tokens": {"law": "empirical", "values": [timeline.output_tokens for timeline in timelines]},
        },
        "policy": {"parts": {**_SERVING, "admission": admission}},
        "run": {"steps": 2, "warmup_steps": 1, "replications": 2},
    }
    return Scenario.model_validate(tree)


_SERVING: dict[str, Any] = {
    "batching": {"use": "complete-groups"},
    "update": {"use": "publish", "mode": "keep", "every_steps": 1_000_000},
    "leftovers": {"use": "keep-all"},
    "dispatch": {"use": "least-in-flight"},
    "placement": {"use": "disaggregated"},
}


def _device(folder: Path) -> str:
    """The GPU that the folder's name begins with."""
    prefix = folder.resolve().name.split("_")[0].lower()
    for name in device_names():
        if name.lower().replace("-", "").replace(" ", "") == prefix.replace("-", ""):
            return name
    allowed = f"a scenario that names the GPU, or a folder named GPU_model ({', '.join(device_names())})"
    raise ParameterError("--base", f"a run in {folder.name}", allowed)
