"""What ``rlsim plan --out`` leaves beside the runs: ``plan.json``, and the figures for which there are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.results.plots.planning import Bar, Level, Spot, optimum, pareto, tornado
from rlsim.results.plots.style import save_figure
from rlsim.results.store import replacing
from rlsim.scenario.variation import Level as Written
from rlsim.studies.optimize.decide import MARGIN, Decision
from rlsim.studies.optimize.scoring import COST, Scored
from rlsim.studies.optimize.sensitivity import Swing
from rlsim.studies.optimize.space import Axis
from rlsim.studies.optimize.study import Answer
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


def save_answer(directory: Path, told: Answer) -> None:
    """The answer for machines, and its figures as PNG."""
    directory.mkdir(parents=True, exist_ok=True)
    with replacing(directory / "plan.json") as part:
        part.write_text(as_json(told), encoding="utf-8")
    if told.decision is None:
        return
    save_figure(_pareto(told, told.decision), directory / "pareto.png")
    for axis in told.question.space.axes:
        if axis.is_ordered and len(axis.factor.levels) > 2:
            name = "".join(letter if letter.isalnum() else "_" for letter in axis.name)
            save_figure(_optimum(told, told.decision, axis), directory / f"optimum_{name}.png")
    bars = _bars(told.swings)
    if bars:
        objective = OBJECTIVES[told.decision.best.objective]
        note = f"Paired, {_replications(told)}; choice: {_named(told.decision)}"
        title = f"What the choice depends on, {told.scenario}"
        save_figure(tornado(bars, objective, title, note), directory / "tornado.png")


def _replications(told: Answer) -> str:
    scenario = told.question.space.document.resolve_all()
    confidence = next(iter(scenario.values())).run.confidence
    return f"n = {told.question.replications} replications, {confidence:.0%} intervals"


def _pareto(told: Answer, decision: Decision) -> Figure:
    names = varying([one.candidate.variant.levels for one in decision.contenders])
    spots = [
        Spot(
            label(one.candidate.variant.levels, names),
            one.estimate(decision.measures[0]),
            one.estimate(decision.measures[1]),
            one in decision.front,
            one is decision.best,
        )
        for one in decision.contenders
    ]
    replicated = {one.at for one in decision.contenders}
    spots += [
        Spot("", one.estimate(decision.measures[0]), one.estimate(decision.measures[1]), False, False)
        for at, one in decision.looked_at.items()
        if at not in replicated
    ]
    note = f"Contenders: {_replications(told)}; the other points: one replication"
    return pareto(
        spots, UNITS[decision.measures[0]], UNITS[decision.measures[1]], f"Time against cost, {told.scenario}", note
    )


def _optimum(told: Answer, decision: Decision, axis: Axis) -> Figure:
    number = [one.name for one in told.question.space.axes].index(axis.name)
    levels = []
    for index, level in enumerate(axis.factor.levels):
        best = _best_with(decision, number, index)
        found = None if best is None else best.estimate(best.objective)
        levels.append(Level(level.text, found, _series(level)))
    objective = decision.best.objective
    note = f"Each point: the best found over the other axes; {_replications(told)}"
    named = short(axis.name, [one.name for one in told.question.space.axes])
    title = f"How flat the optimum is, {told.scenario}"
    return optimum(levels, _axis_title(axis.name, named), UNITS[objective], MARGIN, title, note)


def _series(level: Written) -> str:
    """Levels that set the size of the cluster are joined where it is the same."""
    sizes = [str(node.value) for path, node in level.settings if path == ("cluster", "gpus")]
    shared = "" if "+" in level.text else " shared"
    return sizes[0] + shared if sizes else ""


def _axis_title(name: str, named: str) -> str:
    return "split: rollout + trainer GPUs (one number: shared)" if name == "split" else named.replace("_", " ")


def _best_with(decision: Decision, axis: int, index: int) -> Scored | None:
    """The best point with a level of an axis: replicated where there is one, else as it was looked at."""
    with_it = [one for one in decision.contenders if one.at[axis] == index]
    looked = [one for at, one in decision.looked_at.items() if at[axis] == index]
    return min(with_it or looked, key=lambda one: one.value, default=None)


def _bars(swings: Sequence[Swing]) -> list[Bar]:
    """Inputs whose two ends were both judged."""
    ordered = by_swing(swings)
    bars = []
    for key in dict.fromkeys(one.key for one in ordered):
        ends = [one for one in ordered if one.key == key]
        if len(ends) == 2:
            low, high = ends
            matter = (low.changes_the_choice, high.changes_the_choice)
            bars.append(Bar(key, low.text, high.text, low.change, high.change, *matter))
    return bars


def _named(decision: Decision) -> str:
    levels = decision.best.candidate.variant.levels
    return label(levels, list(levels))
