"""What is not known: inputs that are uncertain, inputs that may be wrong, and what one more GPU would do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rlsim.core.errors import ParameterError, ScenarioError
from rlsim.resolve.scenario import gpus_used, price
from rlsim.results.statistics import Estimate, paired_difference
from rlsim.scenario.schema import Scenario
from rlsim.scenario.variation import Factor, level
from rlsim.studies.optimize.candidates import Candidate, Case
from rlsim.studies.optimize.decide import Decision, is_tied, ratio
from rlsim.studies.optimize.explore import explore
from rlsim.studies.optimize.scoring import COST, Judge, Scored
from rlsim.studies.optimize.space import At
from rlsim.studies.sweep import variant

MOST_ROBUST = 12
"""Contenders of the scenario as written that are judged under uncertain inputs, beside the best of every state."""
MOST_MORE_GPUS = 16


@dataclass(frozen=True, slots=True)
class Regrets:
    """A point under every state of the uncertain inputs."""

    at: At
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


@dataclass(frozen=True, slots=True)
class More:
    """What more GPUs for one role would do to the choice."""

    role: str
    gpus: int
    seconds: Estimate
    """Change of the step time, for all these GPUs."""
    usd_per_million_trained_tokens: Estimate
    """Change of the cost, likewise."""


def cases_of(factors: Sequence[Factor], scenario: Scenario) -> list[Case]:
    """A case for every combination of the factors' levels; ``-20%`` is relative to the scenario's own value."""
    found = [_absolute(factor, scenario) for factor in factors]
    cases = []
    for levels in product(*(factor.levels for factor in found)):
        texts = [f"{factor.name}={one.text}" for factor, one in zip(found, levels, strict=True)]
        settings = {factor.name: one for factor, one in zip(found, levels, strict=True)}
        cases.append(Case(", ".join(texts), settings))
    return cases


def _absolute(factor: Factor, scenario: Scenario) -> Factor:
    if not any(one.text.endswith("%") for one in factor.levels):
        return factor
    own = _number_at(scenario, factor.name)
    texts = [
        f"{own * (1 + float(one.text[:-1]) / 100):.6g}" if one.text.endswith("%") else one.text for one in factor.levels
    ]
    return Factor(factor.name, tuple(level(factor.name, text, "--sensitivity") for text in texts))


def _number_at(scenario: Scenario, key: str) -> float:
    node: object = scenario.model_dump(mode="json")
    for place in key.split("."):
        node = node.get(place) if isinstance(node, dict) else None
    if not isinstance(node, int | float) or isinstance(node, bool):
        raise ParameterError(f"--sensitivity {key}", node, "the key path of a number, for values in %")
    return float(node)


def check_cases(judge: Judge, at: At, cases: Sequence[Case]) -> None:
    """Refuse inputs that no scenario takes, before anything runs: they are tried at one point."""
    space = judge.candidates.space
    for case in cases:
        variant(space.document, {**space.choice(at), **case.settings})


def robust(
    judge: Judge, decision: Decision, cases: Sequence[Case], evaluations: int, replications: int, criterion: str
) -> Robust:
    """The point with the least worst regret (or least mean) over the states.

    Judged are the best points of every state and of the scenario as written, each under all states.
    """
    points = [one.at for one in decision.contenders[:MOST_ROBUST]]
    for case in cases:
        looked = explore(judge, evaluations, case)
        points += [one.at for one in sorted(looked.values(), key=lambda one: (one.value, one.at))[:3]]
    points = list(dict.fromkeys(points))
    scored = [judge.score(points, case, replications) for case in cases]
    in_all = [at for at in points if all(at in state for state in scored)]
    bests = [min((one.value for one in state.values()), default=float("nan")) for state in scored]
    told = [_regrets(judge, at, scored, bests) for at in in_all]
    told.sort(key=lambda one: (one.worst if criterion == "regret" else one.mean, one.at))
    return Robust(criterion, tuple(case.name for case in cases), tuple(told), len(points) - len(in_all))


def _regrets(judge: Judge, at: At, scored: Sequence[Mapping[At, Scored]], bests: Sequence[float]) -> Regrets:
    values = tuple(state[at].value for state in scored)
    regrets = tuple(value / best - 1 for value, best in zip(values, bests, strict=True))
    return Regrets(at, judge.candidates.space.texts(at), values, regrets)


def swings(
    judge: Judge, decision: Decision, factors: Sequence[Factor], evaluations: int, replications: int
) -> tuple[list[Swing], list[str]]:
    """What the choice does, and which point would be better, with each input at its low and high value.

    Also what could not be judged: cases in which the choice is infeasible.
    """
    found, refused = [], []
    for factor in factors:
        for case in cases_of([factor], decision.best.candidate.variant.scenario):
            text = case.settings[factor.name].text
            looked = explore(judge, evaluations, case)
            near = sorted(looked.values(), key=lambda one: (one.value, one.at))[:3]
            scored = judge.score([decision.best.at, *(one.at for one in near)], case, replications)
            own = scored.get(decision.best.at)
            if own is None:
                refused.append(f"{case.name}: the choice is infeasible then")
                continue
            best = min(scored.values(), key=lambda one: (one.value, one.at))
            change = ratio(own, decision.best)
            found.append(Swing(factor.name, text, change, best.candidate.variant.levels, ratio(own, best)))
    return found, refused


def more_gpus(judge: Judge, decision: Decision, replications: int) -> list[More]:
    """The fewest further GPUs that the choice can take for each role, whatever the limits say."""
    found = []
    scenario = decision.best.candidate.variant.scenario
    shared = decision.best.candidate.variant.resolved.colocated
    roles = {"rollout and trainer": (1, 1)} if shared else {"rollout": (1, 0), "trainer": (0, 1)}
    for role, parts in roles.items():
        for candidate in _larger(judge, decision.best.at, scenario, parts):
            case = Case(f"{candidate.gpus - decision.best.candidate.gpus} more {role} GPUs")
            made = judge.simulated([candidate], case, replications)
            found += [_more(role, one, decision.best) for one in made]
    return found


def _larger(judge: Judge, at: At, scenario: Scenario, parts: tuple[int, int]) -> Iterator[Candidate]:
    """The choice with the fewest more GPUs with which it can be made; none where no number will do."""
    space = judge.candidates.space
    for more in range(1, MOST_MORE_GPUS + 1):
        rollout, trainer = scenario.rollout.gpus + parts[0] * more, scenario.trainer.gpus + parts[1] * more
        text = f"{rollout}:{trainer}:{scenario.cluster.gpus + more}"
        added = level("rollout.gpus:trainer.gpus:cluster.gpus", text, "more GPUs")
        try:
            made = variant(space.document, {**space.choice(at), "more": added})
        except ScenarioError:
            continue
        yield Candidate(at, made, gpus_used(made.resolved), gpus_used(made.resolved) * price(made.resolved)[0])
        return


def _more(role: str, one: Scored, best: Scored) -> More:
    confidence = one.candidate.variant.scenario.run.confidence
    seconds, usd = (
        paired_difference(one.values(metric), best.values(metric), confidence) for metric in ("step_seconds", COST)
    )
    return More(role, one.candidate.gpus - best.candidate.gpus, seconds, usd)
