"""A race as text and figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from rlsim.results.plots.allotted import WHAT
from rlsim.results.progress import USED
from rlsim.results.statistics import Estimate
from rlsim.studies.race import WASTE, Race, allocations_of, band_shares, success, wasted
from rlsim.studies.text.comparison import budgets_used
from rlsim.studies.text.table import new_table, plus_minus, rendered

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
    tables = [_to_target(race), *_shares(race)]
    text = rendered(tables, [NOTE, *budgets_used(race.arms), *_stragglers(race)], WIDTH)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def save_figures(race: Race, out: Path) -> list[Path]:
    """Success against rollouts, time and money; which prompts got the samples, and which the tokens."""
    from rlsim.results.plots.allotted import allotted_map
    from rlsim.results.plots.scaling import progress_curves
    from rlsim.results.plots.style import save_figure

    curves = {arm.name: [record.progress or {} for record in arm.records] for arm in race.arms}
    maps = {arm.name: allocations_of(arm) for arm in race.arms}
    figures = {"progress": progress_curves(curves, race.target, race.name)}
    for unit, counted in WHAT.items():
        figures[f"allotted_{unit}"] = allotted_map(maps, unit, f"Which prompts got the {counted.name}: {race.name}")
    for name, figure in figures.items():
        save_figure(figure, out / f"{name}.png")
    return [out / f"{name}.png" for name in figures]


def _to_target(race: Race) -> Table:
    shown = [column for title, _ in _SHOWN.values() for column in (title, "vs first")]
    rows = []
    for arm in race.arms:
        row = [arm.name, f"{success(arm, 0).mean:.2f}-{success(arm, -1).mean:.2f}"]
        for used, (_, unit) in _SHOWN.items():
            row += [_amount(race.estimate(arm, used), unit), _ratio(race.over_first(arm, used))]
        rows.append([*row, _amount(race.estimate(arm, "usd"), 1.0)])
    title = f"To a success of {race.target:g} (± half of the interval)"
    return new_table(title, ["arm", "success", *shown, "USD"], rows)


def _shares(race: Race) -> Iterator[Table]:
    """Success at equal budgets, wasted tokens, and what each band of prompts got."""
    rows = [[arm.name, *(_points(race.difference_at(arm, used)) for used in USED)] for arm in race.arms]
    title = "Success less the first arm's, in points, once both have used as much"
    yield new_table(title, ["arm", *(used.replace("_", " ") for used in USED)], rows)
    waste = [(arm.name, wasted(arm)) for arm in race.arms]
    rows = [[arm, *(f"{100 * share:.1f}" for share in (sum(by.values()), *by.values()))] for arm, by in waste]
    columns = ["arm", "all", *(outcome.replace("_", " ") for outcome in WASTE)]
    yield new_table("Generated tokens that were never trained on, %", columns, rows)
    rows = []
    for arm in race.arms:
        samples, tokens = band_shares(arm, "samples"), band_shares(arm, "tokens")
        rows.append([arm.name, *(f"{100 * samples[band]:.1f} ({100 * tokens[band]:.1f})" for band in BAND_TITLES)])
    title = "Samples (response tokens) by success of their prompt when they began, %"
    yield new_table(title, ["arm", *BAND_TITLES.values()], rows)


def _stragglers(race: Race) -> Iterator[str]:
    for arm in race.arms:
        missing = sum(value is None for value in race.used(arm, "rollouts"))
        if missing:
            steps = max(record.metrics.steps for record in arm.records)
            yield (
                f"{arm.name}: {missing} of {len(arm.records)} runs do not reach {race.target:g} in "
                f"{steps} steps; give run.steps (or run.budget) more, or a lower --to"
            )


def _amount(estimate: Estimate | None, unit: float) -> str:
    if estimate is None:
        return "not reached"
    return plus_minus(estimate, lambda value: f"{value / unit:,.3g}", lambda value: f"{value / unit:,.2g}")


def _ratio(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    interval = "" if estimate.low is None else f" ({estimate.low:.2f}-{estimate.high:.2f})"
    return f"{estimate.mean:.2f}x{interval}"


def _points(estimate: Estimate) -> str:
    return plus_minus(estimate, lambda value: f"{100 * value:+.1f}", lambda value: f"{100 * value:.1f}")
