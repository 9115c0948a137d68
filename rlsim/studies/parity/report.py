"""What a comparison of live and simulated runs found, as text, as JSON, as Markdown and as figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlsim import __version__
from rlsim.studies.compare import arm_folder
from rlsim.studies.output import json_text, write_text
from rlsim.studies.parity.end_order import Order
from rlsim.studies.parity.errors import ArmParity, ParityRow, median_trial, row_of, rows_of
from rlsim.studies.parity.study import Parity
from rlsim.studies.text.table import new_table, rendered

COLUMNS = ("quantity", "unit", "live", "live runs", "simulated", "error", "schedule", "cost model", "live to live")
DEFINITIONS = (
    "error: of the simulation against the median of the live runs; schedule: of a simulation with recorded durations "
    "against its own live run, in the median; cost model: the rest; live to live: the median over all pairs of runs",
    "tie: samples whose ends are at most so far apart live: the shortest engine step, or the median way of an event to "
    "its decision where that is longer; distance: total variation, 0 to 1",
)
Cells = list[str]


def as_text(parity: Parity) -> str:
    """One table: of all quantities for one policy, of all policies for several; then what the words mean."""
    columns, rows = table_of(parity)
    return rendered([new_table(heading(parity), columns, rows)], notes(parity))


def as_markdown(parity: Parity, command: str) -> str:
    """The same table and notes, headed by what was compared and the command that did it."""
    columns, rows = table_of(parity)
    lines = [f"### {heading(parity)}", "", "```", command, "```", ""]
    lines += ["| " + " | ".join(cells) + " |" for cells in (list(columns), ["---"] * len(columns), *rows)]
    return "\n".join([*lines, "", *(f"- {line}" for line in notes(parity)), "", ""])


def heading(parity: Parity) -> str:
    """What was compared; emulation is said first."""
    return f"Parity, {parity.name}: simulated against live on {parity.engine} ({parity.label})"


def table_of(parity: Parity) -> tuple[tuple[str, ...], list[Cells]]:
    """Columns and cells of the one table."""
    if len(parity.arms) > 1:
        columns = [_policy_cells(arm) for arm in parity.arms]
        rows = [[name, *(cells[name] for cells in columns)] for name in columns[0]]
        return ("", *(arm.name for arm in parity.arms)), rows
    return COLUMNS, [_cells(row) for row in rows_of(parity.arms[0])]


def notes(parity: Parity) -> Iterator[str]:
    """What is no row of the table, and the definitions that its numbers need."""
    if parity.ranking is None:
        yield from _arm_notes(parity.arms[0])
    else:
        ranking = parity.ranking
        yield f"ranking live: {', '.join(ranking.live)}; simulated: {', '.join(ranking.simulated)}"
        winners = f"{ranking.live[0]} live, {ranking.simulated[0]} simulated"
        yield f"winner: {'the same' if ranking.same_winner else winners}"
        noise = "unknown" if ranking.noise is None else f"{ranking.noise:.1%}"
        tau = "unknown, as no pair counts," if ranking.tau is None else f"{ranking.tau:.3f}"
        everything = "none" if ranking.tau_of_all is None else f"{ranking.tau_of_all:.3f}"
        yield (
            f"Kendall tau {tau} over the {ranking.pairs} pairs whose simulated step times differ by more than "
            f"{ranking.threshold:.1%} (3 %, or the noise, {noise}, if larger); {everything} over all pairs"
        )
    for arm in parity.arms:
        for fault in arm.policy_errors:
            yield f"{arm.name}: a live decision that a fresh controller takes differently: {fault}"
        limit, worst = arm.plan.scenario.live.max_late_share, max(trial.late_share for trial in arm.trials)
        if worst or arm.discarded:
            shares = ", ".join(f"{share:.1%}" for share in arm.discarded)
            gone = f"; {len(arm.discarded)} runs repeated, not counted, with {shares}" if arm.discarded else ""
            yield f"{arm.name}: late steps: at most {worst:.2%} of a run that counts (limit {limit:.1%}){gone}"
    yield from parity.calibration
    yield from DEFINITIONS


def _arm_notes(arm: ArmParity) -> Iterator[str]:
    decisions, order, far = sum(trial.decisions for trial in arm.trials), arm.recorded_order, arm.predicted_order
    errors = len(arm.policy_errors)
    yield f"policy error {errors}: {decisions} live decisions of {len(arm.trials)} runs replayed, {errors} runs differ"
    if order is None:
        yield "schedule error unknown: these engines do not tell their steps"
    else:
        beyond = max(trial.rerun.unrecorded for trial in arm.trials if trial.rerun)
        steps, others = arm.recorded_batches
        yield f"with recorded durations, {others} of {steps} engine steps hold another batch than live"
        yield (
            f"completion order with recorded durations: {_order(order)}; {order.unmatched} samples ended in one run "
            f"only; {beyond} durations beyond the record"
        )
    yield f"completion order as predicted: {_order(far)}"
    noise = "" if arm.lag_noise is None else f"; of two live runs at most {arm.lag_noise:.3f}"
    yield f"start-lag histograms: predicted against live {arm.lag_distance:.3f} apart{noise}"


def _order(order: Order) -> str:
    return (
        f"{order.inversions} of {order.pairs} pairs inverted beyond ties ({order.tie_seconds * 1e3:.3g} ms); ends "
        f"differ by {order.median_seconds:.3g} s in the median, {order.worst_seconds:.3g} s at most"
    )


def _cells(row: ParityRow) -> Cells:
    relative = row.kind == "relative"
    errors = (row.error, row.schedule, row.cost)
    shown = [_percent(value, "+.2%") if relative else _signed(value, row.unit) for value in errors]
    noise = _percent(row.noise) if relative else _plain(row.noise, row.unit)
    runs = f"{_plain(row.low, row.unit)} to {_plain(row.high, row.unit)}"
    return [row.name, row.unit, _plain(row.live, row.unit), runs, _plain(row.predicted, row.unit), *shown, noise]


def _policy_cells(arm: ArmParity) -> dict[str, str]:
    """One policy's column, by what its rows are."""
    row, order = arm.step, arm.recorded_order
    makespan = row_of(arm, "makespan", "s", "relative", lambda observed: observed.makespan_seconds)
    return {
        "live step time, median, s": f"{row.live:.4g}",
        "live runs, s": f"{row.low:.4g} to {row.high:.4g}",
        "simulated, s": f"{row.predicted:.4g}",
        "error": _percent(row.error, "+.2%"),
        "  policy, runs that differ": str(len(arm.policy_errors)),
        "  schedule": _percent(row.schedule, "+.2%"),
        "  cost model": _percent(row.cost, "+.2%"),
        "live to live": _percent(row.noise),
        "makespan, recorded durations": _percent(makespan.schedule, "+.2%"),
        "engine steps with another batch": "-" if order is None else "{1} of {0}".format(*arm.recorded_batches),
        "pairs inverted": "-" if order is None else f"{order.inversions} of {order.pairs}",
        "  tie, ms": "-" if order is None else f"{order.tie_seconds * 1e3:.3g}",
        "start lags, distance": f"{arm.lag_distance:.3f}",
        "  of two live runs, at most": "-" if arm.lag_noise is None else f"{arm.lag_noise:.3f}",
        "late steps, at most": f"{max(trial.late_share for trial in arm.trials):.2%}",
        "late runs, repeated": str(len(arm.discarded)),
    }


def _plain(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value:.1%}" if unit == "share" else f"{value:,.0f}" if unit == "tokens" else f"{value:.4g}"


def _signed(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value * 100:+.1f} pp" if unit == "share" else f"{value:+,.0f}" if unit == "tokens" else f"{value:+.3g}"


def _percent(value: float | None, form: str = ".2%") -> str:
    return "-" if value is None else format(value, form)


# -- files ----------------------------------------------------------------------------------------------


def as_json(parity: Parity, command: str) -> str:
    """Everything, for machines."""
    ranking = parity.ranking
    content = {
        "name": parity.name,
        "engine": parity.engine,
        "label": parity.label,
        "rlsim": __version__,
        "command": command,
        "calibration": list(parity.calibration),
        "ranking": None if ranking is None else asdict(ranking) | {"same_winner": ranking.same_winner},
        "policies": {arm.name: arm.to_dict() for arm in parity.arms},
        "notes": list(notes(parity)),
    }
    return json_text(content)


def save(parity: Parity, out: Path, command: str) -> None:
    """``parity.json`` and ``parity.png``; of several policies also the timelines of each."""
    from rlsim.results.plots.style import save_figure

    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "parity.json", as_json(parity, command))
    if parity.ranking is None:
        save_figure(_timelines(parity, parity.arms[0]), out / "parity.png")
        return
    save_figure(_step_times(parity), out / "parity.png")
    for arm in parity.arms:
        save_figure(_timelines(parity, arm), out / f"parity-{arm_folder(arm.name)}.png")


def _timelines(parity: Parity, arm: ArmParity) -> Any:
    from rlsim.results.plots.timeline import timelines
    from rlsim.results.tables import tables

    trial, row = median_trial(arm), arm.step
    live, simulated = tables(trial.run), tables(arm.run)
    note = f"{parity.label}; the live run of median step time, {trial.observed.step_seconds:.4g} s"
    names = {
        f"live on {parity.engine}: step {trial.observed.step_seconds:.4g} s": live,
        f"simulated: step {row.predicted:.4g} s ({row.error:+.1%} of the live median)": simulated,
    }
    return timelines(names, f"Live and simulated, {arm.name}", note)


def _step_times(parity: Parity) -> Any:
    from rlsim.results.plots.arms import StepTimeRange, live_and_simulated

    rows = {arm.name: arm.step for arm in parity.arms}
    steps = {name: StepTimeRange(row.live, row.low, row.high, row.predicted) for name, row in rows.items()}
    return live_and_simulated(steps, f"Step time by policy, {parity.name}", parity.label)


def append_markdown(parity: Parity, file: Path, command: str) -> None:
    """Add the table at the end of a file."""
    with open(file, "a", encoding="utf-8") as end:
        end.write(as_markdown(parity, command))
