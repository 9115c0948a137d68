"""A serving run's timelines, request by request: the step law that replays them, and a scenario like them.

With layer-time tables of the GPU the law is theirs, and the terms that no table holds are fitted
(:mod:`calibration.replay`). Without, an affine law is fitted to the first half of the requests, all of them being simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.kernel_tables import read_kernel_tables
from calibration.replay import capture_sizes, engine_limits, find_tables, fit_terms, replay, with_terms
from calibration.replay_score import Replayed, Terms, end_to_end_seconds, first_token_seconds, score
from calibration.runlogs.estimates import CONFIDENCE, Estimate, check_varies
from calibration.runlogs.matching import with_settings
from calibration.runlogs.report import Report
from calibration.runlogs.reproduce import PROFILE
from calibration.timelines import RecordedRun, Timeline, read_run
from rlsim.core.errors import ParameterError
from rlsim.costs.catalogue import device_names, model
from rlsim.costs.profile import HoldOutError, Profile
from rlsim.costs.provenance import Provenance
from rlsim.costs.steplaw import StepLaw
from rlsim.scenario.schema import Scenario

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_REQUESTS = 40
BLOCKS = 10
"""Runs of consecutive requests whose mean latencies are fitted: single requests are not independent."""
NAMES = ("base_seconds", "per_sequence_seconds", "per_kv_token_seconds", "per_prefill_token_seconds")
HOST, ALL_REDUCE = "host seconds a step", "all-reduce seconds a token"
SETTLED = 1e-6
DIFFERENCE = 1e-3
"""Relative change of a coefficient's log that a slope is taken from: less moves no request to another step."""
LEAST_SHARE = 1e-6
"""Of the first guess, below which a coefficient counts as zero."""


def reproduce_requests(
    folder: Path, base: Scenario | None = None, tables: Path | None = None
) -> tuple[Report, Scenario, Profile]:
    """Fit on the first half, score the second, and describe the run as a scenario with open arrivals.

    Raises ``ParameterError`` for fewer than 40 requests, requests that are all alike, and without ``base`` when the
    folder's name does not begin with a GPU that the catalogue knows.
    """
    run = read_run(folder)
    _check_fits(run)
    scenario = base or _scenario(run, folder)
    law, estimates, columns, unknown = _fit(run, folder, tables)
    asynchronous = run.settings.async_scheduling is not False
    half = len(run.timelines) // 2
    replayed = replay(run, engine_limits(run), law, asynchronous)
    errors = _errors(run, replayed, half)
    rows = {row.statistic: row for row in score(run, replayed, half)}
    said = [f"{name} {rows[name].error:+.1%}" for name in ("TTFT mean", "TPOT mean", "end-to-end mean", "makespan")]
    report = Report(
        title=f"{run.name}: timelines of {len(run.timelines)} requests, 1 to {half} fitted, the others held out",
        columns=columns,
        estimates=estimates,
        unidentified=(*unknown, *_not_recorded(run)),
        notes=("the scenario draws arrivals and lengths from laws; errors are of the recorded ones, replayed",),
        held_out=errors,
        summary="of requests not fitted to: " + ", ".join(said),
    )
    source = {"source": "profile", "profile": f"./{PROFILE}", "noise_cv": 0.0}
    return report, with_settings(scenario, {"rollout.step_time": source}), _profile(run, scenario, law, errors)


def _check_fits(run: RecordedRun) -> None:
    if len(run.timelines) < FEWEST_REQUESTS:
        raise ParameterError(run.name, f"{len(run.timelines)} requests", f"at least {FEWEST_REQUESTS}")
    table = np.array([timeline[:2] for timeline in run.timelines], dtype=float)
    check_varies(run.name, "output_toks", table[:, 1], "the cost of a decode step")


def _fit(
    run: RecordedRun, folder: Path, tables: Path | None
) -> tuple[StepLaw, tuple[Estimate, ...], dict[str, str], list[str]]:
    limits, asynchronous = engine_limits(run), run.settings.async_scheduling is not False
    columns = {"lengths": "input_toks, output_toks", "times": "queued_ts, first_token_ts, last_token_ts"}
    kernels = _tables(run, folder, tables)
    measured = _latencies(run.timelines)

    def residuals(law: StepLaw) -> NDArray[np.float64]:
        return _latencies(replay(run, limits, law, asynchronous).timelines) / measured - 1.0

    if kernels is None:
        law, estimates, unknown = _fit_affine(run, residuals)
        return law, estimates, columns, [*unknown, "pairs of prefill attention: not told from prompt tokens"]
    priced = read_kernel_tables(kernels).step_law(model(run.settings.model).layers, capture_sizes(run.settings))
    terms = fit_terms(run, limits, priced, asynchronous)
    values = np.array([terms.host_seconds, terms.all_reduce_seconds][: terms.free_parameters])
    columns["step law"] = f"layer-time tables {kernels.name}"
    source = "mean latencies, all requests replayed"
    reach = _reach(values, lambda at: residuals(with_terms(priced, Terms(*at))))
    names = (HOST, ALL_REDUCE)[: len(values)]
    estimates = tuple(_estimate(*one, source) for one in zip(names, values, reach, strict=True))
    return with_terms(priced, terms), estimates, columns, []


def _tables(run: RecordedRun, folder: Path, given: Path | None) -> Path | None:
    if given is not None:
        return given
    try:
        return find_tables(folder, run.settings)
    except ParameterError:
        return None


def _estimate(name: str, value: float, reach: float, source: str) -> Estimate:
    return Estimate(name, float(value), float(value - reach), float(value + reach), source)


def _latencies(timelines: tuple[Timeline, ...]) -> NDArray[np.float64]:
    """Means of both latencies in blocks of the first half."""
    half = timelines[: len(timelines) // 2]
    parts = [np.array_split(each(half), BLOCKS) for each in (first_token_seconds, end_to_end_seconds)]
    return np.array([part.mean() for blocks in parts for part in blocks])


def _fit_affine(
    run: RecordedRun, residuals: Callable[[StepLaw], NDArray[np.float64]]
) -> tuple[StepLaw, tuple[Estimate, ...], list[str]]:
    """Least squares of relative errors of block means, no coefficient below zero; and what cannot be told."""
    from scipy.optimize import least_squares

    unit = np.array(_first_guess(run))

    def errors(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        return residuals(StepLaw.affine(*np.exp(logs).tolist()))

    fit = least_squares(errors, np.log(unit), diff_step=DIFFERENCE, xtol=SETTLED, ftol=SETTLED)
    seen = np.exp(fit.x) > LEAST_SHARE * unit
    values = np.where(seen, np.exp(fit.x), 0.0)
    reach = values[seen] * _spread(fit.fun, fit.jac[:, seen])
    source = "mean latencies in blocks of requests, all of them replayed"
    names = [name for name, kept in zip(NAMES, seen, strict=True) if kept]
    found = tuple(
        _estimate(f"rollout.step_time.{name}", value, by, source)
        for name, value, by in zip(names, values[seen], reach, strict=True)
    )
    unknown = [f"{name}: not above zero in this log" for name in NAMES if name not in names]
    law = replace(
        StepLaw.affine(*values.tolist()), provenance=Provenance("fitted", f"timelines of requests ({run.name})")
    )
    return law, found, [*unknown, *_vague(found)]


def _vague(estimates: tuple[Estimate, ...]) -> list[str]:
    """Coefficients whose intervals reach zero."""
    names = [one.key.rsplit(".", 1)[-1] for one in estimates if one.low <= 0]
    return [f"{', '.join(names)} one by one: only their sum is certain"] if names else []


def _first_guess(run: RecordedRun) -> list[float]:
    """From the time per token of each request over the requests that ran beside it; a guess for prompts."""
    from scipy.optimize import nnls

    timelines = run.timelines
    first, last = (np.array([timeline[place] for timeline in timelines]) for place in (3, 4))
    tokens = np.array([max(1, timeline.output_tokens - 1) for timeline in timelines])
    held = np.array([timeline.input_tokens + timeline.output_tokens / 2 for timeline in timelines])
    span = np.maximum(last - first, 1e-9)
    shared = np.maximum(0.0, np.minimum.outer(last, last) - np.maximum.outer(first, first))
    running, kv = shared.sum(axis=1) / span, shared @ held / span
    pace = span / tokens
    design = np.stack([np.ones(len(pace)), running, kv], axis=1) / pace[:, None]
    found, _ = nnls(design, np.ones(len(pace)))
    floor = float(np.median(pace)) * np.array([1e-2, 1e-4, 1e-7])
    return [*np.maximum(found, floor).tolist(), float(np.median(pace)) * 1e-2]


def _reach(values: NDArray[np.float64], residuals: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Half the intervals of fitted values, from how the errors that are left turn with them."""
    at = residuals(values)
    steps = np.maximum(np.abs(values), 1e-5) * 0.02 + 1e-6
    jacobian = np.stack([(residuals(values + one) - at) / one.sum() for one in np.diag(steps)], axis=1)
    return _spread(at, jacobian)


def _spread(errors: NDArray[np.float64], jacobian: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.stats import t

    freedom = len(errors) - jacobian.shape[1]
    variance = float((errors**2).sum()) / freedom
    covariance = variance * np.linalg.pinv(jacobian.T @ jacobian)
    reach: NDArray[np.float64] = float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return reach


def _errors(run: RecordedRun, replayed: Replayed, half: int) -> dict[str, HoldOutError]:
    found = {}
    for name, latency in (("first token", first_token_seconds), ("end to end", end_to_end_seconds)):
        measured, predicted = latency(run.timelines[half:]), latency(replayed.timelines[half:])
        errors = np.abs(predicted / np.maximum(measured, 1e-9) - 1)
        worst = int(errors.argmax())
        values = (float(np.median(errors)), float(np.quantile(errors, 0.95)), float(errors[worst]))
        found[name] = HoldOutError(*(round(value, 5) for value in values), f"request {half + worst + 1}", len(errors))
    return found


def _not_recorded(run: RecordedRun) -> list[str]:
    settings = run.settings
    said = ["prefix hits: token ids are not recorded; none assumed"]
    if settings.kv_blocks is None:
        said.append("KV blocks: not recorded; as many as the requests need")
    if settings.async_scheduling is None:
        said.append("asynchronous scheduling: not recorded; on")
    return said


def _profile(run: RecordedRun, scenario: Scenario, law: StepLaw, errors: dict[str, HoldOutError]) -> Profile:
    settings, architecture = run.settings, model(scenario.model)
    return Profile(
        name=f"{architecture.name}_{scenario.cluster.device}_tp{settings.tensor_parallel}_timelines".lower(),
        model=architecture.name,
        device=scenario.cluster.device,
        tensor_parallel=settings.tensor_parallel,
        expert_parallel=1,
        engine="vllm",
        engine_version=settings.engine_version,
        law=law,
        hold_out=errors["end to end"],
        kv_capacity_tokens=None if settings.kv_blocks is None else settings.kv_blocks * settings.block_size,
        notes=f"{len(run.timelines)} requests of {run.name}",
    )


def _scenario(run: RecordedRun, folder: Path) -> Scenario:
    """The run as a scenario: lengths as they were, arrivals at random at their mean rate, no training."""
    settings, timelines = run.settings, run.timelines
    limits, gpus = engine_limits(run), settings.tensor_parallel
    span = max(timeline.queued_seconds for timeline in timelines)
    tree: dict[str, Any] = {
        "name": f"{run.name}, as recorded",
        "model": model(settings.model).name,
        "cluster": {"device": _device(folder), "gpus": 2 * gpus},
        "rollout": {
            "gpus": gpus,
            "tensor_parallel": gpus,
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
        "policy": {"parts": {**_SERVING, "admission": _arrivals((len(timelines) - 1) / span)}},
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


def _arrivals(requests_per_second: float) -> dict[str, Any]:
    return {"use": "open-arrivals", "requests_per_second": round(requests_per_second, 4)}


def _device(folder: Path) -> str:
    """The GPU that the folder's name begins with."""
    asked = folder.resolve().name.split("_")[0].lower()
    for name in device_names():
        if name.lower().replace("-", "").replace(" ", "") == asked.replace("-", ""):
            return name
    allowed = f"a scenario that names the GPU, or a folder named GPU_model ({', '.join(device_names())})"
    raise ParameterError("--base", f"a run in {folder.name}", allowed)
