"""A plan: the space, the limits and the doubts of a scenario, and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rlsim.core.errors import ContradictionError, ParameterError, RlsimError
from rlsim.scenario.document import Document
from rlsim.scenario.schema import Scenario
from rlsim.scenario.search import Limits, Search
from rlsim.scenario.variation import Factor
from rlsim.studies.optimize.candidates import Candidate, Candidates
from rlsim.studies.optimize.decide import Decision, Measures, decide
from rlsim.studies.optimize.explore import explore
from rlsim.studies.optimize.scoring import COST, Judge, Spent
from rlsim.studies.optimize.sensitivity import More, Robust, Swing, cases_of, check_cases, more_gpus, robust, swings
from rlsim.studies.optimize.space import At, Space, axis_of_text, space_of, written_factors
from rlsim.studies.runs.executor import RunExecutor

SECONDS = "seconds_per_million_trained_tokens"
BATCH_KEYS = ("workload.prompts_per_step", "workload.group_size", "workload.response_tokens", "workload.prompt_tokens")
"""Keys with which steps are no longer alike: their times say nothing against each other."""

MOST_LOOKED_AT = 5_000
"""Points among which one must be possible."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a plan is asked."""

    space: Space
    search: Search
    uncertain: tuple[Factor, ...]
    sensitivity: tuple[Factor, ...]
    replications: int

    @property
    def measures(self) -> Measures:
        """Time and cost of the front: of a step, of as many tokens where steps differ in size, or of the way there."""
        if self.search.limits.target_success is not None:
            return "seconds_to_target", "usd_to_target"
        return (SECONDS if _batch_axes(self.space) else "step_seconds"), COST


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found."""

    question: Question
    scenario: str
    decision: Decision | None
    infeasible: Mapping[str, tuple[int, str]]
    """How many points, and the first one's words, by what they fail for."""
    spent: Spent
    robust: Robust | None = None
    swings: tuple[Swing, ...] = ()
    unjudged: tuple[str, ...] = ()
    """Inputs whose effect could not be told, and why."""
    more: tuple[More, ...] = field(default=())


def question(
    document: Document,
    axes: Sequence[str] = (),
    arms: Sequence[str] = (),
    budget: Sequence[str] = (),
    objective: str | None = None,
    evaluations: int | None = None,
    uncertain: Sequence[str] = (),
    sensitivity: Sequence[str] = (),
    robust_by: str | None = None,
    replications: int | None = None,
) -> Question:
    """What the command line and the scenario's ``search`` section ask; what is wrong with it is refused here."""
    scenarios = document.resolve_all()
    scenario = next(iter(scenarios.values()))
    space = space_of(document, axes, arms)
    given = _search(scenario, budget, objective, evaluations, robust_by)
    asked = Question(
        space,
        given,
        _factors(document, "uncertain", uncertain),
        _factors(document, "sensitivity", sensitivity),
        replications or scenario.run.replications,
    )
    for name in ("uncertain", "sensitivity"):
        for factor in getattr(asked, name):
            if factor.name in {axis.name for axis in space.axes}:
                raise ParameterError(f"--{name}", factor.name, "an input that is no axis: what is chosen is known")
    if given.objective == "step_seconds" and _batch_axes(space):
        allowed = f"{SECONDS} or usd_per_million_trained_tokens: {', '.join(_batch_axes(space))} changes what a step is"
        raise ParameterError("--objective", "step_seconds", allowed)
    return asked


def answer(asked: Question, runs: RunExecutor) -> Answer:
    """Search, decide and doubt; ``RlsimError`` where no point is feasible before anything runs."""
    search = asked.search
    judge = Judge(Candidates(asked.space, search.limits), search.objective, runs)
    _check(judge, asked)
    looked_at = explore(judge, search.evaluations)
    decision = decide(judge, looked_at, asked.replications, asked.measures)
    scenario = next(iter(asked.space.document.resolve_all().values())).name
    spent = Spent(set(judge.spent.points), judge.spent.made, judge.spent.reused)
    if decision is None:
        return Answer(asked, scenario, None, judge.candidates.infeasible(), spent)
    told, unjudged = swings(judge, decision, asked.sensitivity, search.evaluations, asked.replications)
    return Answer(
        asked,
        scenario,
        decision,
        judge.candidates.infeasible(),
        judge.spent,
        _robust(judge, decision, asked),
        tuple(told),
        tuple(unjudged),
        tuple(more_gpus(judge, decision, asked.replications)),
    )


def _robust(judge: Judge, decision: Decision, asked: Question) -> Robust | None:
    if not asked.uncertain:
        return None
    cases = cases_of(asked.uncertain, decision.best.candidate.variant.scenario)
    return robust(judge, decision, cases, asked.search.evaluations, asked.replications, asked.search.robust)


def _check(judge: Judge, asked: Question) -> None:
    """A key that no point takes is a mistake, not an infeasible point: every axis must be right somewhere."""
    at = _some_candidate(judge)
    if at is None:
        reasons = "\n".join(
            f"{count} x {kind}: {text}" for kind, (count, text) in judge.candidates.infeasible().items()
        )
        raise RlsimError(f"no point of the space can be simulated:\n{reasons}")
    scenario = judge.candidates.at(at)
    assert isinstance(scenario, Candidate)
    for factor in (*asked.uncertain, *asked.sensitivity):
        check_cases(judge, at, cases_of([factor], scenario.variant.scenario))


def _some_candidate(judge: Judge) -> At | None:
    """A point that can be simulated, looked for in an order that meets all levels of all axes soon."""
    points = islice(judge.candidates.space.scattered(), MOST_LOOKED_AT)
    return next((at for at in points if isinstance(judge.candidates.at(at), Candidate)), None)


def _search(
    scenario: Scenario, budget: Sequence[str], objective: str | None, evaluations: int | None, robust_by: str | None
) -> Search:
    """The scenario's section with what the command line says; ParameterError for what it cannot say."""
    given = scenario.search or Search()
    limits = {**given.limits.model_dump(), **dict(map(_limit, budget))}
    tree: dict[str, Any] = given.model_dump(exclude={"limits"})
    tree |= {"limits": limits}
    for key, value in (("objective", objective), ("evaluations", evaluations), ("robust", robust_by)):
        tree |= {} if value is None else {key: value}
    return _validated(tree)


def _limit(text: str) -> tuple[str, float | int]:
    name, equals, value = text.partition("=")
    known = list(Limits.model_fields)
    if name not in known or not equals:
        from rlsim.core.errors import unknown

        raise unknown("--budget", name, known)
    try:
        return name, int(value) if name == "max_gpus" else float(value)
    except ValueError:
        raise ParameterError(f"--budget {name}", value, "a number") from None


def _validated(tree: Mapping[str, Any]) -> Search:
    from pydantic import ValidationError

    try:
        return Search.model_validate(tree)
    except ValidationError as refused:
        first = refused.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, ContradictionError):
            raise cause.errors[0] from None
        option = "--budget" if first["loc"][0] == "limits" else "--" + str(first["loc"][0])
        raise ParameterError(f"{option} {first['loc'][-1]}", first["input"], first["msg"]) from None


def _factors(document: Document, section: str, texts: Sequence[str]) -> tuple[Factor, ...]:
    asked = {one.name: one for one in (axis_of_text(text, f"--{section}") for text in texts)}
    written = [one for one in written_factors(document, section) if one.name not in asked]
    return (*written, *asked.values())


def _batch_axes(space: Space) -> list[str]:
    return [axis.name for axis in space.axes if any(key.startswith(BATCH_KEYS) for key in axis.name.split(":"))]
