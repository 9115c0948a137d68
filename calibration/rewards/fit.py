"""Population, persistence and gain of the learning model from the rewards of a run, by maximum likelihood.

Successes of a group are binomial given its prompt's score, whose logit is level + spread * score + what was gained by
its version: by all prompts, and by this one from its own earlier groups (``calibration.rewards.own_gains``). Scores are
integrated out on a grid, group by group: what earlier groups of a prompt say of its score is carried to the next one,
as if scores drifted without memory, which is exact for two groups and where they do not drift. Huber-White
intervals over prompts allow for that. With one run progress is counted as if every update was uniform and
on-policy; with several, by what each step was trained on, and the exponent of information is found with the rest.
A minority of prompts that nothing solves is a kind of its own: it makes the spread of the others look larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from calibration.fitting.standard_errors import STEP, Z95, standard_errors
from calibration.rewards.lengths import GroupLengths, LengthRatios, fit_lengths
from calibration.rewards.log import RewardLog
from calibration.rewards.own_gains import OwnGains, allocated_shares
from rlsim.core.errors import ParameterError
from rlsim.learning.gains import gains_named
from rlsim.learning.information import reference_variance
from rlsim.learning.model import BatchEffect, Domain, Population, ProgressCurve, RewardValues
from rlsim.learning.population import PopulationCurve

if TYPE_CHECKING:
    from numpy.typing import NDArray

GRID = np.linspace(-5.0, 5.0, 91)
DENSITY = np.exp(-(GRID**2) / 2) / math.sqrt(2 * math.pi) * (GRID[1] - GRID[0])
HELD_OUT = 5
"""One prompt in so many is not fitted."""
LARGEST_TIE = 0.99
FLAT = 1e-7
"""Relative gain in log-likelihood at which the search ends: a thousandth of a nat in ten thousand."""
START = (0.0, math.log(1.5), 0.7, 0.3, 0.9, 0.05)
PLACES = frozenset(range(len(START)))
TRANSFER = 4
"""Its place among the unknowns of a single run; with several the exponent of information has it."""
MOST_TRANSFER = 0.999
"""Up to which it is sought: at 1 the population is integrated over in another way, which the search would notice."""
STUCK = 5
"""Place of the share of prompts that are stuck."""
STUCK_OFFSET = -8.0
"""Logits by which these are harder than others: a chance in some thousands where others are even."""
BOUNDS = ((-6.0, 6.0), (math.log(0.05), math.log(8.0)), (0.02, LARGEST_TIE), (0.0, 60.0))
EXPONENTS = (0.0, 2.0)
TRANSFERS = (0.0, MOST_TRANSFER)
STUCK_SHARES = (0.0, 0.5)
LEAST_CHANCE = 1e-300
LEAST_WIDTH = 1e-3
"""Least width of an interval of persistence that a run identifies."""
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, slots=True)
class LearningSettings:
    """What the fit takes as known."""

    updates_per_version: float = 1.0
    asymptote: float = 0.8
    steepness: float = 1.0
    drift_versions: float = 100.0
    breadth_exponent: float = 0.5
    """Used with several runs only."""
    information_exponent: float = 1.0
    """Used with one run only: how gains that do not transfer are dealt to the groups that taught."""
    gains: Literal["alike", "reinforced"] = "alike"
    """Who gains how much (``rlsim.learning.gains``)."""
    has_stuck: bool = False
    """Whether a share of the prompts is so hard that no run solves them; the share is fitted."""


@dataclass(frozen=True, slots=True)
class FittedParameter:
    """A parameter with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LearningFit:
    """Parameters by key of the section ``learning``, and what prompts that were not fitted say of them."""

    parameters: dict[str, FittedParameter]
    loss: float
    """Negative log-likelihood a sample of the prompts held out, nats."""
    loss_of_one_rate: float
    """Negative log-likelihood a sample if all samples succeeded equally often."""
    prompts: int
    groups: int
    settings: LearningSettings
    lengths: LengthRatios | None = None
    """None: the log does not say how long samples are."""

    def overrides(self) -> dict[str, object]:
        """Keys of a scenario."""
        learning: dict[str, dict[str, Any]] = {}
        for key, parameter in self.parameters.items():
            section, name = key.split(".")
            if name.startswith("stuck"):
                continue
            learning.setdefault(section, {})[name] = parameter.value
        if "effect.transfer" in self.parameters:
            learning["effect"]["information_exponent"] = self.settings.information_exponent
        learning.setdefault("effect", {})["gains"] = self.settings.gains
        curve = {"asymptote": self.settings.asymptote, "steepness": self.settings.steepness}
        learning["curve"] = {**learning.get("curve", {}), **curve}
        learning["population"]["drift_versions"] = self.settings.drift_versions
        if (stuck := self.parameters.get("population.stuck_share")) is not None and stuck.value > 0:
            learning["population"]["domains"] = {
                "learnt": {"share": 1 - stuck.value, "offset": 0.0},
                "stuck": {"share": stuck.value, "offset": STUCK_OFFSET},
            }
            if (ratio := self.parameters.get("population.stuck_length_ratio")) is not None:
                learning["population"]["domains"]["stuck"]["length_ratio"] = ratio.value
        return {"learning": learning}


class Likelihood:
    """Log-likelihood of a log by prompt, as a function of (logit mean, log spread, persistence, pace, transfer, stuck).

    With several runs of the exponent of information in place of transfer, which is then 1. Pace is the updates of the
    whole log over those to half of the way. ``shares`` are those of ``calibration.rewards.own_gains.allocated_shares``.
    """

    def __init__(
        self, log: RewardLog, settings: LearningSettings, shares: NDArray[np.float64], places: frozenset[int] = PLACES
    ) -> None:
        self._settings, self._log = settings, log
        self._own = OwnGains(log, shares)
        self._group_size = max(2, int(np.median(log.samples)))
        self._gains = gains_named(settings.gains, self._group_size, value_baseline=False)
        self.runs = int(log.run.max()) + 1
        self.last_update = max(1.0, float(log.version.max()) * settings.updates_per_version)
        _, begin, self.owner = np.unique(log.prompt, return_index=True, return_inverse=True)
        rank = np.arange(len(log.prompt)) - begin[self.owner]
        self._groups = [np.flatnonzero(rank == number) for number in range(int(rank.max()) + 1)]
        """Rows of the first groups of prompts, of the second ones, and so on."""
        before = np.maximum(0, np.arange(len(rank)) - 1)
        # the correlation of the drifts of rlsim.learning.prompts at two versions
        first, second = log.version[before] / settings.drift_versions, log.version / settings.drift_versions
        a, b = (first % 1) * math.pi / 2, (second % 1) * math.pi / 2
        apart = np.floor(second) - np.floor(first)
        kept = np.where(apart == 0, np.cos(a - b), np.where(apart == 1, np.sin(a) * np.cos(b), 0.0))
        self._kept: NDArray[np.float64] = np.round(kept, 2).astype(np.float64)
        untold = {
            2: len(self._groups) == 1,
            TRANSFER: self.runs == 1 and (not self._own.told or settings.gains == "reinforced"),
            STUCK: not settings.has_stuck,
        }
        self.free = [place for place in sorted(places) if not untold.get(place, False)]
        """Places of the unknowns that are fitted: those asked for of which the log may tell."""

    def population(self, x: NDArray[np.float64]) -> Population:
        """The population of these unknowns."""
        domains = {}
        if STUCK in self.free:
            kinds = zip(("learnt", "stuck"), *self._kinds(x), strict=False)
            domains = {name: Domain.model_construct(share=share, offset=offset) for name, share, offset in kinds}
        mean_success = 1 / (1 + math.exp(-x[0]))
        # Unchecked: on its way the search passes values that no scenario may have.
        return Population.model_construct(
            mean_success=mean_success, spread=math.exp(x[1]), persistence=float(x[2]), domains=domains
        )

    def _kinds(self, x: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Shares and offsets of the kinds of prompts."""
        if STUCK not in self.free:
            return (1.0,), (0.0,)
        stuck = min(STUCK_SHARES[1], max(0.0, float(x[STUCK])))
        return (1 - stuck, stuck), (0.0, STUCK_OFFSET)

    def transfer(self, x: NDArray[np.float64]) -> float:
        """Transfer of these unknowns; 1 where it is none of them."""
        if self.runs > 1 or TRANSFER not in self.free:
            return 1.0
        return min(MOST_TRANSFER, max(0.0, float(x[TRANSFER])))

    def by_prompt(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-likelihood of each prompt, without constants: of each group given those before."""
        return np.bincount(self.owner, self.by_group(x)[0]).astype(np.float64)

    def by_group(self, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log-likelihood of each group given those of its prompt before, and what is believed of its score after it.

        Shapes (groups,) and (groups, kinds * scores of the grid), of one kind of prompts after the other.
        """
        scores, law = self._of_scores(x), np.outer(self._kinds(x)[0], DENSITY).ravel()
        chances, beliefs = np.empty(len(scores)), np.empty_like(scores)
        for number, groups in enumerate(self._groups):
            prior = self._drifted(beliefs[groups - 1], self._kept[groups], float(x[2])) if number else law[None, :]
            likely = prior * scores[groups]
            chances[groups] = np.maximum(likely.sum(1), LEAST_CHANCE)
            beliefs[groups] = likely / chances[groups][:, None]
        return np.log(chances), beliefs

    def lengths(self, x: NDArray[np.float64]) -> GroupLengths:
        """What the log says of lengths, beside what its rewards say of scores."""
        log = self._log
        assert log.tokens is not None
        samples = np.stack([log.samples - log.successes, log.successes], axis=1)
        return GroupLengths(self.owner, samples, log.tokens, self.by_group(x)[1], GRID)

    def _of_scores(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Likelihood of each group at each score of the grid, of one kind of prompts after the other."""
        settings = self._settings
        half = self.last_update / max(1e-9, float(x[3]))
        population = self.population(x)
        effect = BatchEffect.model_construct(
            information_exponent=settings.information_exponent, gains=settings.gains, transfer=self.transfer(x)
        )
        progress = ProgressCurve.model_construct(
            asymptote=settings.asymptote, half_updates=half, steepness=settings.steepness
        )
        curve = PopulationCurve(population, progress, RewardValues(), effect, self._gains, self._group_size)
        exponent = max(0.0, float(x[4]))
        moved = self._uniform(curve, effect.transfer) if self.runs == 1 else self._by_batches(curve, exponent)
        cases = np.stack([moved, self._log.successes, self._log.samples], axis=1)
        distinct, case = np.unique(cases, axis=0, return_inverse=True)
        moved, successes, samples = distinct.T[:, :, None]
        scores = np.concatenate([offset + population.spread * GRID for offset in self._kinds(x)[1]])
        logits = self._gains.all_moved(curve.level + scores[None, :], moved)
        return np.asarray(np.exp(successes * logits - samples * np.logaddexp(0.0, logits))[case])

    def _uniform(self, curve: PopulationCurve, transfer: float) -> NDArray[np.float64]:
        """Logits gained by each group's prompt."""
        updates = np.arange(self._log.version.max() + 2) * self._settings.updates_per_version
        skills = np.array([curve.skill(float(update)) for update in updates])
        common = transfer * skills[self._log.version]
        return common if transfer == 1.0 else common + (1 - transfer) * self._own.before(np.diff(skills))

    def _by_batches(self, curve: PopulationCurve, exponent: float) -> NDArray[np.float64]:
        """Logits gained, by ``rlsim.learning.dynamics`` on what was trained on before."""
        values, usual = np.empty(len(self._log.version)), float(np.median(self._log.batches[0].samples))
        for run, batches in enumerate(self._log.batches):
            progress, course = 0.0, [0.0]
            for variance, samples in zip(batches.variance.tolist(), batches.samples.tolist(), strict=True):
                expected = reference_variance(curve.reward_variance(course[-1]), batches.group_size)
                breadth = (samples / usual) ** self._settings.breadth_exponent
                weight = (variance / max(_LEAST_VARIANCE, expected)) ** exponent * breadth
                progress += self._settings.updates_per_version * weight
                course.append(curve.skill(progress))
            of_run = self._log.run == run
            values[of_run] = np.array(course)[np.minimum(self._log.version[of_run], len(course) - 1)]
        return values

    def _drifted(
        self, beliefs: NDArray[np.float64], kept: NDArray[np.float64], persistence: float
    ) -> NDArray[np.float64]:
        """What is believed of scores by the next group; a prompt stays of its kind."""
        drifted = np.empty_like(beliefs)
        for each in np.unique(kept):
            ahead = _next(min(LARGEST_TIE, persistence + (1 - persistence) * each))
            for start in range(0, beliefs.shape[1], len(GRID)):
                of_kind = slice(start, start + len(GRID))
                drifted[kept == each, of_kind] = beliefs[kept == each, of_kind] @ ahead
        return drifted


@lru_cache(maxsize=128)
def _next(correlation: float) -> NDArray[np.float64]:
    """From each score of the grid to each: weights of the standard bivariate normal law, given the first."""
    width = math.sqrt(1 - correlation**2)
    apart = (GRID[None, :] - correlation * GRID[:, None]) / width
    return np.asarray(np.exp(-(apart**2) / 2) / (width * math.sqrt(2 * math.pi)) * (GRID[1] - GRID[0]))


def fit_learning(log: RewardLog, settings: LearningSettings) -> LearningFit:
    """Fit four prompts in five and judge by the others. Raises ``ParameterError`` for an asymptote that is passed."""
    late = log.version >= np.quantile(log.version, 0.8)
    if log.of(late).rate >= settings.asymptote:
        raise ParameterError(
            "asymptote", settings.asymptote, f"above the success of the last versions ({log.of(late).rate:.3f})"
        )
    held = (log.prompt * 2654435761 % 2**32) % HELD_OUT == 0
    shares = allocated_shares(log, settings.information_exponent)
    fitted = Likelihood(log.of(~held), settings, shares[~held])
    x, errors = _maximum(fitted, settings)
    if fitted.runs == 1 and TRANSFER in fitted.free and Z95 * errors[TRANSFER] >= max(x[TRANSFER], 1 - x[TRANSFER]):
        fitted = Likelihood(log.of(~held), settings, shares[~held], PLACES - {TRANSFER})
        x, errors = _maximum(fitted, settings)
    others = Likelihood(log.of(held), settings, shares[held], frozenset(fitted.free))
    moved = x.copy()
    moved[3] *= others.last_update / fitted.last_update
    lengths = None if log.tokens is None else fit_lengths(fitted.lengths(x), others.lengths(moved))
    loss = -float(others.by_prompt(moved).sum())
    samples = log.of(held).samples.sum()
    rate = log.of(~held).rate
    won = log.of(held).successes.sum()
    one_rate = -(won * math.log(rate) + (samples - won) * math.log1p(-rate)) / samples
    parameters = _named(x, errors, fitted)
    if lengths is not None:
        parameters |= {key: FittedParameter(*map(float, ratio)) for key, ratio in lengths.ratios.items()}
    return LearningFit(
        parameters, loss / samples, float(one_rate), fitted.owner.max() + 1, len(log.prompt), settings, lengths
    )


def _maximum(likelihood: Likelihood, settings: LearningSettings) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where the likelihood is largest, and Huber-White standard errors over prompts."""
    from scipy.optimize import minimize

    ceiling = math.log(settings.asymptote / (1 - settings.asymptote)) - 0.05
    transfer_bounds = EXPONENTS if likelihood.runs > 1 else TRANSFERS
    bounds = [(BOUNDS[0][0], min(BOUNDS[0][1], ceiling)), *BOUNDS[1:], transfer_bounds, STUCK_SHARES]
    start = [min(START[0], ceiling - 0.1), *START[1:]]
    for place in set(range(len(START))) - set(likelihood.free):
        bounds[place] = (start[place], start[place])

    def loss(x: NDArray[np.float64]) -> float:
        return -float(likelihood.by_prompt(x).sum())

    optimum = minimize(loss, np.array(start), method="L-BFGS-B", bounds=bounds, options={"ftol": FLAT})
    x = np.asarray(optimum.x)
    inside = x.copy()
    if likelihood.runs == 1 and TRANSFER in likelihood.free:
        inside[TRANSFER] = min(MOST_TRANSFER - 2 * STEP, max(2 * STEP, x[TRANSFER]))
    inside[STUCK] = max(2 * STEP, x[STUCK])
    return x, standard_errors(likelihood.by_prompt, inside, likelihood.free)


def _named(x: NDArray[np.float64], errors: NDArray[np.float64], likelihood: Likelihood) -> dict[str, FittedParameter]:
    low, high = x - Z95 * errors, x + Z95 * errors
    last = likelihood.last_update
    mean, spread = (1 / (1 + np.exp(-np.array([x[0], low[0], high[0]]))), np.exp([x[1], low[1], high[1]]))
    parameters = {
        "population.mean_success": FittedParameter(*map(float, mean)),
        "population.spread": FittedParameter(*map(float, spread)),
    }
    if high[2] - low[2] > LEAST_WIDTH:
        parameters["population.persistence"] = FittedParameter(
            float(x[2]), max(0.0, float(low[2])), min(1.0, float(high[2]))
        )
    if x[3] > 1e-6:
        slowest = last / float(low[3]) if low[3] > 0 else math.inf
        parameters["curve.half_updates"] = FittedParameter(last / float(x[3]), last / float(high[3]), slowest)
    if likelihood.runs > 1:
        parameters["effect.information_exponent"] = FittedParameter(
            float(x[4]), max(0.0, float(low[4])), float(high[4])
        )
    elif TRANSFER in likelihood.free:
        value = 1.0 if x[TRANSFER] >= MOST_TRANSFER else float(x[TRANSFER])
        parameters["effect.transfer"] = FittedParameter(value, max(0.0, float(low[4])), min(1.0, float(high[4])))
    if STUCK in likelihood.free:
        parameters["population.stuck_share"] = FittedParameter(
            float(x[STUCK]), max(0.0, float(low[STUCK])), float(high[STUCK])
        )
    return parameters
