"""A plan as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.table import Table

from rlsim.results.statistics import Estimate
from rlsim.studies.optimize.gpu_changes import GpuChange, held_utilisation
from rlsim.studies.optimize.scoring import COST, EvaluatedPoint
from rlsim.studies.optimize.selection import MARGIN, Selection
from rlsim.studies.optimize.sensitivity import Robust, Swing
from rlsim.studies.optimize.study import OptimizeResult
from rlsim.studies.text.sweep import label, short, shown, shown_mean, source_lines, varying
from rlsim.studies.text.table import new_table, plus_minus, rendered, wrapped

_EXTRA = {
    "seconds_per_million_trained_tokens": "s /M tokens",
    "seconds_to_target": "s to target",
    "usd_to_target": "USD to target",
}
LEAST_COST = 0.005
"""Relative difference of costs from which it is named."""
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
        return "".join(f"{wrapped(line)}\n" for line in ("No feasible choice.", *_search_lines(result)))
    axes = result.request.space.axes
    names = [axis.name for axis in axes if len(axis.factor.levels) > 1] or [axis.name for axis in axes]
    lines = [*_choice_lines(result, result.selection, names), "", *_search_lines(result), ""]
    tables = [_contenders(result, result.selection, names)]
    tables += [_robust(result.robust, names)] if result.robust is not None and result.robust.points else []
    tables += [_tornado(result.swings, result.selection, names)] if result.swings else []
    text = "".join(f"{wrapped(line)}\n" for line in lines) + rendered(tables)
    return text + "".join(f"{wrapped(line)}\n" for line in _notes(result, result.selection, names))


def _choice_lines(result: OptimizeResult, selection: Selection, names: Sequence[str]) -> Iterator[str]:
    best = selection.best
    objective = OBJECTIVES[best.objective]
    yield f"{result.scenario}: least {objective}"
    held = held_utilisation(*(contender.candidate.variant.scenario for contender in selection.contenders))
    yield f"Choice: {label(best.levels, names)}{f' ({held} over these sizes)' if held else ''}"
    step, usd = shown(best.estimate("step_seconds")), shown(best.estimate(COST))
    lag = max(best.values("start_lag_max"))
    yield f"  step {step} s, {usd} USD per million trained tokens, start lag at most {lag:g}"
    if selection.best.target is not None:
        seconds, money = shown(best.estimate("seconds_to_target")), shown(best.estimate("usd_to_target"))
        yield f"  ESTIMATE: to a success rate of {best.target:g} in {seconds} s, for {money} USD (docs: learning model)"
    yield f"  {best.candidate.gpus} GPUs, {best.candidate.usd_per_hour:.2f} USD an hour"
    levels = [evaluated.levels for evaluated in selection.flat]
    if len(levels) == 1:
        yield f"  No other point that was looked at is within {MARGIN:.0%} of it."
    else:
        spans = (
            f"{short(name, names)} {{{', '.join(dict.fromkeys(by[name] for by in levels))}}}"
            for name in varying(levels)
        )
        tied = sum(evaluated in selection.tied for evaluated in selection.flat) - 1
        apart = f"{tied} of them not told apart from it by these replications" if tied else "all told apart from it"
        yield f"  Flat: {len(levels) - 1} more point(s) within {MARGIN:.0%} of it ({apart}): {', '.join(spans)}."
    for evaluated in selection.written:
        ratio = shown(selection.ratio(evaluated), ".3f")
        yield f"As written ({label(evaluated.levels, names)}): {ratio} times the choice's {objective}."


def _search_lines(result: OptimizeResult) -> Iterator[str]:
    space, search = result.request.space, result.request.search
    method = "tried out" if space.size <= search.evaluations else "searched (TPE and descents)"
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
    title = f"Contenders, {result.request.replications} replication(s) each with common random numbers"
    columns = [*(short(name, names) for name in names), *extra, *titles]
    always_shown = (*selection.front, *selection.written)
    further = (evaluated for evaluated in selection.contenders[ROWS:] if evaluated in always_shown)
    rows = [
        [
            *(evaluated.levels[name] for name in names),
            *(shown(evaluated.estimate(objective)) for _ in extra),
            shown(evaluated.estimate("step_seconds")),
            shown(evaluated.estimate(COST)),
            str(evaluated.candidate.gpus),
            f"{evaluated.candidate.usd_per_hour:.2f}",
            f"{max(evaluated.values('start_lag_max')):g}",
            shown(selection.ratio(evaluated), ".3f"),
            _marks(evaluated, selection),
        ]
        for evaluated in (*selection.contenders[:ROWS], *further)
    ]
    return new_table(title, columns, rows, texts=len(names), no_wrap=False)


def _marks(evaluated: EvaluatedPoint, selection: Selection) -> str:
    marks = {
        "best": evaluated is selection.best,
        "front": evaluated in selection.front,
        "tied": evaluated in selection.tied and evaluated is not selection.best,
        "written": evaluated in selection.written,
    }
    return " ".join(mark for mark, has_it in marks.items() if has_it)


def _robust(robust: Robust, names: Sequence[str]) -> Table:
    # The ends of the key paths of a state's inputs are enough.
    states = [re.sub(r"[\w.]+\.(\w+)=", r"\1=", state) for state in robust.states]
    columns = [*(short(name, names) for name in names), *(f"regret, {state}" for state in states)]
    criterion = "least worst regret" if robust.criterion == "regret" else "least mean"
    rows = []
    for point in robust.points[: ROWS // 2]:
        regrets = [f"{regret:+.1%}" for regret in (*point.regrets, point.worst)]
        rows.append([*(point.texts[name] for name in names), *regrets, shown_mean(point.mean)])
    title = f"Under uncertain inputs, by {criterion}"
    return new_table(title, [*columns, "worst regret", "mean"], rows, texts=len(names), no_wrap=False)


def _tornado(swings: Sequence[Swing], selection: Selection, names: Sequence[str]) -> Table:
    columns = ["input", "value", "of the objective", "best then", "regret of the choice", "changes the choice"]
    rows = []
    for swing in by_swing(swings):
        best = "the same" if swing.best == selection.best.levels else label(swing.best, names)
        key = short(swing.key, [other.key for other in swings])
        changes = "yes" if swing.changes_the_choice else "no"
        rows.append([key, swing.text, _percent(swing.change), best, _percent(swing.regret), changes])
    return new_table("Inputs at other values, the widest swing first", columns, rows, texts=2, no_wrap=False)


def by_swing(swings: Sequence[Swing]) -> list[Swing]:
    """In order of the inputs' widest effect, low and high of an input together."""
    widest: dict[str, float] = {}
    for swing in swings:
        widest[swing.key] = max(widest.get(swing.key, 0.0), abs(swing.change.mean - 1))
    return sorted(swings, key=lambda swing: -widest[swing.key])


def _percent(estimate: Estimate) -> str:
    return plus_minus(estimate, lambda value: f"{value - 1:+.1%}", "{:.1%}".format)


def _notes(result: OptimizeResult, selection: Selection, names: Sequence[str]) -> Iterator[str]:
    robust = result.robust
    if robust is not None and not robust.points:
        yield "Under uncertain inputs: no contender is feasible in every state."
    elif robust is not None:
        first = robust.points[0]
        by = "least worst regret" if robust.criterion == "regret" else "least mean over states, all as likely"
        same = " (the choice as well)" if first.point == selection.best.point else ""
        yield f"Under uncertain inputs ({by}): {label(first.texts, names)}{same}; worst regret {first.worst:.1%}."
        if robust.infeasible:
            yield f"  {robust.infeasible} contender(s) are infeasible in some state and left out."
    yield from (f"not judged: {text}" for text in result.unjudged)
    run = selection.best.candidate.variant.scenario.run
    yield f"Sizes: {run.steps} steps, the first {run.warmup_steps} left out; intervals of {run.confidence:.0%}."
    yield from source_lines([selection.best.candidate.variant.resolved])
    yield from map(gpu_sentence, result.gpu_changes)


def gpu_sentence(change: GpuChange) -> str:
    """What another number of GPUs is worth, with the price of an hour from which it is."""
    count, direction = abs(change.gpus), "more" if change.gpus > 0 else "fewer"
    whose = f" {change.role}" if change.role else ""
    at = f" ({label(change.levels, list(change.levels))})" if change.levels else ""
    held = f"; {change.held}" if change.held else ""
    cost = change.cost_ratio.mean - 1
    token = "as much" if abs(cost) < LEAST_COST else f"{abs(cost):.0%} {'more' if cost > 0 else 'less'}"
    return (
        f"{count} {direction}{whose} GPU{'s' * (count > 1)}{at}: {shown(change.speedup, '.2f')}x as fast for "
        f"{change.usd_per_hour_ratio:.2f}x the money an hour, {token} a token; {_worth(change)}{held}."
    )


def _worth(change: GpuChange) -> str:
    """From which price of an hour the larger number pays."""
    usd, is_more = change.usd_per_hour_saved, change.gpus > 0
    if usd is None:
        return "no faster for certain: not worth it" if is_more else "no slower for certain: worth it"
    if usd <= 0:
        return "worth it at any price of time" if is_more else "not worth it: slower and dearer"
    return f"{'not worth it below' if is_more else 'worth it up to'} {usd:,.2f} USD for an hour saved"
