"""What is not known: inputs that are uncertain, and inputs that may be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from rlsim.core.errors import ParameterError
from rlsim.results.statistics import Estimate
from rlsim.scenario.schema import Scenario
from rlsim.scenario.variation import Factor, level
from rlsim.studies.optimize.candidates import InputState
from rlsim.studies.optimize.explore import explore
from rlsim.studies.optimize.scoring import EvaluatedPoint, Evaluator
from rlsim.studies.optimize.selection import Selection, is_tied, ratio
from rlsim.studies.optimize.space import GridPoint
from rlsim.studies.sweep import variant

MOST_ROBUST = 12
"""Contenders of the scenario as written that are judged under uncertain inputs, beside the best of every state."""


@dataclass(frozen=True, slots=True)
class Regrets:
    """A point under every state of the uncertain inputs."""

    point: GridPoint
    texts: dict[str, str]
    values: tuple[float, ...]
    """Of the objective, by state."""
    regrets: tuple[float, ...]
    """Relative to the best point of the state."""

    @property
    def worst(self) -> float:
        """The largest regret."""
        return max(self.regrets)

    @property
    def mean(self) -> float:
        """Mean of the objective over states."""
        return sum(self.values) / len(self.values)


@dataclass(frozen=True, slots=True)
class Robust:
    """The choice under uncertain inputs."""

    criterion: str
    states: tuple[str, ...]
    points: tuple[Regrets, ...]
    """The best by the criterion first."""
    infeasible: int
    """Contenders that cannot be made, or break a limit, in some state."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values by name."""
        points = [
            {"at": point.point, **{name: getattr(point, name) for name in ("texts", "values", "regrets")}}
            for point in self.points
        ]
        return {**asdict(self), "points": points}


@dataclass(frozen=True, slots=True)
class Swing:
    """An input at another value."""

    key: str
    text: str
    change: Estimate
    """Of the choice's objective, as a ratio to that with the input as written."""
    best: dict[str, str]
    """The point that would be chosen then."""
    regret: Estimate
    """The choice's objective over that point's, then."""

    @property
    def changes_the_choice(self) -> bool:
        """Whether another point is better then, beyond what replications tell apart."""
        return self.regret.mean > 1 and not is_tied(self.regret)


def states_of(factors: Sequence[Factor], scenario: Scenario) -> list[InputState]:
    """A case for every combination of the factors' levels; ``-20%`` is relative to the scenario's own value."""
    absolute = [_absolute(factor, scenario) for factor in factors]
    states = []
    for levels in product(*(factor.levels for factor in absolute)):
        texts = [f"{factor.name}={factor_level.text}" for factor, factor_level in zip(absolute, levels, strict=True)]
        settings = {factor.name: factor_level for factor, factor_level in zip(absolute, levels, strict=True)}
        states.append(InputState(", ".join(texts), settings))
    return states


def _absolute(factor: Factor, scenario: Scenario) -> Factor:
    if not any(factor_level.text.endswith("%") for factor_level in factor.levels):
        return factor
    own: object = scenario.model_dump(mode="json")
    for name in factor.name.split("."):
        own = own.get(name) if isinstance(own, dict) else None
    if not isinstance(own, int | float) or isinstance(own, bool):
        raise ParameterError(f"--sensitivity {factor.name}", own, "the key path of a number, for values in %")
    texts = [
        f"{own * (1 + float(factor_level.text[:-1]) / 100):.6g}"
        if factor_level.text.endswith("%")
        else factor_level.text
        for factor_level in factor.levels
    ]
    return Factor(factor.name, tuple(level(factor.name, text, "--sensitivity") for text in texts))


def check_states(evaluator: Evaluator, point: GridPoint, states: Sequence[InputState]) -> None:
    """Refuse inputs that no scenario takes, before anything runs: they are tried at one point."""
    space = evaluator.candidates.space
    for state in states:
        variant(space.document, {**space.choice(point), **state.settings})


def robust(
    evaluator: Evaluator,
    selection: Selection,
    states: Sequence[InputState],
    evaluations: int,
    replications: int,
    criterion: str,
) -> Robust:
    """The point with the least worst regret (or least mean) over the states.

    Judged are the best points of every state and of the scenario as written, each under all states.
    """
    points = [evaluated.point for evaluated in selection.contenders[:MOST_ROBUST]]
    for state in states:
        looked = explore(evaluator, evaluations, state)
        points += [evaluated.point for evaluated in sorted(looked.values(), key=EvaluatedPoint.rank)[:3]]
    points = list(dict.fromkeys(points))
    scored = [evaluator.evaluate(points, state, replications) for state in states]
    in_all = [point for point in points if all(point in evaluated_state for evaluated_state in scored)]
    bests = [
        min((evaluated.value for evaluated in evaluated_state.values()), default=float("nan"))
        for evaluated_state in scored
    ]
    regrets_by_point = []
    for point in in_all:
        values = tuple(evaluated_state[point].value for evaluated_state in scored)
        regrets = tuple(value / best - 1 for value, best in zip(values, bests, strict=True))
        regrets_by_point.append(Regrets(point, evaluator.candidates.space.texts(point), values, regrets))
    regrets_by_point.sort(key=lambda regrets: (regrets.worst if criterion == "regret" else regrets.mean, regrets.point))
    return Robust(criterion, tuple(state.name for state in states), tuple(regrets_by_point), len(points) - len(in_all))


def swings(
    evaluator: Evaluator, selection: Selection, factors: Sequence[Factor], evaluations: int, replications: int
) -> tuple[list[Swing], list[str]]:
    """What the choice does, and which point would be better, with each input at its low and high value.

    Also what could not be judged: cases in which the choice is infeasible.
    """
    judged, refused = [], []
    for factor in factors:
        for state in states_of([factor], selection.best.candidate.variant.scenario):
            text = state.settings[factor.name].text
            looked = explore(evaluator, evaluations, state)
            near = [evaluated.point for evaluated in sorted(looked.values(), key=EvaluatedPoint.rank)[:3]]
            scored = evaluator.evaluate([selection.best.point, *near], state, replications)
            own = scored.get(selection.best.point)
            if own is None:
                refused.append(f"{state.name}: the choice is infeasible then")
                continue
            best = min(scored.values(), key=EvaluatedPoint.rank)
            change = ratio(own, selection.best)
            judged.append(Swing(factor.name, text, change, best.levels, ratio(own, best)))
    return judged, refused
