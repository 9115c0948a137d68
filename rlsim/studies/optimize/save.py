"""What ``rlsim plan --out`` leaves beside the runs: ``plan.json``, and the figures for which there are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.results.plots.planning import AxisLevel, Bar, Spot, optimum, pareto, tornado
from rlsim.results.plots.style import save_figure
from rlsim.studies.optimize.scoring import COST
from rlsim.studies.optimize.selection import MARGIN, Selection
from rlsim.studies.optimize.sensitivity import Swing
from rlsim.studies.optimize.space import SPLIT, Axis
from rlsim.studies.optimize.study import OptimizeResult
from rlsim.studies.output import json_text, write_text
from rlsim.studies.text.optimize import OBJECTIVES, by_swing
from rlsim.studies.text.sweep import label, short, varying

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = {
    "step_seconds": "step time, s",
    "seconds_per_million_trained_tokens": "time per million trained tokens, s",
    COST: "cost, USD per million trained tokens",
    "seconds_to_target": "time to the target, s (estimate)",
    "usd_to_target": "cost to the target, USD (estimate)",
}


def save_result(directory: Path, result: OptimizeResult) -> None:
    """The answer for machines, and its figures as PNG."""
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / "plan.json", json_text(result.to_dict()))
    if result.selection is None:
        return
    save_figure(_pareto(result, result.selection), directory / "pareto.png")
    for axis in result.request.space.axes:
        if axis.is_ordered and len(axis.factor.levels) > 2:
            name = "".join(letter if letter.isalnum() else "_" for letter in axis.name)
            save_figure(_optimum(result, result.selection, axis), directory / f"optimum_{name}.png")
    bars = _bars(result.swings)
    if bars:
        objective = OBJECTIVES[result.selection.best.objective]
        levels = result.selection.best.levels
        note = f"Paired, {_replications(result)}; choice: {label(levels, list(levels))}"
        title = f"What the choice depends on, {result.scenario}"
        save_figure(tornado(bars, objective, title, note), directory / "tornado.png")


def _replications(result: OptimizeResult) -> str:
    scenario = result.request.space.scenarios()
    confidence = next(iter(scenario.values())).run.confidence
    return f"n = {result.request.replications} replications, {confidence:.0%} intervals"


def _pareto(result: OptimizeResult, selection: Selection) -> Figure:
    names = varying([evaluated.levels for evaluated in selection.contenders])
    time, cost = selection.measures
    spots = [
        Spot(
            label(evaluated.levels, names),
            evaluated.estimate(time),
            evaluated.estimate(cost),
            evaluated in selection.front,
            evaluated is selection.best,
        )
        for evaluated in selection.contenders
    ]
    replicated = {evaluated.point for evaluated in selection.contenders}
    spots += [
        Spot("", evaluated.estimate(time), evaluated.estimate(cost), False, False)
        for point, evaluated in selection.looked_at.items()
        if point not in replicated
    ]
    note = f"Contenders: {_replications(result)}; the other points: one replication"
    return pareto(spots, UNITS[time], UNITS[cost], f"Time against cost, {result.scenario}", note)


def _optimum(result: OptimizeResult, selection: Selection, axis: Axis) -> Figure:
    names = [other.name for other in result.request.space.axes]
    number = names.index(axis.name)
    levels = []
    for index, level in enumerate(axis.factor.levels):
        replicated = [evaluated for evaluated in selection.contenders if evaluated.point[number] == index]
        looked_at = [evaluated for point, evaluated in selection.looked_at.items() if point[number] == index]
        best = min(replicated or looked_at, key=lambda evaluated: evaluated.value, default=None)
        estimate = None if best is None else best.estimate(best.objective)
        # Levels that set the size of the cluster are joined where it is the same.
        sizes = [str(node.value) for path, node in level.settings if path == ("cluster", "gpus")]
        series = sizes[0] + " shared" * ("+" not in level.text) if sizes else ""
        levels.append(AxisLevel(level.text, estimate, series))
    note = f"Each point: the best found over the other axes; {_replications(result)}"
    is_split = axis.name == SPLIT
    named = (
        "split: rollout + trainer GPUs (one number: shared)" if is_split else short(axis.name, names).replace("_", " ")
    )
    title = f"How flat the optimum is, {result.scenario}"
    return optimum(levels, named, UNITS[selection.best.objective], MARGIN, title, note)


def _bars(swings: Sequence[Swing]) -> list[Bar]:
    """Inputs whose two ends were both judged."""
    ordered = by_swing(swings)
    bars = []
    for key in dict.fromkeys(swing.key for swing in ordered):
        ends = [swing for swing in ordered if swing.key == key]
        if len(ends) == 2:
            low, high = ends
            matter = (low.changes_the_choice, high.changes_the_choice)
            bars.append(Bar(key, low.text, high.text, low.change, high.change, *matter))
    return bars
