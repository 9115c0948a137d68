"""A comparison as text a stranger can read: what is predicted, how sure, how far from what was measured, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from rlsim.executor.termination import BUDGET
from rlsim.results.utilisation import USES
from rlsim.studies.assumed import sensitivity_off
from rlsim.studies.compare import Arm, Comparison, Shift, shared_sources
from rlsim.studies.text.table import new_table, plus_minus, rendered

LEAST_SHARE = 0.005
ENGINE_SHARES = {
    "kv_wait_share": "steps short of KV",
    "recomputed_share": "prefill done again",
    "prefix_hit_share": "prefix hits",
    "load_imbalance": "busiest replica above mean",
}
"""Metrics of the engines and their titles."""


def as_text(comparison: Comparison, detailed: bool = False) -> str:
    """What each arm takes and what holds it back, warnings, tables and notes; ``detailed`` adds every metric."""
    tables = [_step_times(comparison), _uses(comparison), _engines(comparison), _staleness(comparison)]
    tables += [_everything(comparison.arms[0])] if detailed else []
    return rendered(tables, _notes(comparison), first=_answers(comparison))


def _answers(comparison: Comparison) -> Iterator[str]:
    """A line an arm, then what the reader must know before the tables."""
    for arm in comparison.arms:
        is_first, step = arm is comparison.arms[0], plus_minus(arm.estimate("step_seconds"), "{:.1f}".format)
        faster = "" if is_first else f", {comparison.speedup_over_first(arm).mean:.2f}x as fast as the first"
        yield f"{arm.name}: {step} s a step{faster}. {arm.records[0].verdict}"
    yield ""
    warnings = [*comparison.warnings, *budgets_used(comparison.arms)]
    yield from warnings
    yield from [""] if warnings else []


def _step_times(comparison: Comparison) -> Table:
    first = comparison.arms[0]
    percent = f"{first.plan.scenario.run.confidence:.0%}"
    columns = ["arm", f"step, s ± {percent}", "published, s", "error", f"less first, s ± {percent}", "speed-up"]
    rows = []
    for arm in comparison.arms:
        row = [arm.name, plus_minus(arm.estimate("step_seconds"), "{:.1f}".format), "", "", "", ""]
        if arm.published is not None:
            row[2:4] = f"{arm.published.measured:g}", f"{arm.error:+.1%}{' (fitted)' * arm.published.calibrated}"
        if arm is not first:
            row[4] = plus_minus(comparison.difference_to_first(arm), "{:+.1f}".format, "{:.1f}".format)
            row[5] = f"{comparison.speedup_over_first(arm).mean:.2f}x"
        rows.append([*row, f"{arm.mean('tokens_per_second_per_gpu'):,.0f}", f"{arm.mean('usd_per_step'):.2f}"])
    return new_table(comparison.name, [*columns, "tokens/s /GPU", "USD /step"], rows)


def _uses(comparison: Comparison) -> Table:
    """Rollout and trainer GPUs by use; uses that nobody has are left out."""
    roles = [(arm, role, shares) for arm in comparison.arms for role, shares in _roles(arm)]
    uses = dict.fromkeys([*USES, *(use for _, _, shares in roles for use in shares)])
    shown = [use for use in uses if any(shares.get(use, 0) >= LEAST_SHARE for _, _, shares in roles)]
    rows = []
    for arm, role, shares in roles:
        cells = (f"{100 * shares.get(use, 0):.0f}" if shares.get(use, 0) >= LEAST_SHARE else "" for use in shown)
        rows.append([arm.name, role, *cells])
    columns = ["arm", "GPUs", *(use.replace("idle:", "idle ").replace("_", " ") for use in shown)]
    return new_table("GPU time by use, %", columns, rows, texts=2)


def _roles(arm: Arm) -> Iterator[tuple[str, dict[str, float]]]:
    """Each pool of the rollout GPUs, where replicas differ, then rollout and trainer GPUs, one row where shared."""
    metrics = [record.metrics for record in arm.records]
    for name, first in metrics[0].pools.items():
        yield f"{first.gpus:g} {name}", _mean_shares([run.pools[name].utilisation for run in metrics])
    rollout, trainer = arm.plan.scenario.rollout.gpus, arm.plan.scenario.trainer.gpus
    if arm.plan.colocated:
        yield f"{rollout} shared", _mean_shares([run.utilisation.rollout for run in metrics])
        return
    yield f"{rollout} rollout", _mean_shares([run.utilisation.rollout for run in metrics])
    yield f"{trainer} trainer", _mean_shares([run.utilisation.trainer for run in metrics])


def _mean_shares(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {use: sum(run.get(use, 0.0) for run in runs) / len(runs) for use in runs[0]}


def _engines(comparison: Comparison) -> Table:
    """What the KV cache and the router cost."""
    rows = []
    for arm in comparison.arms:
        row = [arm.name, f"{arm.mean('preemptions_per_sample'):.2g}", f"{arm.mean('resets_per_step'):,.3g}"]
        rows.append([*row, *(f"{arm.mean(name):.0%}" for name in ENGINE_SHARES)])
    return new_table("Engines", ("arm", "preemptions /sample", "resets /step", *ENGINE_SHARES.values()), rows)


def _staleness(comparison: Comparison) -> Table:
    names = ("start_lag", "end_lag", "span", "token_weighted_lag", "intra_batch_lag")
    titles = ("start lag", "end lag", "span", "token- weighted", "intra-batch, updates")
    outcomes = ("dropped_stale", "dropped_surplus", "filtered", "failed", "undelivered", "checks")
    rows = []
    for arm in comparison.arms:
        cells = (f"{arm.mean(f'{name}_mean'):.2f} ({arm.mean(f'{name}_max'):.0f})" for name in names)
        metrics = [record.metrics for record in arm.records]
        wasted = sum(run.ledger_tokens.get(outcome, 0) for run in metrics for outcome in outcomes)
        share = wasted / max(1, sum(run.generated_tokens for run in metrics))
        rows.append([arm.name, *cells, f"{share:.1%}"])
    title = "Staleness of trained samples, weights versions: mean (max)"
    return new_table(title, ("arm", *titles, "wasted tokens"), rows)


def _everything(arm: Arm) -> Table:
    runs = [record.metrics.as_dict() for record in arm.records]
    rows = []
    for name, value in runs[0].items():
        if isinstance(value, str | bool):
            rows.append((name, str(value)))
        elif name != "replication":
            mean = sum(float(run[name]) for run in runs) / len(runs)
            if mean or not name.startswith("utilisation."):
                rows.append((name, f"{mean:,.4g}"))
    replications = f"mean of {len(runs)} replication(s)"
    title = f"All metrics of {arm.name}, {replications}; uses of GPU time that are 0 left out"
    return new_table(title, ("metric", "value"), rows)


def _notes(comparison: Comparison) -> Iterator[str]:
    yield from _declared(comparison)
    yield from _sensitivity(comparison)
    for cost, text, is_estimate, arms in shared_sources({arm.name: arm.plan.sources for arm in comparison.arms}):
        yield f"{'ESTIMATE' if is_estimate else 'Source'}, {cost}: {text}{f' ({arms})' if arms else ''}."
    run = comparison.arms[0].plan.scenario.run
    replications = len(comparison.arms[0].records)
    closes = all(record.metrics.ledger_closes for arm in comparison.arms for record in arm.records)
    yield (
        f"Sizes: {run.steps} steps, the first {run.warmup_steps} left out; {replications} paired replications; "
        f"token ledger {'closes' if closes else 'DOES NOT CLOSE'} in all of them."
    )


def budgets_used(arms: Sequence[Arm]) -> Iterator[str]:
    """Which runs a budget ended, and after how many steps."""
    for arm in arms:
        ends = [(run.metrics.ended_by, run.metrics.steps) for run in arm.records if BUDGET in run.metrics.ended_by]
        for keys in dict.fromkeys(keys for keys, _ in ends):
            steps = sorted(steps for ended_by, steps in ends if ended_by == keys)
            after = " to ".join(dict.fromkeys(str(count) for count in (steps[0], steps[-1])))
            yield f"{arm.name}: {len(steps)} of {len(arm.records)} runs ended by {keys}, after {after} steps."


def _declared(comparison: Comparison) -> Iterator[str]:
    """What was fitted, predicted, mismatched and assumed beside the published numbers."""
    for arm in comparison.arms:
        row = arm.published
        if row is None:
            continue
        kind = f"used to fit {', '.join(row.fitted)}" if row.calibrated else "a prediction"
        yield f"Published, {arm.name}: {row.measured:g} s ({row.source}; grade {row.grade}); this row is {kind}."
        for mismatch in row.mismatches:
            yield f"  differs from the source: {mismatch}"
        if row.notes:
            yield f"  {row.notes}"


def _sensitivity(comparison: Comparison) -> Iterator[str]:
    """Effects of assumed inputs on step times and speed-ups, a line for each other value."""
    keys = dict.fromkeys((shift.key, shift.reason) for shift in comparison.shifts)
    for key, reason in keys:
        of_key = [shift for shift in comparison.shifts if shift.key == key]
        yield f"Assumed: {key} ({reason}). Step time with another value, one paired replication:"
        for label in dict.fromkeys(shift.label for shift in of_key):
            alike = [shift for shift in of_key if shift.label == label]
            yield f"  {label}: {', '.join(_shifted(comparison, shift) for shift in alike)}"
    off = sensitivity_off({arm.name: arm.plan for arm in comparison.arms})
    if off:
        yield f"Sensitivity is off (sensitivity: []) in {', '.join(off)}."


def _shifted(comparison: Comparison, shift: Shift) -> str:
    written, then = (f"{speedup:.2f}x" for speedup in comparison.shifted_speedup(shift))
    is_same = written == then or shift.arm == comparison.arms[0].name
    return f"{shift.arm} {shift.change:+.1%}{'' if is_same else f' (speed-up {then}, not {written})'}"
