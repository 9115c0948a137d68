"""The tables of a report: cells as text, with their units in the heading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlsim.results.plots.style import cause, ordered
from rlsim.results.statistics import Estimate, paired_difference, paired_ratio
from rlsim.studies.report.saved import Saved, SavedArm
from rlsim.studies.text.table import plus_minus

STEP = "step_seconds"
LEAST_SHARE = 0.005
LAGS = {
    "start_lag": "start lag",
    "end_lag": "end lag",
    "span": "span",
    "token_weighted_lag": "token-weighted lag",
    "intra_batch_lag": "intra-batch lag (updates)",
}
COSTS = {
    "usd_per_step": "USD a step",
    "gpu_hours_per_step": "GPU-hours a step",
    "usd_per_million_trained_tokens": "USD a million trained tokens",
}
PARTS = {
    "generation_seconds_per_step": "generation",
    "wait_seconds_per_step": "trainer waits",
    "train_seconds_per_step": "training",
    "sync_seconds_per_step": "weight sync",
    "switch_seconds_per_step": "role switch",
}


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table as it is shown; the first cell of a row names it."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def report_tables(saved: Saved) -> list[ReportTable]:
    """All of them, in the order of the page; without the parts that nothing is to be said of."""
    tables = [_step_times(saved), _parts(saved), _uses(saved), _staleness(saved), _ledger(saved), _costs(saved)]
    return tables + ([_sensitivity(saved)] if saved.shifts else [])


def _step_times(saved: Saved) -> ReportTable:
    percent = f"{saved.confidence:.0%}"
    columns = (
        "arm", f"step, s ± {percent}", "published, s", "error", f"less first, s ± {percent}", f"speed-up ({percent})",
        "trained tokens/s/GPU", "rests on estimates of",
    )  # fmt: skip
    ascending = sorted(len(arm.metrics) for arm in saved.arms)
    counts = " to ".join(dict.fromkeys(str(count) for count in (ascending[0], ascending[-1])))
    note = (
        f"Means over {counts} replications with t intervals; less first and speed-up are paired: every arm meets the "
        "same prompts and random draws. A single run has no interval."
    )
    return ReportTable("Step time", note, columns, tuple(_step_row(saved.arms[0], arm) for arm in saved.arms))


def _step_row(first: SavedArm, arm: SavedArm) -> tuple[str, ...]:
    confidence = first.scenario.run.confidence
    difference = speedup = ""
    if arm is not first:
        runs = min(len(arm.metrics), len(first.metrics))
        own, others = arm.values(STEP)[:runs], first.values(STEP)[:runs]
        difference = _estimate(paired_difference(own, others, confidence), "+.1f")
        ratio = paired_ratio(others, own, confidence)
        interval = "" if ratio.low is None or ratio.high is None else f" ({ratio.low:.2f} to {ratio.high:.2f})"
        speedup = f"{ratio.mean:.2f}×{interval}"
    return (
        arm.name,
        _estimate(arm.estimate(STEP)),
        *_published(arm),
        difference,
        speedup,
        _estimate(arm.estimate("tokens_per_second_per_gpu"), ",.0f"),
        ", ".join(arm.estimated) or "nothing",
    )


def _published(arm: SavedArm) -> tuple[str, str]:
    row = next((row for row in arm.scenario.published if row.is_step_time), None)
    if row is None:
        return "", ""
    error = arm.estimate(STEP).mean / row.measured - 1
    return f"{row.measured:g}", f"{error:+.1%} ({'fitted' if row.calibrated else 'a prediction'})"


def _estimate(estimate: Estimate, form: str = ".1f") -> str:
    return plus_minus(estimate, f"{{:{form}}}".format, f"{{:{form.removeprefix('+')}}}".format)


def _parts(saved: Saved) -> ReportTable:
    note = "Seconds of a step, means; generation runs beside the rest where rollout has GPUs of its own."
    names = {
        **PARTS,
        "response_tokens_mean": "response, tokens",
        "truncated_share": "truncated",
        "kv_peak_share": "KV peak",
        "preemptions_per_sample": "preemptions /sample",
        "resets_per_step": "resets /step",
        "load_imbalance": "busiest replica, above mean",
        "kv_wait_share": "steps short of KV",
        "recomputed_share": "prefill done again",
        "prefix_hit_share": "prefix hits",
    }
    rows = tuple(
        (arm.name, *(_part(arm, name) for name in names), f"{arm.mean('tail_share'):.0%}") for arm in saved.arms
    )
    return ReportTable("What a step is made of", note, ("arm", *names.values(), "tail of generation"), rows)


def _part(arm: SavedArm, name: str) -> str:
    if name.endswith("_share"):
        return f"{arm.mean(name):.1%}"
    return f"{arm.mean(name):,.0f}" if name == "response_tokens_mean" else f"{arm.mean(name):.1f}"


def _uses(saved: Saved) -> ReportTable:
    role_shares = [(arm, role, shares) for arm in saved.arms for role, shares in _roles(arm)]
    shown = [
        use for use in ordered(use for *_, shares in role_shares for use in shares)
        if any(shares.get(use, 0.0) >= LEAST_SHARE for *_, shares in role_shares)
    ]  # fmt: skip
    rows = tuple(
        (arm.name, role, *(f"{100 * shares.get(use, 0.0):.0f}" if shares.get(use) else "" for use in shown))
        for arm, role, shares in role_shares
    )
    note = "Per cent of the GPU-seconds of the measured window; means over replications."
    return ReportTable("GPU time by use", note, ("arm", "GPUs", *(cause(use).label for use in shown)), rows)


def _roles(arm: SavedArm) -> Iterator[tuple[str, dict[str, float]]]:
    """Pools, then rollout and trainer GPUs; one row where they are the same."""
    pools = (key for key in arm.metrics[0] if key.startswith("pools.") and key.endswith(".gpus"))
    for name in (key.removeprefix("pools.").removesuffix(".gpus") for key in pools):
        yield f"{arm.mean(f'pools.{name}.gpus'):g} {name}", _shares(arm, f"pools.{name}.utilisation.")
    rollout, trainer = (_shares(arm, f"utilisation.{role}.") for role in ("rollout", "trainer"))
    if rollout == trainer:
        yield f"{arm.scenario.rollout.gpus} shared", rollout
        return
    yield f"{arm.scenario.rollout.gpus} rollout", rollout
    yield f"{arm.scenario.trainer.gpus} trainer", trainer


def _shares(arm: SavedArm, prefix: str) -> dict[str, float]:
    uses = dict.fromkeys(key.removeprefix(prefix) for run in arm.metrics for key in run if key.startswith(prefix))
    return {use: arm.mean(prefix + use) for use in uses}


def _staleness(saved: Saved) -> ReportTable:
    note = "Mean (most) over trained samples, in published weights versions; the intra-batch lag in optimizer updates."
    rows = tuple(
        (arm.name, *(f"{arm.mean(f'{lag}_mean'):.2f} ({max(arm.values(f'{lag}_max')):.0f})" for lag in LAGS))
        for arm in saved.arms
    )
    return ReportTable("Staleness", note, ("arm", *LAGS.values()), rows)


def _ledger(saved: Saved) -> ReportTable:
    outcomes = dict.fromkeys(
        key.removeprefix("ledger_tokens.")
        for arm in saved.arms for run in arm.metrics for key, value in run.items()
        if key.startswith("ledger_tokens.") and value
    )  # fmt: skip
    rows = []
    for arm in saved.arms:
        generated = arm.mean("generated_tokens")
        shares = (f"{100 * arm.mean(f'ledger_tokens.{outcome}') / max(1.0, generated):.1f}" for outcome in outcomes)
        closes = all(run["ledger_closes"] is True for run in arm.metrics)
        rows.append((arm.name, f"{generated:,.0f}", *shares, "yes" if closes else "NO"))
    note = "What became of every generated response token, per cent of the whole run; the outcomes must sum to all."
    titles = (outcome.replace("_", " ") for outcome in outcomes)
    return ReportTable("Token ledger", note, ("arm", "generated, tokens", *titles, "closes"), tuple(rows))


def _costs(saved: Saved) -> ReportTable:
    sources = dict.fromkeys(str(run["price_source"]) for arm in saved.arms for run in arm.metrics)
    note = f"The price: {'; '.join(sources)}."
    rows = tuple(
        (
            arm.name, f"{arm.mean('gpus_used'):g}", f"{arm.mean('price_usd_per_gpu_hour'):.2f}",
            *(_estimate(arm.estimate(name), ".3f") for name in COSTS),
        )
        for arm in saved.arms
    )  # fmt: skip
    return ReportTable("Cost", note, ("arm", "GPUs in use", "USD a GPU-hour", *COSTS.values()), rows)


def _sensitivity(saved: Saved) -> ReportTable:
    rows = tuple((s.key, s.label, s.arm, f"{s.change:+.1%}", s.reason) for s in saved.shifts)
    note = "Inputs that had to be assumed: change of the step time with another value, one paired replication."
    return ReportTable("Assumed inputs", note, ("key", "other value", "arm", "step time", "assumed because"), rows)
