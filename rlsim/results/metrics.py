"""The numbers of one run, over its measured window.

Formulas and the frameworks' own names are in docs/concepts/metrics.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlsim.core.errors import ParameterError
from rlsim.core.log import RunLog
from rlsim.core.ticks import to_seconds
from rlsim.executor.run import FinishedRun
from rlsim.resolve import ResolvedPool
from rlsim.resolve.scenario import gpus_used, price
from rlsim.results.columns import PHASES, Columns
from rlsim.results.tables import Digest, digest
from rlsim.results.timeline import union_of
from rlsim.results.utilisation import Measured, PoolMetrics, Utilisation, pool_metrics, utilisation, verl_utilisation

FATES = (
    "trained",
    "dropped_stale",
    "dropped_surplus",
    "filtered",
    "unselected",
    "pruned",
    "failed",
    "in_flight",
    "buffered",
    "undelivered",
    "checks",
)
TAIL_BEGINS = 0.9
"""Share of a step's samples after whose end the rest is the tail."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """One run. Means are over the measured steps, the ledger over the whole run."""

    replication: int
    steps: int
    """Training iterations that ended."""
    ended_by: str
    """The keys that ended the run: run.steps, run.max_simulated_seconds, run.budget.X; empty where it was stopped."""
    warmup_steps: int
    gpus_used: int
    gpus_cluster: int
    step_seconds: float
    samples_per_second: float
    response_tokens_per_second: float
    tokens_per_second_per_gpu: float
    """Trained tokens (prompt, response, tool output) a second and GPU in use."""
    generation_seconds_per_step: float
    """In which any replica works."""
    wait_seconds_per_step: float
    """In which the trainer neither trains, publishes nor switches."""
    train_seconds_per_step: float
    sync_seconds_per_step: float
    switch_seconds_per_step: float
    tail_share: float
    """Of the time from a step's first submission to its last response, after 90 % of its samples have ended."""
    response_tokens_mean: float
    response_tokens_p50: float
    response_tokens_p99: float
    response_tokens_max: int
    truncated_share: float
    utilisation: Utilisation
    verl_u_train: float
    verl_u_rollout: float
    verl_u_cluster: float
    preemptions_per_step: float
    """For want of KV blocks, over the whole run."""
    resets_per_step: float
    """Requests that weight updates in flight made begin anew, over the whole run."""
    preemptions_per_sample: float
    recomputed_share: float
    """Of the tokens that engines prefilled, those that had been computed before."""
    kv_wait_share: float
    """Of the engines' steps, those in which a request waited for KV blocks."""
    prefix_hit_share: float
    """Of the tokens that calls brought, those that a prefix cache held."""
    load_imbalance: float
    """Tokens decoded by the busiest replica over the mean of all, less 1."""
    kv_peak_share: float
    """An upper estimate: a prompt that a group shares is counted for every member. At most 1."""
    tool_share: float
    """Of the time of trained samples from submission to their last token, that spent in tool calls."""
    reward_busy_share: float
    """Of the time of the workers that score; 0 where their number has no limit."""
    environment_busy_share: float
    """Likewise of the environments that run tool calls."""
    start_lag_mean: float
    start_lag_max: float
    end_lag_mean: float
    end_lag_max: float
    span_mean: float
    span_max: float
    token_weighted_lag_mean: float
    token_weighted_lag_max: float
    intra_batch_lag_mean: float
    """In optimizer updates; the other lags are in weights versions."""
    intra_batch_lag_max: float
    generated_tokens: int
    """Response tokens by the engines' own count, over the whole run."""
    ledger_tokens: dict[str, int]
    """The same tokens by what became of them."""
    ledger_closes: bool
    inherited_tokens: int
    """Response tokens that samples began with and nobody made again: a parent's, or accepted ones of a draft."""
    replayed_share: float
    """Of the samples trained on, those trained on before."""
    price_usd_per_gpu_hour: float
    price_source: str
    gpu_hours_per_step: float
    usd_per_step: float
    usd_per_million_trained_tokens: float
    controller_decisions: int
    events: int
    pools: dict[str, PoolMetrics]
    """By name; empty where replicas are alike."""

    def as_dict(self) -> dict[str, int | float | bool | str]:
        """Flat, in the order of the fields; nested values as ``utilisation.rollout.decode``."""
        flat: dict[str, int | float | bool | str] = {}
        for field in fields(self):
            flat |= _flat(field.name, getattr(self, field.name))
        return flat


def _flat(name: str, value: object) -> dict[str, int | float | bool | str]:
    if isinstance(value, Utilisation | PoolMetrics):
        value = {part.name: getattr(value, part.name) for part in fields(value)}
    if isinstance(value, dict):
        return {key: leaf for inner, part in value.items() for key, leaf in _flat(f"{name}.{inner}", part).items()}
    assert isinstance(value, int | float | str)
    return {name: value}


def metrics(run: FinishedRun) -> Metrics:
    """All metrics of a run; ``ParameterError`` when no iteration ended after the warm-up."""
    return metrics_of(digest(run))


def metrics_of(read: Digest) -> Metrics:
    """The same of a run that has been read."""
    log, plan = read.run.log, read.run.plan
    window = measured(log, plan.scenario.run.warmup_steps)
    verl = verl_utilisation(read, window)
    return Metrics(
        replication=read.run.replication,
        steps=window.last,
        ended_by=log.ended_by,
        warmup_steps=window.first,
        gpus_used=gpus_used(plan),
        gpus_cluster=plan.scenario.cluster.gpus,
        **_rates(read, window),
        **_parts_of_step(read, window),
        tail_share=_tail_share(read.samples, window),
        **_lengths(read.samples, window),
        utilisation=utilisation(read, window),
        verl_u_train=verl.train,
        verl_u_rollout=verl.rollout,
        verl_u_cluster=verl.cluster,
        **_engines(read, window),
        kv_peak_share=max(_kv_peak_of(read, pool, window) for pool in read.run.plan.pools),
        **_services(read, window),
        **_staleness(read, window),
        generated_tokens=log.generated_tokens,
        ledger_tokens=(ledger := ledger_tokens(log)),
        ledger_closes=sum(ledger.values()) == log.generated_tokens,
        inherited_tokens=int(read.samples["inherited_tokens"].sum()),
        replayed_share=_replayed_share(read, window),
        **_cost(read, window),
        price_source=price(plan)[1],
        controller_decisions=len(log.decisions),
        events=log.events,
        pools=pool_metrics(read, window),
    )


def measured(log: RunLog, warmup_steps: int) -> Measured:
    """The window from the end of iteration ``warmup_steps`` to the end of the last one."""
    steps = len(log.iterations)
    if warmup_steps >= steps:
        raise ParameterError("run.warmup_steps", warmup_steps, f"below the {steps} training iterations that ended")
    start = log.iterations[warmup_steps - 1].end if warmup_steps else 0
    return Measured(start, log.iterations[-1].end, warmup_steps, steps)


def ledger_tokens(log: RunLog) -> dict[str, int]:
    """Response tokens by what became of their sample by the end of the run."""
    tokens = dict.fromkeys(FATES, 0)
    for row in log.final:
        tokens[row.outcome] = tokens.get(row.outcome, 0) + row.tokens
    tokens["undelivered"] += log.undelivered_tokens
    tokens["checks"] = log.check_tokens
    return tokens


def _of_window(samples: Columns, window: Measured) -> NDArray[np.bool_]:
    return (samples["trained_step"] >= window.first) & (samples["trained_step"] < window.last)


def _rates(read: Digest, window: Measured) -> dict[str, Any]:
    seconds, rows = to_seconds(window.end - window.start), slice(window.first, window.last)
    response = int(read.samples["response_tokens"][_of_window(read.samples, window)].sum())
    return {
        "step_seconds": seconds / window.steps,
        "samples_per_second": int(read.updates["samples"][rows].sum()) / seconds,
        "response_tokens_per_second": response / seconds,
        "tokens_per_second_per_gpu": _trained_tokens(read, window) / seconds / gpus_used(read.run.plan),
    }


def _trained_tokens(read: Digest, window: Measured) -> int:
    return int(read.updates["tokens"][window.first : window.last].sum())


def _parts_of_step(read: Digest, window: Measured) -> dict[str, Any]:
    windows, updates, rows = read.run.log.windows, read.updates, slice(window.first, window.last)
    starts = np.array([row.start for row in windows], np.int64)
    ends = np.array([row.end for row in windows], np.int64)
    works = union_of(starts, ends).within(window.start, window.end)
    parts = {name: float(updates[f"{name}_seconds"][rows].mean()) for name in ("wait", "sync", "switch", *PHASES)}
    return {
        "generation_seconds_per_step": to_seconds(works) / window.steps,
        "wait_seconds_per_step": parts["wait"],
        "train_seconds_per_step": sum(parts[name] for name in PHASES),
        "sync_seconds_per_step": parts["sync"],
        "switch_seconds_per_step": parts["switch"],
    }


def _tail_share(samples: Columns, window: Measured) -> float:
    """Mean over measured steps of (last end - 90th percentile of ends) / (last end - first submission)."""
    order = np.argsort(samples["trained_step"], kind="stable")
    bounds = np.searchsorted(samples["trained_step"][order], np.arange(window.first, window.last + 1))
    shares = []
    for low, high in pairwise(bounds.tolist()):
        if low == high:  # All that it trained on was trained on before.
            continue
        ends = np.sort(samples["finished_seconds"][order[low:high]])
        first = samples["submitted_seconds"][order[low:high]].min()
        body = ends[int(np.ceil(TAIL_BEGINS * len(ends))) - 1]
        shares.append(float((ends[-1] - body) / (ends[-1] - first)))
    return float(np.mean(shares)) if shares else 0.0


def _replayed_share(read: Digest, window: Measured) -> float:
    steps = read.uses["step"]
    rows = read.uses["row"][(steps >= window.first) & (steps < window.last)]
    return float((read.samples["trained_step"][rows] < steps[(steps >= window.first) & (steps < window.last)]).mean())


def _lengths(samples: Columns, window: Measured) -> dict[str, Any]:
    chosen = _of_window(samples, window)
    tokens = (samples["response_tokens"] + samples["inherited_tokens"])[chosen]
    return {
        "response_tokens_mean": float(tokens.mean()),
        "response_tokens_p50": float(np.quantile(tokens, 0.5)),
        "response_tokens_p99": float(np.quantile(tokens, 0.99)),
        "response_tokens_max": int(tokens.max()),
        "truncated_share": float((samples["finish_reason"][chosen] == "length").mean()),
    }


def _staleness(read: Digest, window: Measured) -> dict[str, Any]:
    chosen = (read.uses["step"] >= window.first) & (read.uses["step"] < window.last)
    values: dict[str, float] = {}
    for name in ("start_lag", "end_lag", "span", "token_weighted_lag"):
        lags = read.uses[name][chosen]
        values[f"{name}_mean"], values[f"{name}_max"] = float(lags.mean()), float(lags.max())
    rows = slice(window.first, window.last)
    values["intra_batch_lag_mean"] = float(read.updates["intra_batch_lag_mean"][rows].mean())
    values["intra_batch_lag_max"] = float(read.updates["intra_batch_lag_max"][rows].max())
    return values


def _engines(read: Digest, window: Measured) -> dict[str, Any]:
    log = read.run.log
    return {
        "preemptions_per_step": log.preemptions / window.last,
        "resets_per_step": log.resets / window.last,
        "preemptions_per_sample": log.preemptions / max(1, len(read.samples["sample"])),
        "recomputed_share": log.recomputed_tokens / max(1, log.prefill_tokens),
        "kv_wait_share": log.blocked_steps / max(1, log.rank_steps),
        "prefix_hit_share": log.cached_tokens / max(1, log.prompt_tokens),
        "load_imbalance": _imbalance(read, window),
    }


def _services(read: Digest, window: Measured) -> dict[str, Any]:
    workload = read.run.plan.scenario.workload
    workers = workload.reward.workers if workload.reward else None
    places = workload.turns.environments if workload.turns else None
    rows, samples = read.run.log.services, read.samples
    tool_seconds = to_seconds(sum(row.end - row.requested for row in rows if row.what == "tool" and row.end >= 0))
    finished = samples["finished_seconds"] > samples["submitted_seconds"]
    resided = float((samples["finished_seconds"] - samples["submitted_seconds"])[finished].sum())
    return {
        "tool_share": min(1.0, tool_seconds / resided) if resided else 0.0,
        "reward_busy_share": _busy(read.run.log, "reward", workers, window),
        "environment_busy_share": _busy(read.run.log, "tool", places, window),
    }


def _busy(log: RunLog, what: str, workers: int | None, window: Measured) -> float:
    """Share of the workers' time in the window; 0 where there is no limit on them."""
    if workers is None:
        return 0.0
    spans = ((max(row.start, window.start), min(row.end, window.end)) for row in log.services if row.what == what)
    return sum(max(0, end - start) for start, end in spans) / (workers * (window.end - window.start))


def _imbalance(read: Digest, window: Measured) -> float:
    rows = read.activity
    here = (rows.end > window.start) & (rows.who >= 0)
    steps, decodes = rows.counts[here, 0], rows.counts[here, 1]
    tokens = np.bincount(rows.who[here], steps * decodes, read.run.plan.shape.replicas)
    return float(tokens.max() / tokens.mean() - 1) if tokens.any() else 0.0


def _kv_peak_of(read: Digest, pool: ResolvedPool, window: Measured) -> float:
    limits, rows, replicas = pool.limits, read.activity, pool.place.replicas
    here = (rows.end > window.start) & (rows.who >= replicas.start) & (rows.who < replicas.stop)
    steps, decodes, prefill, kv = rows.counts[here].T
    peak = int((kv + steps * (decodes + prefill)).max(initial=0))
    capacity = limits.kv_blocks * limits.block_size * pool.rollout.data_parallel
    return min(1.0, peak / capacity)


def _cost(read: Digest, window: Measured) -> dict[str, Any]:
    hours = to_seconds(window.end - window.start) / window.steps / 3600 * gpus_used(read.run.plan)
    usd = price(read.run.plan)[0]
    return {
        "price_usd_per_gpu_hour": usd,
        "gpu_hours_per_step": hours,
        "usd_per_step": hours * usd,
        "usd_per_million_trained_tokens": hours * usd * window.steps / _trained_tokens(read, window) * 1e6,
    }
