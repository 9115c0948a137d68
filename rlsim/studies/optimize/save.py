"""What ``rlsim plan --out`` leaves beside the runs: ``plan.json``, and the figures for which there are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.results.plots.planning import AxisLevel, Bar, Spot, optimum, pareto, tornado
from rlsim.results.plots.style import save_figure
from rlsim.results.store import replacing
from rlsim.scenario.variation import Level
from rlsim.studies.optimize.scoring import COST, EvaluatedPoint
from rlsim.studies.optimize.selection import MARGIN, Selection
from rlsim.studies.optimize.sensitivity import Swing
from rlsim.studies.optimize.space import Axis
from rlsim.studies.optimize.study import OptimizeResult
from rlsim.studies.text.optimize import OBJECTIVES, as_json, by_swing
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
    with replacing(directory / "plan.json") as part:
        part.write_text(as_json(result), encoding="utf-8")
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
        note = f"Paired, {_replications(result)}; choice: {_named(result.selection)}"
        title = f"What the choice depends on, {result.scenario}"
        save_figure(tornado(bars, objective, title, note), directory / "tornado.png")


def _replications(result: OptimizeResult) -> str:
    scenario = result.request.space.document.resolve_all()
    confidence = next(iter(scenario.values())).run.confidence
    return f"n = {result.request.replications} replications, {confidence:.0%} intervals"


def _pareto(result: OptimizeResult, selection: Selection) -> Figure:
    names = varying([evaluated.candidate.variant.levels for evaluated in selection.contenders])
    spots = [
        Spot(
            label(evaluated.candidate.variant.levels, names),
            evaluated.estimate(selection.measures[0]),
            evaluated.estimate(selection.measures[1]),
            evaluated in selection.front,
            evaluated is selection.best,
        )
        for evaluated in selection.contenders
    ]
    replicated = {evaluated.point for evaluated in selection.contenders}
    spots += [
        Spot("", evaluated.estimate(selection.measures[0]), evaluated.estimate(selection.measures[1]), False, False)
        for point, evaluated in selection.looked_at.items()
        if point not in replicated
    ]
    note = f"Contenders: {_replications(result)}; the other points: one replication"
    return pareto(
        spots, UNITS[selection.measures[0]], UNITS[selection.measures[1]], f"Time against cost, {result.scenario}", note
    )


def _optimum(result: OptimizeResult, selection: Selection, axis: Axis) -> Figure:
    number = [other.name for other in result.request.space.axes].index(axis.name)
    levels = []
    for index, level in enumerate(axis.factor.levels):
        best = _best_with(selection, number, index)
        estimate = None if best is None else best.estimate(best.objective)
        levels.append(AxisLevel(level.text, estimate, _series(level)))
    objective = selection.best.objective
    note = f"Each point: the best found over the other axes; {_replications(result)}"
    named = short(axis.name, [other.name for other in result.request.space.axes])
    title = f"How flat the optimum is, {result.scenario}"
    return optimum(levels, _axis_title(axis.name, named), UNITS[objective], MARGIN, title, note)


def _series(level: Level) -> str:
    """Levels that set the size of the cluster are joined where it is the same."""
    sizes = [str(node.value) for path, node in level.settings if path == ("cluster", "gpus")]
    shared = "" if "+" in level.text else " shared"
    return sizes[0] + shared if sizes else ""


def _axis_title(name: str, named: str) -> str:
    return "split: rollout + trainer GPUs (one number: shared)" if name == "split" else named.replace("_", " ")


def _best_with(selection: Selection, axis: int, index: int) -> EvaluatedPoint | None:
    """The best point with a level of an axis: replicated where there is one, else as it was looked at."""
    with_it = [evaluated for evaluated in selection.contenders if evaluated.point[axis] == index]
    looked = [evaluated for point, evaluated in selection.looked_at.items() if point[axis] == index]
    return min(with_it or looked, key=lambda evaluated: evaluated.value, default=None)


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


def _named(selection: Selection) -> str:
    levels = selection.best.candidate.variant.levels
    return label(levels, list(levels))
