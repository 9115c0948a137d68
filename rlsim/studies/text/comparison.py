"""A comparison as text a stranger can read: what is predicted, how sure, how far from what was measured, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.table import Table

from rlsim import __version__
from rlsim.executor.termination import BUDGET
from rlsim.results.statistics import Estimate
from rlsim.results.utilisation import USES
from rlsim.studies.compare import Arm, Comparison
from rlsim.studies.text.table import rendered, titled_table

LEAST_SHARE = 0.005


def as_text(comparison: Comparison, detailed: bool = False) -> str:
    """Tables and notes; ``detailed`` adds every metric of the first arm."""
    tables = [_step_times(comparison), _uses(comparison), _staleness(comparison)]
    return rendered([*tables, _everything(comparison.arms[0])] if detailed else tables, _notes(comparison))


def as_json(comparison: Comparison) -> str:
    """Everything, for machines."""
    arms = {
        arm.name: {
            "step_seconds": asdict(arm.estimate("step_seconds")),
            "published": None if arm.published is None else arm.published.model_dump(mode="json"),
            "error": arm.error,
            "difference_to_first_seconds": asdict(comparison.difference_to_first(arm)),
            "speedup_over_first": asdict(comparison.speedup_over_first(arm)),
            "replications": [outcome.metrics.as_dict() for outcome in arm.outcomes],
            "verdict": arm.outcomes[0].verdict,
            "sources": [asdict(source) for source in arm.plan.sources],
        }
        for arm in comparison.arms
    }
    whole = {
        "name": comparison.name,
        "rlsim": __version__,
        "arms": arms,
        "sensitivity": [asdict(s) for s in comparison.shifts],
    }
    return json.dumps(whole, indent=1) + "\n"


def _step_times(comparison: Comparison) -> Table:
    first = comparison.arms[0]
    percent = f"{first.plan.scenario.run.confidence:.0%}"
    columns = (
        f"step, s ± {percent}",
        "published, s",
        "error",
        f"less first, s ± {percent}",
        "speed-up",
        "tokens/s /GPU",
        "USD /step",
    )
    table = titled_table(comparison.name, "arm", columns)
    for arm in comparison.arms:
        table.add_row(
            arm.name,
            _estimate(arm.estimate("step_seconds")),
            "" if arm.published is None else f"{arm.published.measured:g}",
            _error(arm),
            "" if arm is first else _estimate(comparison.difference_to_first(arm), "+"),
            "" if arm is first else f"{comparison.speedup_over_first(arm).mean:.2f}x",
            f"{arm.mean('tokens_per_second_per_gpu'):,.0f}",
            f"{arm.mean('usd_per_step'):.2f}",
        )
    return table


def _error(arm: Arm) -> str:
    if arm.error is None or arm.published is None:
        return ""
    return f"{arm.error:+.1%} (fitted)" if arm.published.calibrated else f"{arm.error:+.1%}"


def _estimate(estimate: Estimate, sign: str = "") -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.mean:{sign}.1f}"
    return f"{estimate.mean:{sign}.1f} ± {(estimate.high - estimate.low) / 2:.1f}"


def _uses(comparison: Comparison) -> Table:
    """Rollout and trainer GPUs by use; uses that nobody has are left out."""
    rows = [(arm, role, shares) for arm in comparison.arms for role, shares in _roles(arm)]
    shown = [use for use in _all_uses(rows) if any(shares.get(use, 0) >= LEAST_SHARE for _, _, shares in rows)]
    table = titled_table("GPU time by use, %", "arm", ("GPUs", *map(_heading, shown)))
    for arm, role, shares in rows:
        cells = (f"{100 * shares.get(use, 0):.0f}" if shares.get(use, 0) >= LEAST_SHARE else "" for use in shown)
        table.add_row(arm.name, role, *cells)
    return table


def _heading(use: str) -> str:
    return use.replace("idle:", "idle ").replace("_", " ")


def _all_uses(rows: Sequence[tuple[Arm, str, dict[str, float]]]) -> list[str]:
    return list(dict.fromkeys([*USES, *(use for _, _, shares in rows for use in shares)]))


def _roles(arm: Arm) -> Iterator[tuple[str, dict[str, float]]]:
    rollout, trainer = arm.plan.scenario.rollout.gpus, arm.plan.scenario.trainer.gpus
    roles = ("rollout",) if arm.plan.colocated else ("rollout", "trainer")
    yield from _pool_roles(arm)
    for role in roles:
        runs = [getattr(outcome.metrics.utilisation, role) for outcome in arm.outcomes]
        label = f"{rollout} shared" if arm.plan.colocated else f"{rollout if role == 'rollout' else trainer} {role}"
        yield label, {use: sum(run.get(use, 0.0) for run in runs) / len(runs) for use in runs[0]}


def _pool_roles(arm: Arm) -> Iterator[tuple[str, dict[str, float]]]:
    """Each pool of the rollout GPUs; none where replicas are alike."""
    for name, first in arm.outcomes[0].metrics.pools.items():
        runs = [outcome.metrics.pools[name].utilisation for outcome in arm.outcomes]
        yield f"{first.gpus:g} {name}", {use: sum(run.get(use, 0.0) for run in runs) / len(runs) for use in runs[0]}


def _staleness(comparison: Comparison) -> Table:
    names = ("start_lag", "end_lag", "span", "token_weighted_lag", "intra_batch_lag")
    titles = ("start lag", "end lag", "span", "token- weighted", "intra-batch, updates")
    table = titled_table(
        "Staleness of trained samples, weights versions: mean (max)", "arm", (*titles, "wasted tokens")
    )
    for arm in comparison.arms:
        cells = (f"{arm.mean(f'{name}_mean'):.2f} ({arm.mean(f'{name}_max'):.0f})" for name in names)
        table.add_row(arm.name, *cells, f"{_wasted(arm):.1%}")
    return table


def _wasted(arm: Arm) -> float:
    """Share of generated tokens that were dropped."""
    dropped = sum(
        tokens
        for outcome in arm.outcomes
        for fate, tokens in outcome.metrics.ledger_tokens.items()
        if fate in ("dropped_stale", "dropped_surplus", "filtered", "failed", "undelivered", "checks")
    )
    return dropped / max(1, sum(outcome.metrics.generated_tokens for outcome in arm.outcomes))


def _everything(arm: Arm) -> Table:
    table = titled_table(
        f"All metrics of {arm.name}, mean of {len(arm.outcomes)} replication(s); uses of GPU time that are 0 left out",
        "metric",
        ("value",),
    )
    flat = [outcome.metrics.as_dict() for outcome in arm.outcomes]
    for name, value in flat[0].items():
        if isinstance(value, str | bool):
            table.add_row(name, str(value))
        elif name != "replication":
            mean = sum(float(run[name]) for run in flat) / len(flat)
            if mean or not name.startswith("utilisation."):
                table.add_row(name, f"{mean:,.4g}")
    return table


def _notes(comparison: Comparison) -> Iterator[str]:
    for arm in comparison.arms:
        yield f"{arm.name}: {arm.outcomes[0].verdict}"
    yield ""
    yield from budgets_used(comparison.arms)
    yield from _declared(comparison)
    yield from _sensitivity(comparison)
    yield from _sources(comparison)
    run = comparison.arms[0].plan.scenario.run
    replications = len(comparison.arms[0].outcomes)
    closes = all(outcome.metrics.ledger_closes for arm in comparison.arms for outcome in arm.outcomes)
    yield (
        f"Sizes: {run.steps} steps, the first {run.warmup_steps} left out; {replications} paired replications; "
        f"token ledger {'closes' if closes else 'DOES NOT CLOSE'} in all of them."
    )


def budgets_used(arms: Sequence[Arm]) -> Iterator[str]:
    """Which runs a budget ended, and after how many steps."""
    for arm in arms:
        ends = [(run.metrics.ended_by, run.metrics.steps) for run in arm.outcomes if BUDGET in run.metrics.ended_by]
        for keys in dict.fromkeys(keys for keys, _ in ends):
            steps = sorted(steps for ended_by, steps in ends if ended_by == keys)
            after = " to ".join(dict.fromkeys(str(count) for count in (steps[0], steps[-1])))
            yield f"{arm.name}: {len(steps)} of {len(arm.outcomes)} runs ended by {keys}, after {after} steps."


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
    grouped: dict[tuple[str, float], list[str]] = {}
    reasons: dict[str, str] = {}
    for shift in comparison.shifts:
        grouped.setdefault((shift.key, shift.value), []).append(f"{shift.arm} {shift.change:+.1%}")
        reasons[shift.key] = shift.reason
    for key, reason in reasons.items():
        yield f"Assumed: {key} ({reason}). Step time with another value, one paired replication:"
        for (shifted, value), changes in grouped.items():
            if shifted == key:
                yield f"  {value:g}: {', '.join(changes)}"


def _sources(comparison: Comparison) -> Iterator[str]:
    known: dict[tuple[str, str, bool], list[str]] = {}
    for arm in comparison.arms:
        for source in arm.plan.sources:
            known.setdefault((source.what, source.text, source.estimate), []).append(arm.name)
    for (subject, text, estimate), arms in known.items():
        only = "" if len(arms) == len(comparison.arms) else f" ({', '.join(arms)})"
        yield f"{'ESTIMATE' if estimate else 'Source'}, {subject}: {text}{only}."
