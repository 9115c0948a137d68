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
from rlsim.studies.optimize.decide import MARGIN, Decision
from rlsim.studies.optimize.explore import is_exhaustive
from rlsim.studies.optimize.scoring import COST, Scored
from rlsim.studies.optimize.sensitivity import Robust, Swing
from rlsim.studies.optimize.study import Answer
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


def as_text(answer: Answer) -> str:
    """The choice, how sure and how flat it is, what it was chosen from, and what would change it."""
    if answer.decision is None:
        return "".join(f"{line}\n" for line in ("No feasible choice.", *_search_lines(answer)))
    names = _names(answer)
    lines = [*_choice_lines(answer, answer.decision, names), "", *_search_lines(answer), ""]
    tables = [_contenders(answer, answer.decision, names)]
    tables += [_robust(answer.robust, names)] if answer.robust is not None and answer.robust.points else []
    tables += [_tornado(answer.swings, answer.decision, names)] if answer.swings else []
    text = "".join(f"{line}\n" for line in lines) + rendered(tables)
    return text + "".join(f"{line}\n" for line in _notes(answer, answer.decision, names))


def as_json(answer: Answer) -> str:
    """Everything, for machines."""
    decision = answer.decision
    whole = {
        "name": answer.scenario,
        "rlsim": __version__,
        "search": answer.question.search.model_dump(mode="json"),
        "points": answer.question.space.size,
        "points_simulated": len(answer.spent.points),
        "runs_made": answer.spent.made,
        "runs_reused": answer.spent.reused,
        "infeasible": {kind: {"points": count, "first": text} for kind, (count, text) in answer.infeasible.items()},
        "best": None if decision is None else _point(decision.best, decision),
        "contenders": [] if decision is None else [_point(one, decision) for one in decision.contenders],
        "robust": None if answer.robust is None else asdict(answer.robust),
        "sensitivity": [{**asdict(one), "changes_the_choice": one.changes_the_choice} for one in answer.swings],
        "unjudged": answer.unjudged,
        "marginal": [asdict(one) for one in answer.more],
    }
    return json.dumps(whole, indent=1) + "\n"


def _point(one: Scored, decision: Decision) -> dict[str, Any]:
    return {
        "levels": one.candidate.variant.levels,
        "gpus": one.candidate.gpus,
        "usd_per_hour": one.candidate.usd_per_hour,
        "objective": asdict(one.estimate(one.objective)),
        "step_seconds": asdict(one.estimate("step_seconds")),
        COST: asdict(one.estimate(COST)),
        "start_lag_max": max(one.values("start_lag_max")),
        "ratio_to_best": asdict(decision.ratio(one)),
        "on_front": one in decision.front,
        "as_written": one in decision.written,
        "tied_with_best": one in decision.tied,
        "run": one.result.runs[0].identity,
    }


def _names(answer: Answer) -> list[str]:
    axes = answer.question.space.axes
    return [axis.name for axis in axes if len(axis.factor.levels) > 1] or [axis.name for axis in axes]


def _choice_lines(answer: Answer, decision: Decision, names: Sequence[str]) -> Iterator[str]:
    best = decision.best
    what = OBJECTIVES[best.objective]
    yield f"{answer.scenario}: least {what}"
    yield f"Choice: {label(best.candidate.variant.levels, names)}"
    step, usd = shown(best.estimate("step_seconds")), shown(best.estimate(COST))
    lag = max(best.values("start_lag_max"))
    yield f"  step {step} s, {usd} USD per million trained tokens, start lag at most {lag:g}"
    if decision.best.target is not None:
        seconds, money = shown(best.estimate("seconds_to_target")), shown(best.estimate("usd_to_target"))
        yield f"  ESTIMATE: to a success rate of {best.target:g} in {seconds} s, for {money} USD (docs: learning model)"
    yield f"  {best.candidate.gpus} GPUs, {best.candidate.usd_per_hour:.2f} USD an hour"
    yield f"  {_flatness(decision, names)}"
    for one in decision.written:
        levels = label(one.candidate.variant.levels, names)
        yield f"As written ({levels}): {shown(decision.ratio(one), '.3f')} times the choice's {what}."


def _flatness(decision: Decision, names: Sequence[str]) -> str:
    flat = decision.flat
    if len(flat) == 1:
        return f"No other point that was looked at is within {MARGIN:.0%} of it."
    levels = [one.candidate.variant.levels for one in flat]
    spans = [f"{short(name, names)} {_span(name, levels)}" for name in varying(levels)]
    tied = sum(one in decision.tied for one in flat) - 1
    apart = f"{tied} of them not told apart from it by these replications" if tied else "all told apart from it"
    return f"Flat: {len(flat) - 1} more point(s) within {MARGIN:.0%} of it ({apart}): {', '.join(spans)}."


def _span(name: str, levels: Sequence[dict[str, str]]) -> str:
    return "{" + ", ".join(dict.fromkeys(one[name] for one in levels)) + "}"


def _search_lines(answer: Answer) -> Iterator[str]:
    space, search = answer.question.space, answer.question.search
    how = "tried out" if is_exhaustive(space, search.evaluations) else "searched (TPE and descents)"
    points = len({at for case, at in answer.spent.points if not case})
    infeasible = sum(count for count, _ in answer.infeasible.values())
    yield f"{space.size} points {how}: {points} simulated, {infeasible} seen to be infeasible."
    yield f"  {answer.spent.made + answer.spent.reused} runs, those for doubts included"
    for kind, (count, text) in answer.infeasible.items():
        yield f"  infeasible, {kind}: {count} (first: {text})"
    if answer.decision is not None and answer.decision.left_out:
        left_out = answer.decision.left_out
        yield f"  {left_out} more points within {MARGIN:.0%} of the best were simulated once, not replicated"


def _contenders(answer: Answer, decision: Decision, names: Sequence[str]) -> Table:
    objective = decision.best.objective
    titles = ["step, s", "USD /M tokens", "GPUs", "USD /h", "start lag, max", "over best", ""]
    extra = [] if objective in ("step_seconds", COST) else [_EXTRA[objective]]
    title = f"Contenders, {answer.question.replications} replication(s) each on the same luck"
    table = new_table(title, [short(name, names) for name in names], [*extra, *titles])
    always_shown = (*decision.front, *decision.written)
    for one in [*decision.contenders[:ROWS], *(one for one in decision.contenders[ROWS:] if one in always_shown)]:
        table.add_row(
            *(one.candidate.variant.levels[name] for name in names),
            *(shown(one.estimate(objective)) for _ in extra),
            shown(one.estimate("step_seconds")),
            shown(one.estimate(COST)),
            str(one.candidate.gpus),
            f"{one.candidate.usd_per_hour:.2f}",
            f"{max(one.values('start_lag_max')):g}",
            shown(decision.ratio(one), ".3f"),
            _marks(one, decision),
        )
    return table


def _marks(one: Scored, decision: Decision) -> str:
    marks = {
        "best": one is decision.best,
        "front": one in decision.front,
        "tied": one in decision.tied and one is not decision.best,
        "written": one in decision.written,
    }
    return " ".join(mark for mark, has_it in marks.items() if has_it)


def _robust(answer: Robust, names: Sequence[str]) -> Table:
    titles = [*(f"regret, {_brief(state)}" for state in answer.states), "worst regret", "mean"]
    criterion = "least worst regret" if answer.criterion == "regret" else "least mean"
    table = new_table(f"Under uncertain inputs, by {criterion}", [short(name, names) for name in names], titles)
    for one in answer.points[: ROWS // 2]:
        regrets = [f"{regret:+.1%}" for regret in (*one.regrets, one.worst)]
        table.add_row(*(one.texts[name] for name in names), *regrets, shown_mean(one.mean))
    return table


def _brief(state: str) -> str:
    """The ends of the key paths of a state's inputs."""
    return re.sub(r"[\w.]+\.(\w+)=", r"\1=", state)


def _tornado(swings: Sequence[Swing], decision: Decision, names: Sequence[str]) -> Table:
    titles = ["of the objective", "best then", "regret of the choice", "changes the choice"]
    table = new_table("Inputs at other values, the widest swing first", ["input", "value"], titles)
    for one in by_swing(swings):
        best = "the same" if one.best == decision.best.candidate.variant.levels else label(one.best, names)
        table.add_row(
            short(one.key, [other.key for other in swings]),
            one.text,
            _percent(one.change),
            best,
            _percent(one.regret),
            "yes" if one.changes_the_choice else "no",
        )
    return table


def by_swing(swings: Sequence[Swing]) -> list[Swing]:
    """In order of the inputs' widest effect, low and high of an input together."""
    widest: dict[str, float] = {}
    for one in swings:
        widest[one.key] = max(widest.get(one.key, 0.0), abs(one.change.mean - 1))
    return sorted(swings, key=lambda one: -widest[one.key])


def _percent(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return f"{found.mean - 1:+.1%}"
    return f"{found.mean - 1:+.1%} ± {(found.high - found.low) / 2:.1%}"


def _notes(answer: Answer, decision: Decision, names: Sequence[str]) -> Iterator[str]:
    if answer.robust is not None:
        yield from _robust_lines(answer.robust, decision, names)
    yield from (f"not judged: {text}" for text in answer.unjudged)
    for more in answer.more:
        each = "" if more.gpus == 1 else f" ({more.seconds.mean / more.gpus:+.3g} s a GPU)"
        yield (
            f"{more.gpus} more {more.role} GPU(s): step {shown(more.seconds, '+.3g')} s{each}, "
            f"{shown(more.usd_per_million_trained_tokens, '+.2g')} USD per million trained tokens."
        )
    run = decision.best.candidate.variant.scenario.run
    yield f"Sizes: {run.steps} steps, the first {run.warmup_steps} left out; intervals of {run.confidence:.0%}."
    yield from source_lines([decision.best.candidate.variant.resolved])


def _robust_lines(answer: Robust, decision: Decision, names: Sequence[str]) -> Iterator[str]:
    if not answer.points:
        yield "Under uncertain inputs: no contender is feasible in every state."
        return
    first = answer.points[0]
    by = "least worst regret" if answer.criterion == "regret" else "least mean over states, all as likely"
    same = " (the choice as well)" if first.at == decision.best.at else ""
    yield f"Under uncertain inputs ({by}): {label(first.texts, names)}{same}; worst regret {first.worst:.1%}."
    if answer.infeasible:
        yield f"  {answer.infeasible} contender(s) are infeasible in some state and left out."
