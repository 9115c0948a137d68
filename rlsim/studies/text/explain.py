"""Explanations and answers as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rlsim import __version__
from rlsim.resolve import ResolvedScenario
from rlsim.results.statistics import Estimate
from rlsim.studies.explain.cases import SIZE_WITHIN, CaseResult
from rlsim.studies.explain.explain import Explanation, evidence
from rlsim.studies.output import json_text
from rlsim.studies.text.table import new_table, rendered

WIDTH = 150
"""Columns of the printed table."""
COLUMNS = ("case", "question", "observed", "simulated", "agrees")


def explanation_text(explanation: Explanation, plan: ResolvedScenario) -> str:
    """Bottleneck, evidence and what would help."""
    lines = [
        f"{plan.scenario.name}: {explanation.arm}" if explanation.arm != plan.scenario.name else explanation.arm,
        explanation.record.verdict,
        "",
    ]
    lines += [f"  {measured_text:<13} {says}" for measured_text, says in evidence(explanation.record.metrics, plan)]
    lines += ["", *_helps(explanation), *_sources(plan)]
    return "\n".join(lines) + "\n"


def _helps(explanation: Explanation) -> Iterator[str]:
    if not explanation.effects:
        yield f"None of {explanation.tried} changes makes a step faster."
        return
    tried, runs = explanation.tried, explanation.effects[0].speedup.n
    screened = "screened on one run, judged with common random numbers on"
    yield f"What helps most of {tried} changes, {screened} {runs} others:"
    for number, effect in enumerate(explanation.effects, 1):
        learnt = f" (changes what is learnt: {effect.change.learnt})" if effect.change.learnt else ""
        keys = ", ".join(f"{key}={_value(value)}" for key, value in effect.change.settings.items())
        times = f"a step {shown(effect.speedup)} times as fast"
        yield f"  {number}. {effect.change.label}{learnt}: {times}; {keys}"


def _value(value: object) -> str:
    return json.dumps(value).replace('"', "") if isinstance(value, dict | bool) else str(value)


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
    case = result.case
    lines = [
        f"{case.id}: {case.question}",
        f"  observed    {case.observed} ({case.source})",
        f"  simulated   {measured_text(result)} {shown(result.simulated)}, seen: {expected(result)}",
        f"  agrees      {verdict(result)}",
        *(f"  assumed     {assumption}" for assumption in case.assumptions),
    ]
    return "\n".join(lines + ([f"  reading     {case.reading}"] if case.reading else [])) + "\n"


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
            "speedup": _estimate(effect.speedup),
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
        "estimates": [f"{source.what}: {source.text}" for source in plan.sources if source.estimate],
        "case": None if result is None else _case_dict(result),
    }
    return json_text(content, indent=2)


def _case_dict(result: CaseResult) -> dict[str, Any]:
    simulated = {"simulated": _estimate(result.simulated), "direction_agrees": result.direction}
    return {**result.case.model_dump(mode="json"), **simulated, "size_error": result.error, "agrees": result.agrees}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "replications": estimate.n}
