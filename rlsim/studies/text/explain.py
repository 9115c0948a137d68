"""Explanations and answers as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rlsim import __version__
from rlsim.resolve import ResolvedScenario
from rlsim.results.statistics import Estimate
from rlsim.studies.explain.cases import SIZE_WITHIN, CaseResult
from rlsim.studies.explain.changes import Change
from rlsim.studies.explain.explain import Effect, Explanation, evidence
from rlsim.studies.output import json_text
from rlsim.studies.text.table import new_table, rendered, wrapped

WIDTH = 150
"""Columns of the printed table."""
COLUMNS = ("case", "question", "observed", "simulated", "agrees")


def explanation_text(explanation: Explanation, plan: ResolvedScenario) -> str:
    """Bottleneck, what would help, what would not, the evidence, and what was not tried."""
    is_arm = explanation.arm != plan.scenario.name
    lines = [f"{plan.scenario.name}: {explanation.arm}" if is_arm else explanation.arm, explanation.record.verdict, ""]
    lines = [wrapped(line) for line in (*lines, *_effects(explanation), *_sources(plan), "", "Evidence:")]
    lines += [wrapped(f"  {kind:<13} {text}", 16) for kind, text in evidence(explanation.record.metrics, plan)]
    lines += [wrapped(line) for line in ("", *_screened(explanation), *_not_tried(explanation))]
    return "\n".join(lines) + "\n"


def _effects(explanation: Explanation) -> Iterator[str]:
    """Changes that were judged: those that help, those that change nothing, and those that slow a step down."""
    faster = [effect for effect in explanation.effects if effect.is_change and effect.speedup.mean > 1]
    slower = [effect for effect in explanation.effects if effect.is_change and effect.speedup.mean < 1]
    same = [effect for effect in explanation.effects if not effect.is_change]
    if not explanation.effects:
        yield f"None of {explanation.tried} changes makes a step faster."
        return
    runs = explanation.effects[0].speedup.n
    how = f"of {explanation.tried} changes, screened on one run, judged with common random numbers on {runs} others"
    yield f"What helps most {how}:" if faster else f"None {how}, makes a step faster for certain."
    for number, effect in enumerate(faster, 1):
        yield f"  {number}. {effect.change.label}: a step {_times(effect)} times as fast{_learnt(effect.change)}"
        yield f"     {_settings(effect.change)}"
    for title, effects in (("No change (the interval holds 1, or it is below 0.5 %)", same), ("Slower", slower)):
        yield from [f"{title}:"] if effects else []
        for effect in effects:
            yield f"  - {effect.change.label}: {_times(effect)}x{_learnt(effect.change)}"


def _times(effect: Effect) -> str:
    low, high = effect.speedup.low, effect.speedup.high
    return f"{effect.speedup.mean:.2f}" + ("" if low is None or high is None else f" [{low:.2f}, {high:.2f}]")


def _learnt(change: Change) -> str:
    return f" (changes what is learnt: {change.learnt})" if change.learnt else ""


def _settings(change: Change) -> str:
    return " ".join(f"--set '{key}={_value(value)}'" for key, value in change.settings.items())


def _value(value: object) -> str:
    return json.dumps(value).replace('"', "") if isinstance(value, dict | list | bool) else str(value)


def _screened(explanation: Explanation) -> Iterator[str]:
    """Changes that one run was made of, from the largest speed-up down."""
    others = [
        f"{one.change.label} ({'stuck' if one.speedup is None else f'{one.speedup:.2f}x'})"
        for one in explanation.screened
    ]
    if others:
        yield f"Tried on one run alone, which tells small effects not apart: {'; '.join(others)}."


def _not_tried(explanation: Explanation) -> Iterator[str]:
    yield "Not tried:"
    yield from (f"  - {one.label}: {one.reason}" for one in explanation.not_tried)
    yield "  - two changes at once, other models, GPUs and numbers of GPUs: rlsim plan and rlsim sweep try those"


def _sources(plan: ResolvedScenario) -> Iterator[str]:
    estimates = [source for source in plan.sources if source.estimate]
    if estimates:
        yield ""
        yield "Estimates, not measured: " + "; ".join(f"{source.what}: {source.text}" for source in estimates)


def shown(estimate: Estimate) -> str:
    """A mean and its interval."""
    if estimate.low is None or estimate.high is None:
        return f"{estimate.mean:.3g}"
    return f"{estimate.mean:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]"


def case_text(result: CaseResult) -> str:
    """One case in full."""
    lines = [wrapped(line, 14) for line in _case_lines(result)]
    return "\n".join(lines) + "\n"


def _case_lines(result: CaseResult) -> Iterator[str]:
    case = result.case
    yield from [
        f"{case.id}: {case.question}",
        f"  observed    {case.observed} ({case.source})",
        f"  simulated   {measured_text(result)} {shown(result.simulated)}, seen: {expected(result)}",
        f"  agrees      {verdict(result)}",
        *(f"  assumed     {assumption}" for assumption in case.assumptions),
    ]
    yield from [f"  reading     {case.reading}"] if case.reading else []


def measured_text(result: CaseResult) -> str:
    """What is measured, in words."""
    over = f" over {result.case.over}" if result.case.over else ""
    return f"{result.case.measure} of {result.case.arm}{over}:"


def expected(result: CaseResult) -> str:
    """Direction and size of the observation."""
    case = result.case
    return f"{case.direction} {case.than:g}" + ("" if case.size is None else f", {case.size:.3g}")


def verdict(result: CaseResult) -> str:
    """Whether direction and size agree."""
    if result.error is None:
        return f"direction {result.direction}"
    return f"direction {result.direction}, size {result.size} ({result.error:+.0%})"


def score(results: Sequence[CaseResult]) -> str:
    """How many agree."""
    directions = sum(result.direction == "yes" for result in results)
    sized = [result for result in results if result.size is not None]
    within = sum(result.size == "yes" for result in sized)
    agree = sum(result.agrees for result in results)
    return (
        f"{len(results)} cases: {directions} reproduce the direction (whole interval), {within} of {len(sized)} sizes "
        f"are within {SIZE_WITHIN:.0%}; {agree} agree in both."
    )


def cells(result: CaseResult) -> tuple[str, ...]:
    """A row of the table."""
    case = result.case
    return case.id, case.question, case.observed, f"{measured_text(result)} {shown(result.simulated)}", verdict(result)


def table_text(results: Sequence[CaseResult]) -> str:
    """One row a case, then how many agree."""
    table = new_table(None, COLUMNS, map(cells, results), texts=len(COLUMNS), no_wrap=False, collapses=False)
    lines = [line.rstrip() for line in rendered([table], width=WIDTH).splitlines()]
    return "\n".join([*lines, score(results)]) + "\n"


def cases_json(results: Sequence[CaseResult]) -> str:
    """The cases for machines."""
    cases = [_case_dict(result) for result in results]
    return json_text({"rlsim": __version__, "cases": cases, "score": score(results)}, indent=2)


def explanation_json(explanation: Explanation, plan: ResolvedScenario, result: CaseResult | None) -> str:
    """The explanation for machines, with the case of the scenario where it has one."""
    effects = [
        {
            "change": effect.change.label,
            "settings": effect.change.settings,
            "changes_what_is_learnt": effect.change.learnt or None,
            "family": effect.change.family,
            "speedup": _estimate(effect.speedup),
            "is_change": effect.is_change,
        }
        for effect in explanation.effects
    ]
    content = {
        "rlsim": __version__,
        "arm": explanation.arm,
        "bottleneck": explanation.record.verdict,
        "evidence": dict(evidence(explanation.record.metrics, plan)),
        "changes_tried": explanation.tried,
        "changes": effects,
        "screened": [{"change": one.change.label, "speedup_of_one_run": one.speedup} for one in explanation.screened],
        "not_tried": [asdict(one) for one in explanation.not_tried],
        "estimates": [f"{source.what}: {source.text}" for source in plan.sources if source.estimate],
        "case": None if result is None else _case_dict(result),
    }
    return json_text(content, indent=2)


def _case_dict(result: CaseResult) -> dict[str, Any]:
    simulated = {"simulated": _estimate(result.simulated), "direction_agrees": result.direction}
    return {**result.case.model_dump(mode="json"), **simulated, "size_error": result.error, "agrees": result.agrees}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "replications": estimate.n}
