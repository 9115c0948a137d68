"""A plan: the space, the limits and the doubts of a scenario, and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from rlsim import __version__
from rlsim.core.errors import ParameterError, RlsimError
from rlsim.scenario.document import Document
from rlsim.scenario.errors import refusals
from rlsim.scenario.schema import Scenario
from rlsim.scenario.search import Limits, Search
from rlsim.scenario.variation import Factor
from rlsim.studies.optimize.candidates import Candidate, Candidates
from rlsim.studies.optimize.explore import explore
from rlsim.studies.optimize.gpu_changes import SECONDS, GpuChange, gpu_changes
from rlsim.studies.optimize.scoring import COST, Evaluator, SearchCost
from rlsim.studies.optimize.selection import Measures, Selection, select
from rlsim.studies.optimize.sensitivity import (
    Robust,
    Swing,
    check_states,
    robust,
    states_of,
    swings,
)
from rlsim.studies.optimize.space import Space, axis_of_text, space_of, written_factors
from rlsim.studies.runs.executor import RunExecutor

BATCH_KEYS = ("workload.prompts_per_step", "workload.group_size", "workload.response_tokens", "workload.prompt_tokens")
"""Keys with which steps are no longer alike: their times say nothing against each other."""

MOST_LOOKED_AT = 5_000
"""Points among which one must be possible."""


@dataclass(frozen=True, slots=True)
class OptimizeRequest:
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
class OptimizeResult:
    """What was found."""

    request: OptimizeRequest
    scenario: str
    selection: Selection | None
    infeasible: Mapping[str, tuple[int, str]]
    """How many points, and the first one's words, by what they fail for."""
    spent: SearchCost
    robust: Robust | None = None
    swings: tuple[Swing, ...] = ()
    unjudged: tuple[str, ...] = ()
    """Inputs whose effect could not be told, and why."""
    gpu_changes: tuple[GpuChange, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values by name."""
        selection = self.selection
        contenders = [] if selection is None else [selection.point_dict(point) for point in selection.contenders]
        return {
            "name": self.scenario,
            "rlsim": __version__,
            "search": self.request.search.model_dump(mode="json"),
            "points": self.request.space.size,
            "points_simulated": len(self.spent.points),
            "runs_made": self.spent.runs_made,
            "runs_reused": self.spent.runs_reused,
            "infeasible": {kind: {"points": count, "first": text} for kind, (count, text) in self.infeasible.items()},
            "best": None if selection is None else selection.point_dict(selection.best),
            "contenders": contenders,
            "robust": None if self.robust is None else self.robust.to_dict(),
            "sensitivity": [{**asdict(swing), "changes_the_choice": swing.changes_the_choice} for swing in self.swings],
            "unjudged": self.unjudged,
            "gpu_changes": [change.to_dict() for change in self.gpu_changes],
        }


def optimize_request(
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
) -> OptimizeRequest:
    """What the command line and the scenario's ``search`` section ask; what is wrong with it is refused here."""
    space = space_of(document, axes, arms)
    scenario = next(iter(space.scenarios().values()))
    search = _search(scenario, budget, objective, evaluations, robust_by)
    request = OptimizeRequest(
        space,
        search,
        _factors(document, "uncertain", uncertain),
        _factors(document, "sensitivity", sensitivity),
        replications or scenario.run.replications,
    )
    for name in ("uncertain", "sensitivity"):
        for factor in getattr(request, name):
            if factor.name in {axis.name for axis in space.axes}:
                raise ParameterError(f"--{name}", factor.name, "an input that is no axis: what is chosen is known")
    if search.objective == "step_seconds" and _batch_axes(space):
        allowed = f"{SECONDS} or usd_per_million_trained_tokens: {', '.join(_batch_axes(space))} changes what a step is"
        raise ParameterError("--objective", "step_seconds", allowed)
    return request


def optimize(request: OptimizeRequest, runs: RunExecutor) -> OptimizeResult:
    """Search, decide and doubt; ``RlsimError`` where no point is feasible before anything runs."""
    search = request.search
    evaluator = Evaluator(Candidates(request.space, search.limits), search.objective, runs)
    _check(evaluator, request)
    looked_at = explore(evaluator, search.evaluations)
    selection = select(evaluator, looked_at, request.replications, request.measures)
    scenario = next(iter(request.space.scenarios().values())).name
    result = OptimizeResult(request, scenario, selection, evaluator.candidates.infeasible(), evaluator.spent)
    if selection is None:
        return result
    tornado, unjudged = swings(evaluator, selection, request.sensitivity, search.evaluations, request.replications)
    robust_choice = None
    if request.uncertain:
        states = states_of(request.uncertain, selection.best.candidate.variant.scenario)
        robust_choice = robust(evaluator, selection, states, search.evaluations, request.replications, search.robust)
    changes = tuple(gpu_changes(evaluator, selection, request.replications))
    return replace(result, robust=robust_choice, swings=tuple(tornado), unjudged=tuple(unjudged), gpu_changes=changes)


def _check(evaluator: Evaluator, request: OptimizeRequest) -> None:
    """A key that no point takes is a mistake, not an infeasible point: every axis must be right somewhere."""
    # In this order all levels of all axes are met soon.
    points = islice(evaluator.candidates.space.scattered(), MOST_LOOKED_AT)
    point = next((point for point in points if isinstance(evaluator.candidates.resolve(point), Candidate)), None)
    if point is None:
        reasons = "\n".join(
            f"{count} x {kind}: {text}" for kind, (count, text) in evaluator.candidates.infeasible().items()
        )
        raise RlsimError(f"no point of the space can be simulated:\n{reasons}")
    scenario = evaluator.candidates.resolve(point)
    assert isinstance(scenario, Candidate)
    for factor in (*request.uncertain, *request.sensitivity):
        check_states(evaluator, point, states_of([factor], scenario.variant.scenario))


def _search(
    scenario: Scenario, budget: Sequence[str], objective: str | None, evaluations: int | None, robust_by: str | None
) -> Search:
    """The scenario's section with what the command line says; ParameterError for what it cannot say."""
    section = scenario.search or Search()
    limits = {**section.limits.model_dump(), **dict(map(_limit, budget))}
    tree: dict[str, Any] = section.model_dump(exclude={"limits"})
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
        error = refusals(refused, Search.model_json_schema())[0]
        option = "--budget " if error.path.startswith("limits.") else "--"
        raise ParameterError(option + error.path.removeprefix("limits."), error.found, error.allowed) from None


def _factors(document: Document, section: str, texts: Sequence[str]) -> tuple[Factor, ...]:
    requested = {
        axis_factor.name: axis_factor for axis_factor in (axis_of_text(text, f"--{section}") for text in texts)
    }
    written = [axis_factor for axis_factor in written_factors(document, section) if axis_factor.name not in requested]
    return (*written, *requested.values())


def _batch_axes(space: Space) -> list[str]:
    return [axis.name for axis in space.axes if any(key.startswith(BATCH_KEYS) for key in axis.name.split(":"))]
