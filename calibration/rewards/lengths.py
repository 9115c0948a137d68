"""Lengths by outcome, difficulty and kind, from the same groups as the rest of the learning model.

A sample of a prompt with this score has on average

    mean tokens * length_ratio (of its kind) * failure_ratio * difficulty_ratio^-score         if it fails,
    mean tokens * length_ratio (of its kind) * success_difficulty_ratio^-score                 if it succeeds

(``rlsim.learning.dynamics``). Scores are not known: each group's tokens, of failures and of successes apart, are
compared with the mean of this over what the rewards up to that group say of its prompt. The quasi-likelihood is that
of lengths whose standard deviation goes with their mean; intervals are Huber-White intervals over prompts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.fitting.standard_errors import Z95, standard_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATIOS = (math.log(0.1), math.log(10.0))
"""Logarithms that a scenario allows."""
UNTOLD = math.log(4.0)
"""Half an interval, in logarithms, from which a ratio is not told."""
LEVEL, FAILURE, DIFFICULTY, EASE, STUCK = range(5)
NAMES = {
    FAILURE: "lengths.failure_ratio",
    DIFFICULTY: "lengths.difficulty_ratio",
    EASE: "lengths.success_difficulty_ratio",
    STUCK: "population.stuck_length_ratio",
}


@dataclass(frozen=True, slots=True)
class GroupLengths:
    """What lengths are fitted to. Groups of a prompt are one part; shapes begin with (groups,)."""

    owner: NDArray[np.int64]
    samples: NDArray[np.int64]
    """Failures and successes: (groups, 2)."""
    tokens: NDArray[np.int64]
    """Tokens of these."""
    beliefs: NDArray[np.float64]
    """Beliefs in kinds and, in each, in scores: (groups, kinds * scores)."""
    scores: NDArray[np.float64]

    def explained(self, x: NDArray[np.float64], mean_tokens: float) -> float:
        """Share of the variance of mean tokens, by group and outcome, about ``mean_tokens`` that ``x`` explains."""
        sampled = self.samples > 0
        mean, count = (self.tokens / np.maximum(1, self.samples))[sampled], self.samples[sampled]
        missed = float(count @ (mean - np.exp(self.log_means(x))[sampled]) ** 2)
        apart = float(count @ (mean - mean_tokens) ** 2)
        return 1 - missed / apart if apart else 0.0

    def log_means(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log of the mean tokens of a failure and of a success: (groups, 2)."""
        by_score = np.exp(-np.outer(self.scores, x[[DIFFICULTY, EASE]]))
        kinds = self.beliefs.reshape(len(self.owner), -1, len(self.scores)) @ by_score
        factor = np.einsum("vko,k->vo", kinds, np.exp([0.0, x[STUCK]])[: kinds.shape[1]])
        return np.asarray(x[LEVEL] + np.log(factor) + np.array([x[FAILURE], 0.0]))

    def by_prompt(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Quasi-log-likelihood, without constants: (prompts,)."""
        means = self.log_means(x)
        by_group = -(self.tokens * np.exp(-means) + self.samples * means).sum(1)
        return np.bincount(self.owner, by_group).astype(np.float64)


@dataclass(frozen=True, slots=True)
class LengthRatios:
    """Ratios with their 95 % intervals, each as (value, low, high)."""

    ratios: dict[str, NDArray[np.float64]]
    """Ratios by key of ``LearningFit.parameters``; that of a stuck kind where there is one and the log tells."""
    explained: float
    """Share of the variance of mean tokens, by group and outcome, that they explain on prompts held out."""


def fit_lengths(fitted: GroupLengths, held: GroupLengths) -> LengthRatios:
    """Ratios fitted to the groups of some prompts, judged by those of others."""
    free = range(STUCK + 1) if fitted.beliefs.shape[1] > len(fitted.scores) else range(STUCK)
    x, errors = _maximum(fitted, free)
    if Z95 * errors[STUCK] > UNTOLD:
        free = range(STUCK)
        x, errors = _maximum(fitted, free)
    ends = np.exp(np.clip([x, x - Z95 * errors, x + Z95 * errors], *RATIOS))
    ratios = {name: ends[:, place] for place, name in NAMES.items() if place in free}
    return LengthRatios(ratios, held.explained(x, float(fitted.tokens.sum() / fitted.samples.sum())))


def _maximum(groups: GroupLengths, free: range) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from scipy.optimize import minimize

    level = math.log(groups.tokens.sum() / groups.samples.sum())
    bounds = [(level - 5, level + 5)] + [RATIOS if place in free else (0.0, 0.0) for place in NAMES]

    def loss(x: NDArray[np.float64]) -> float:
        return -float(groups.by_prompt(x).sum())

    x = np.asarray(minimize(loss, np.array([level, 0.0, 0.0, 0.0, 0.0]), method="L-BFGS-B", bounds=bounds).x)
    return x, standard_errors(groups.by_prompt, x, list(free))
