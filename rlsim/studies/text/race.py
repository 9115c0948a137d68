"""A race as text, JSON and a figure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rlsim import __version__
from rlsim.results.plots.allotted import WHAT
from rlsim.results.progress import USED
from rlsim.results.statistics import Estimate
from rlsim.studies.compare import Arm
from rlsim.studies.race import WASTE, Race, allocations_of, band_shares, success, wasted
from rlsim.studies.text.comparison import budgets_used
from rlsim.studies.text.table import titled_table

WIDTH = 118
_SHOWN = {"rollouts": ("k rollouts", 1e3), "generated_tokens": ("M tokens", 1e6), "seconds": ("hours", 3600.0)}
"""Titles and units of what the table shows of ``USED``."""
BAND_TITLES = {
    "never": "never: < 5",
    "hard": "hard: 5-35",
    "middle": "middle: 35-65",
    "easy": "easy: 65-95",
    "always": "always: >= 95",
}
"""Bands of success probability, in per cent, of which a race shows what they got."""
NOTE = (
    "Success is the expected success of a fresh sample over all prompts, of a statistical model of learning: an "
    "ESTIMATE (docs: learning), and its defaults are estimates too. Ratios above 1x are better than the first arm."
)


def as_text(race: Race) -> str:
    """What it took to get to the target, at equal budgets, and what was wasted."""
    out = StringIO()
    console = Console(file=out, width=WIDTH, highlight=False)
    for table in (_to_target(race), _at_equal_budget(race), _waste(race), _shares_by_band(race)):
        console.print(table)
        console.print()
    console.print(NOTE, markup=False)
    for line in (*budgets_used(race.arms), *_stragglers(race)):
        console.print(line, markup=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def as_json(race: Race) -> str:
    """The same for machines, and the whole progress of every run."""
    arms = {arm.name: _arm(race, arm) for arm in race.arms}
    whole = {"name": race.name, "rlsim": __version__, "target": race.target, "estimate": True, "arms": arms}
    return json.dumps(whole, indent=1) + "\n"


def save_figures(race: Race, out: Path) -> list[Path]:
    """Success against rollouts, time and money; which prompts got the samples, and which the tokens."""
    from rlsim.results.plots.allotted import allotted_map
    from rlsim.results.plots.scaling import progress_curves
    from rlsim.results.plots.style import save_figure

    curves = {arm.name: [outcome.progress or {} for outcome in arm.outcomes] for arm in race.arms}
    maps = {arm.name: allocations_of(arm) for arm in race.arms}
    figures = {"progress": progress_curves(curves, race.target, race.name)}
    for unit, counted in WHAT.items():
        figures[f"allotted_{unit}"] = allotted_map(maps, unit, f"Which prompts got the {counted.name}: {race.name}")
    for name, figure in figures.items():
        save_figure(figure, out / f"{name}.png")
    return [out / f"{name}.png" for name in figures]


def _arm(race: Race, arm: Arm) -> dict[str, object]:
    def estimate_json(estimate: Estimate | None) -> object:
        return None if estimate is None else asdict(estimate)

    return {
        "success_first": asdict(success(arm, 0)),
        "success_last": asdict(success(arm, -1)),
        "to_target": {used: estimate_json(race.estimate(arm, used)) for used in USED},
        "first_over_this": {used: estimate_json(race.over_first(arm, used)) for used in USED},
        "difference_at_equal": {used: asdict(race.difference_at(arm, used)) for used in USED},
        "wasted_share_of_tokens": wasted(arm),
        "share_by_success_band": {unit: band_shares(arm, unit) for unit in WHAT},
        "progress": [
            {name: values.tolist() for name, values in (outcome.progress or {}).items()} for outcome in arm.outcomes
        ],
    }


def _to_target(race: Race) -> Table:
    shown = [column for title, _ in _SHOWN.values() for column in (title, "vs first")]
    title = f"To a success of {race.target:g} (± half of the interval)"
    table = titled_table(title, "arm", ("success", *shown, "USD"))
    for arm in race.arms:
        start, end = success(arm, 0).mean, success(arm, -1).mean
        cells = [f"{start:.2f}-{end:.2f}"]
        for used, (_, unit) in _SHOWN.items():
            cells += [_amount(race.estimate(arm, used), unit), _ratio(race.over_first(arm, used))]
        table.add_row(arm.name, *cells, _amount(race.estimate(arm, "usd"), 1.0))
    return table


def _at_equal_budget(race: Race) -> Table:
    title = "Success less the first arm's, in points, once both have used as much"
    table = titled_table(title, "arm", (used.replace("_", " ") for used in USED))
    for arm in race.arms:
        table.add_row(arm.name, *(_points(race.difference_at(arm, used)) for used in USED))
    return table


def _waste(race: Race) -> Table:
    columns = ("all", *(fate.replace("_", " ") for fate in WASTE))
    table = titled_table("Generated tokens that were never trained on, %", "arm", columns)
    for arm in race.arms:
        shares = wasted(arm)
        table.add_row(arm.name, *(f"{100 * share:.1f}" for share in (sum(shares.values()), *shares.values())))
    return table


def _shares_by_band(race: Race) -> Table:
    title = "Samples (response tokens) by success of their prompt when they began, %"
    table = titled_table(title, "arm", BAND_TITLES.values())
    for arm in race.arms:
        samples, tokens = band_shares(arm, "samples"), band_shares(arm, "tokens")
        table.add_row(arm.name, *(f"{100 * samples[band]:.1f} ({100 * tokens[band]:.1f})" for band in BAND_TITLES))
    return table


def _stragglers(race: Race) -> Iterator[str]:
    for arm in race.arms:
        missing = sum(value is None for value in race.used(arm, "rollouts"))
        if missing:
            steps = max(outcome.metrics.steps for outcome in arm.outcomes)
            yield (
                f"{arm.name}: {missing} of {len(arm.outcomes)} runs do not reach {race.target:g} in "
                f"{steps} steps; give run.steps (or run.budget) more, or a lower --to"
            )


def _amount(estimate: Estimate | None, unit: float) -> str:
    if estimate is None:
        return "not reached"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.mean / unit:,.3g}"
    return f"{estimate.mean / unit:,.3g} ± {(estimate.high - estimate.low) / 2 / unit:,.2g}"


def _ratio(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    if estimate.low is None:
        return f"{estimate.mean:.2f}x"
    return f"{estimate.mean:.2f}x ({estimate.low:.2f}-{estimate.high:.2f})"


def _points(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.mean:+.1f}"
    return f"{100 * estimate.mean:+.1f} ± {50 * (estimate.high - estimate.low):.1f}"
