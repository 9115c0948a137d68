"""A plan as text and for machines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from rlsim import __version__
from rlsim.results.statistics import Estimate
from rlsim.studies.optimize.explore import is_exhaustive
from rlsim.studies.optimize.scoring import COST, EvaluatedPoint
from rlsim.studies.optimize.selection import MARGIN, Selection
from rlsim.studies.optimize.sensitivity import Robust, Swing
from rlsim.studies.optimize.study import OptimizeResult
from rlsim.studies.text.sweep import label, new_table, short, shown, shown_mean, source_lines, varying
from rlsim.studies.text.table import rendered

_EXTRA = {
    "seconds_per_million_trained_tokens": "s /M tokens",
    "seconds_to_target": "s to target",
    "usd_to_target": "USD to target",
}
ROWS = 20
"""Contenders in the table."""
OBJECTIVES = {
    "step_seconds": "step time",
    "seconds_per_million_trained_tokens": "seconds per million trained tokens",
    COST: "USD per million trained tokens",
    "seconds_to_target": "seconds to the target",
    "usd_to_target": "USD to the target",
}


def as_text(result: OptimizeResult) -> str:
    """The choice, how sure and how flat it is, what it was chosen from, and what would change it."""
    if result.selection is None:
        return "".join(f"{line}\n" for line in ("No feasible choice.", *_search_lines(result)))
    names = _names(result)
    lines = [*_choice_lines(result, result.selection, names), "", *_search_lines(result), ""]
    tables = [_contenders(result, result.selection, names)]
    tables += [_robust(result.robust, names)] if result.robust is not None and result.robust.points else []
    tables += [_tornado(result.swings, result.selection, names)] if result.swings else []
    text = "".join(f"{line}\n" for line in lines) + rendered(tables)
    return text + "".join(f"{line}\n" for line in _notes(result, result.selection, names))


def as_json(result: OptimizeResult) -> str:
    """Everything, for machines."""
    selection = result.selection
    whole = {
        "name": result.scenario,
        "rlsim": __version__,
        "search": result.request.search.model_dump(mode="json"),
        "points": result.request.space.size,
        "points_simulated": len(result.spent.points),
        "runs_made": result.spent.runs_made,
        "runs_reused": result.spent.runs_reused,
        "infeasible": {kind: {"points": count, "first": text} for kind, (count, text) in result.infeasible.items()},
        "best": None if selection is None else _point(selection.best, selection),
        "contenders": [] if selection is None else [_point(evaluated, selection) for evaluated in selection.contenders],
        "robust": None if result.robust is None else result.robust.to_dict(),
        "sensitivity": [{**asdict(swing), "changes_the_choice": swing.changes_the_choice} for swing in result.swings],
        "unjudged": result.unjudged,
        "marginal": [asdict(marginal) for marginal in result.marginal],
    }
    return json.dumps(whole, indent=1) + "\n"


def _point(evaluated: EvaluatedPoint, selection: Selection) -> dict[str, Any]:
    return {
        "levels": evaluated.candidate.variant.levels,
        "gpus": evaluated.candidate.gpus,
        "usd_per_hour": evaluated.candidate.usd_per_hour,
        "objective": asdict(evaluated.estimate(evaluated.objective)),
        "step_seconds": asdict(evaluated.estimate("step_seconds")),
        COST: asdict(evaluated.estimate(COST)),
        "start_lag_max": max(evaluated.values("start_lag_max")),
        "ratio_to_best": asdict(selection.ratio(evaluated)),
        "on_front": evaluated in selection.front,
        "as_written": evaluated in selection.written,
        "tied_with_best": evaluated in selection.tied,
        "run": evaluated.result.runs[0].identity,
    }


def _names(result: OptimizeResult) -> list[str]:
    axes = result.request.space.axes
    return [axis.name for axis in axes if len(axis.factor.levels) > 1] or [axis.name for axis in axes]


def _choice_lines(result: OptimizeResult, selection: Selection, names: Sequence[str]) -> Iterator[str]:
    best = selection.best
    objective = OBJECTIVES[best.objective]
    yield f"{result.scenario}: least {objective}"
    yield f"Choice: {label(best.candidate.variant.levels, names)}"
    step, usd = shown(best.estimate("step_seconds")), shown(best.estimate(COST))
    lag = max(best.values("start_lag_max"))
    yield f"  step {step} s, {usd} USD per million trained tokens, start lag at most {lag:g}"
    if selection.best.target is not None:
        seconds, money = shown(best.estimate("seconds_to_target")), shown(best.estimate("usd_to_target"))
        yield f"  ESTIMATE: to a success rate of {best.target:g} in {seconds} s, for {money} USD (docs: learning model)"
    yield f"  {best.candidate.gpus} GPUs, {best.candidate.usd_per_hour:.2f} USD an hour"
    yield f"  {_flatness(selection, names)}"
    for evaluated in selection.written:
        levels = label(evaluated.candidate.variant.levels, names)
        yield f"As written ({levels}): {shown(selection.ratio(evaluated), '.3f')} times the choice's {objective}."


def _flatness(selection: Selection, names: Sequence[str]) -> str:
    flat = selection.flat
    if len(flat) == 1:
        return f"No other point that was looked at is within {MARGIN:.0%} of it."
    levels = [evaluated.candidate.variant.levels for evaluated in flat]
    spans = [f"{short(name, names)} {_span(name, levels)}" for name in varying(levels)]
    tied = sum(evaluated in selection.tied for evaluated in flat) - 1
    apart = f"{tied} of them not told apart from it by these replications" if tied else "all told apart from it"
    return f"Flat: {len(flat) - 1} more point(s) within {MARGIN:.0%} of it ({apart}): {', '.join(spans)}."


def _span(name: str, levels: Sequence[dict[str, str]]) -> str:
    return "{" + ", ".join(dict.fromkeys(point_levels[name] for point_levels in levels)) + "}"


def _search_lines(result: OptimizeResult) -> Iterator[str]:
    space, search = result.request.space, result.request.search
    method = "tried out" if is_exhaustive(space, search.evaluations) else "searched (TPE and descents)"
    points = len({point for state, point in result.spent.points if not state})
    infeasible = sum(count for count, _ in result.infeasible.values())
    yield f"{space.size} points {method}: {points} simulated, {infeasible} seen to be infeasible."
    yield f"  {result.spent.runs_made + result.spent.runs_reused} runs, those for doubts included"
    for kind, (count, text) in result.infeasible.items():
        yield f"  infeasible, {kind}: {count} (first: {text})"
    if result.selection is not None and result.selection.left_out:
        left_out = result.selection.left_out
        yield f"  {left_out} more points within {MARGIN:.0%} of the best were simulated once, not replicated"


def _contenders(result: OptimizeResult, selection: Selection, names: Sequence[str]) -> Table:
    objective = selection.best.objective
    titles = ["step, s", "USD /M tokens", "GPUs", "USD /h", "start lag, max", "over best", ""]
    extra = [] if objective in ("step_seconds", COST) else [_EXTRA[objective]]
    title = f"Contenders, {result.request.replications} replication(s) each on the same luck"
    table = new_table(title, [short(name, names) for name in names], [*extra, *titles])
    always_shown = (*selection.front, *selection.written)
    for evaluated in [
        *selection.contenders[:ROWS],
        *(evaluated for evaluated in selection.contenders[ROWS:] if evaluated in always_shown),
    ]:
        table.add_row(
            *(evaluated.candidate.variant.levels[name] for name in names),
            *(shown(evaluated.estimate(objective)) for _ in extra),
            shown(evaluated.estimate("step_seconds")),
            shown(evaluated.estimate(COST)),
            str(evaluated.candidate.gpus),
            f"{evaluated.candidate.usd_per_hour:.2f}",
            f"{max(evaluated.values('start_lag_max')):g}",
            shown(selection.ratio(evaluated), ".3f"),
            _marks(evaluated, selection),
        )
    return table


def _marks(evaluated: EvaluatedPoint, selection: Selection) -> str:
    marks = {
        "best": evaluated is selection.best,
        "front": evaluated in selection.front,
        "tied": evaluated in selection.tied and evaluated is not selection.best,
        "written": evaluated in selection.written,
    }
    return " ".join(mark for mark, has_it in marks.items() if has_it)


def _robust(robust: Robust, names: Sequence[str]) -> Table:
    titles = [*(f"regret, {_brief(state)}" for state in robust.states), "worst regret", "mean"]
    criterion = "least worst regret" if robust.criterion == "regret" else "least mean"
    table = new_table(f"Under uncertain inputs, by {criterion}", [short(name, names) for name in names], titles)
    for point in robust.points[: ROWS // 2]:
        regrets = [f"{regret:+.1%}" for regret in (*point.regrets, point.worst)]
        table.add_row(*(point.texts[name] for name in names), *regrets, shown_mean(point.mean))
    return table


def _brief(state: str) -> str:
    """The ends of the key paths of a state's inputs."""
    return re.sub(r"[\w.]+\.(\w+)=", r"\1=", state)


def _tornado(swings: Sequence[Swing], selection: Selection, names: Sequence[str]) -> Table:
    titles = ["of the objective", "best then", "regret of the choice", "changes the choice"]
    table = new_table("Inputs at other values, the widest swing first", ["input", "value"], titles)
    for swing in by_swing(swings):
        best = "the same" if swing.best == selection.best.candidate.variant.levels else label(swing.best, names)
        table.add_row(
            short(swing.key, [other.key for other in swings]),
            swing.text,
            _percent(swing.change),
            best,
            _percent(swing.regret),
            "yes" if swing.changes_the_choice else "no",
        )
    return table


def by_swing(swings: Sequence[Swing]) -> list[Swing]:
    """In order of the inputs' widest effect, low and high of an input together."""
    widest: dict[str, float] = {}
    for swing in swings:
        widest[swing.key] = max(widest.get(swing.key, 0.0), abs(swing.change.mean - 1))
    return sorted(swings, key=lambda swing: -widest[swing.key])


def _percent(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.mean - 1:+.1%}"
    return f"{estimate.mean - 1:+.1%} ± {(estimate.high - estimate.low) / 2:.1%}"


def _notes(result: OptimizeResult, selection: Selection, names: Sequence[str]) -> Iterator[str]:
    if result.robust is not None:
        yield from _robust_lines(result.robust, selection, names)
    yield from (f"not judged: {text}" for text in result.unjudged)
    for marginal in result.marginal:
        each = "" if marginal.gpus == 1 else f" ({marginal.seconds.mean / marginal.gpus:+.3g} s a GPU)"
        yield (
            f"{marginal.gpus} more {marginal.role} GPU(s): step {shown(marginal.seconds, '+.3g')} s{each}, "
            f"{shown(marginal.usd_per_million_trained_tokens, '+.2g')} USD per million trained tokens."
        )
    run = selection.best.candidate.variant.scenario.run
    yield f"Sizes: {run.steps} steps, the first {run.warmup_steps} left out; intervals of {run.confidence:.0%}."
    yield from source_lines([selection.best.candidate.variant.resolved])


def _robust_lines(robust: Robust, selection: Selection, names: Sequence[str]) -> Iterator[str]:
    if not robust.points:
        yield "Under uncertain inputs: no contender is feasible in every state."
        return
    first = robust.points[0]
    by = "least worst regret" if robust.criterion == "regret" else "least mean over states, all as likely"
    same = " (the choice as well)" if first.point == selection.best.point else ""
    yield f"Under uncertain inputs ({by}): {label(first.texts, names)}{same}; worst regret {first.worst:.1%}."
    if robust.infeasible:
        yield f"  {robust.infeasible} contender(s) are infeasible in some state and left out."
