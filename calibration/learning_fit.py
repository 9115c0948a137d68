"""Population, persistence and gain of the learning model from the rewards of a run, by maximum likelihood.

Successes of a group are binomial given its prompt's score, whose logit is level + spread * score + skill(version).
Scores are integrated out on a grid. Groups of a prompt are tied from one visit to the next: each is taken given the one
before, which is exact for two visits and leaves out what earlier ones add. Intervals are sandwich intervals over
prompts, which allow for that. With one run progress is counted as if every update was uniform and on-policy; with
several, by what each step was trained on, and the exponent of information is found with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.reward_log import Batches, RewardLog
from rlsim.core.errors import ParameterError
from rlsim.learning.information import reference_variance
from rlsim.learning.model import Curve, Population, RewardLaw
from rlsim.learning.population import PopulationCurve

if TYPE_CHECKING:
    from numpy.typing import NDArray

GRID = np.linspace(-5.0, 5.0, 91)
DENSITY = np.exp(-(GRID**2) / 2) / math.sqrt(2 * math.pi) * (GRID[1] - GRID[0])
HELD_OUT = 5
"""One prompt in so many is not fitted."""
LARGEST_TIE = 0.99
Z95 = 1.959964
FLAT = 1e-7
"""Relative gain in log-likelihood at which the search ends: a thousandth of a nat in ten thousand."""
START = (0.0, math.log(1.5), 0.7, 0.3, 0.5)
BOUNDS = ((-6.0, 6.0), (math.log(0.05), math.log(8.0)), (0.02, LARGEST_TIE), (0.0, 60.0), (0.0, 2.0))
_STEP = 1e-3
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Given:
    """What the fit takes as known."""

    updates_per_version: float = 1.0
    asymptote: float = 0.8
    steepness: float = 1.0
    drift_versions: float = 100.0
    breadth_exponent: float = 0.5
    """Used with several runs only."""


@dataclass(frozen=True, slots=True)
class Found:
    """A parameter with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LearningFit:
    """Parameters by key of the section ``learning``, and what prompts that were not fitted say of them."""

    parameters: dict[str, Found]
    loss: float
    """Negative log-likelihood a sample of the prompts held out, nats."""
    loss_of_one_rate: float
    """The same if all samples succeeded equally often."""
    prompts: int
    visits: int
    given: Given

    def overrides(self) -> dict[str, object]:
        """Keys of a scenario."""
        learning: dict[str, dict[str, float]] = {}
        for key, found in self.parameters.items():
            section, name = key.split(".")
            learning.setdefault(section, {})[name] = found.value
        curve = {"asymptote": self.given.asymptote, "steepness": self.given.steepness}
        learning["curve"] = {**learning.get("curve", {}), **curve}
        learning["population"]["drift_versions"] = self.given.drift_versions
        return {"learning": learning}


class Likelihood:
    """Log-likelihood of a log, prompt by prompt, as a function of (logit mean, log spread, persistence, pace).

    With several runs also of the exponent of information. Pace is the updates of the whole log over those to half of
    the way.
    """

    def __init__(self, log: RewardLog, given: Given) -> None:
        self._given, self._batches = given, log.batches
        self.runs = int(log.run.max()) + 1
        self.last_update = max(1.0, float(log.version.max()) * given.updates_per_version)
        _, self._owner = np.unique(log.prompt, return_inverse=True)
        self._later = np.flatnonzero(np.diff(log.prompt) == 0) + 1
        self.tied = len(self._later) > 0
        same = np.zeros(len(log.prompt), dtype=bool)
        same[self._later] = True
        follows = np.append(same[1:], False)
        self._alone, self._inner = ~same & ~follows, same & follows
        kept = _drift_correlation(log.version[self._later - 1], log.version[self._later], given.drift_versions)
        self._kept = np.round(kept, 2)
        cases = np.stack([log.run, log.version, log.successes, log.samples], axis=1)
        self._cases, self._case = np.unique(cases, axis=0, return_inverse=True)

    def population(self, x: NDArray[np.float64]) -> Population:
        """The population of these unknowns."""
        return Population(mean_success=1 / (1 + math.exp(-x[0])), spread=math.exp(x[1]), persistence=float(x[2]))

    def by_prompt(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-likelihood of each prompt, without constants."""
        made = self._of_scores(x)
        alone = np.log(made @ DENSITY)
        total = np.zeros(self._owner.max() + 1)
        np.add.at(total, self._owner[self._alone], alone[self._alone])
        np.add.at(total, self._owner[self._inner], -alone[self._inner])
        np.add.at(total, self._owner[self._later], self._of_pairs(made, float(x[2])))
        return total

    def _of_scores(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Likelihood of each visit at each score of the grid."""
        given = self._given
        half = self.last_update / max(1e-9, float(x[3]))
        population = self.population(x)
        curve = PopulationCurve(population, Curve(given.asymptote, half, given.steepness), RewardLaw())
        runs, versions, successes, samples = self._cases.T[:, :, None]
        skill = self._uniform(curve) if self.runs == 1 else self._by_batches(curve, max(0.0, float(x[4])))
        skills = np.array([skill(int(run), int(v)) for run, v in zip(runs.flat, versions.flat, strict=True)])
        logits = curve.level + population.spread * GRID[None, :] + skills[:, None]
        return np.asarray(np.exp(successes * logits - samples * np.logaddexp(0.0, logits))[self._case])

    def _uniform(self, curve: PopulationCurve) -> Callable[[int, int], float]:
        return lambda run, version: curve.skill(version * self._given.updates_per_version)

    def _by_batches(self, curve: PopulationCurve, exponent: float) -> Callable[[int, int], float]:
        """Skill of a run's version: that of ``rlsim.learning.course`` on what was trained on before."""
        usual = float(np.median(self._batches[0].samples))
        courses = [self._course(curve, batches, exponent, usual) for batches in self._batches]
        return lambda run, version: courses[run][min(version, len(courses[run]) - 1)]

    def _course(self, curve: PopulationCurve, batches: Batches, exponent: float, usual: float) -> list[float]:
        progress, skills = 0.0, [0.0]
        for variance, samples in zip(batches.variance.tolist(), batches.samples.tolist(), strict=True):
            expected = reference_variance(curve.reward_variance(skills[-1]), batches.group_size)
            breadth = (samples / usual) ** self._given.breadth_exponent
            worth = (variance / max(_LEAST_VARIANCE, expected)) ** exponent * breadth
            progress += self._given.updates_per_version * worth
            skills.append(curve.skill(progress))
        return skills

    def _of_pairs(self, made: NDArray[np.float64], persistence: float) -> NDArray[np.float64]:
        found = np.empty(len(self._later))
        for kept in np.unique(self._kept):
            which = self._kept == kept
            tie = min(LARGEST_TIE, persistence + (1 - persistence) * kept)
            later = self._later[which]
            found[which] = ((made[later - 1] @ _joint(tie)) * made[later]).sum(1)
        return np.asarray(np.log(np.maximum(found, 1e-300)))


def _joint(correlation: float) -> NDArray[np.float64]:
    """Standard bivariate normal weights on the grid."""
    width = math.sqrt(1 - correlation**2)
    given = np.exp(-(((GRID[None, :] - correlation * GRID[:, None]) / width) ** 2) / 2) / (
        width * math.sqrt(2 * math.pi)
    )
    return np.asarray(DENSITY[:, None] * given * (GRID[1] - GRID[0]))


def _drift_correlation(
    before: NDArray[np.int64], after: NDArray[np.int64], drift_versions: float
) -> NDArray[np.float64]:
    """Of the drifts of ``rlsim.learning.prompts`` at two versions."""
    first, second = before / drift_versions, after / drift_versions
    a, b = (first % 1) * math.pi / 2, (second % 1) * math.pi / 2
    apart = np.floor(second) - np.floor(first)
    return np.where(apart == 0, np.cos(a - b), np.where(apart == 1, np.sin(a) * np.cos(b), 0.0))


def fit_learning(log: RewardLog, given: Given) -> LearningFit:
    """Fit four prompts in five and judge by the others. Raises ``ParameterError`` for an asymptote that is passed."""
    _refuse_low_ceiling(log, given)
    held = (log.prompt * 2654435761 % 2**32) % HELD_OUT == 0
    fitted = Likelihood(log.of(~held), given)
    x, errors = _maximum(fitted, given)
    loss = -float(Likelihood(log.of(held), given).by_prompt(_at(x, fitted, log, held, given)).sum())
    samples = log.of(held).samples.sum()
    rate = log.of(~held).rate
    won = log.of(held).successes.sum()
    one_rate = -(won * math.log(rate) + (samples - won) * math.log1p(-rate)) / samples
    return LearningFit(
        _named(x, errors, fitted), loss / samples, float(one_rate), fitted._owner.max() + 1, len(log.prompt), given
    )


def _at(
    x: NDArray[np.float64], fitted: Likelihood, log: RewardLog, held: NDArray[np.bool_], given: Given
) -> NDArray[np.float64]:
    """The unknowns in the units of the prompts held out, whose last version may be another."""
    moved = x.copy()
    moved[3] *= Likelihood(log.of(held), given).last_update / fitted.last_update
    return moved


def _refuse_low_ceiling(log: RewardLog, given: Given) -> None:
    late = log.version >= np.quantile(log.version, 0.8)
    if log.of(late).rate >= given.asymptote:
        raise ParameterError(
            "asymptote", given.asymptote, f"above the success of the last versions ({log.of(late).rate:.3f})"
        )


def _maximum(likelihood: Likelihood, given: Given) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where the likelihood is largest, and standard errors by the sandwich over prompts."""
    from scipy.optimize import minimize

    ceiling = math.log(given.asymptote / (1 - given.asymptote)) - 0.05
    unknowns = len(START) if likelihood.runs > 1 else len(START) - 1
    bounds = [(BOUNDS[0][0], min(BOUNDS[0][1], ceiling)), *BOUNDS[1:unknowns]]
    if not likelihood.tied:
        bounds[2] = (START[2], START[2])
    start = [min(START[0], ceiling - 0.1), *START[1:unknowns]]

    def loss(x: NDArray[np.float64]) -> float:
        return -float(likelihood.by_prompt(x).sum())

    found = minimize(loss, np.array(start), method="L-BFGS-B", bounds=bounds, options={"ftol": FLAT})
    free = [i for i in range(unknowns) if i != 2 or likelihood.tied]
    return np.asarray(found.x), _standard_errors(likelihood, np.asarray(found.x), free)


def _standard_errors(likelihood: Likelihood, x: NDArray[np.float64], free: list[int]) -> NDArray[np.float64]:
    def scores(at: NDArray[np.float64]) -> NDArray[np.float64]:
        columns = []
        for i in free:
            step = np.zeros_like(at)
            step[i] = _STEP
            columns.append((likelihood.by_prompt(at + step) - likelihood.by_prompt(at - step)) / (2 * _STEP))
        return np.stack(columns, axis=1)

    rows = []
    for i in free:
        step = np.zeros_like(x)
        step[i] = _STEP
        rows.append((scores(x + step).sum(0) - scores(x - step).sum(0)) / (2 * _STEP))
    bread = np.linalg.pinv(-(np.array(rows) + np.array(rows).T) / 2)
    each = scores(x)
    errors = np.zeros_like(x)
    errors[free] = np.sqrt(np.maximum(0.0, np.diag(bread @ (each.T @ each) @ bread)))
    return errors


def _named(x: NDArray[np.float64], errors: NDArray[np.float64], likelihood: Likelihood) -> dict[str, Found]:
    low, high = x - Z95 * errors, x + Z95 * errors
    last = likelihood.last_update
    mean, spread = (1 / (1 + np.exp(-np.array([x[0], low[0], high[0]]))), np.exp([x[1], low[1], high[1]]))
    found = {"population.mean_success": Found(*map(float, mean)), "population.spread": Found(*map(float, spread))}
    if high[2] > low[2]:
        found["population.persistence"] = Found(float(x[2]), max(0.0, float(low[2])), min(1.0, float(high[2])))
    if x[3] > 1e-6:
        slowest = last / float(low[3]) if low[3] > 0 else math.inf
        found["curve.half_updates"] = Found(last / float(x[3]), last / float(high[3]), slowest)
    if likelihood.runs > 1:
        found["effect.information_exponent"] = Found(float(x[4]), max(0.0, float(low[4])), float(high[4]))
    return found
