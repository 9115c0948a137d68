"""Signals of responses under way, read off their tokens and what the engine says of these.

They have the units of the simulated ones (:mod:`rlsim.learning.signals`) where those are relative. ``confidence`` is
the standard score of the mean log-probability among all that came to the same mark. ``quality`` stands in for a head on
hidden states, which engines do not give out: a linear discriminant of four statistics of the log-probabilities, learnt
from the run's own rewards, in deviations from halfway between successes and failures; until it has seen enough of both
it is the confidence. ``entropy`` is in nats a token: minus the log-probability of the last tokens, which at temperature
1 estimates it without bias. ``repetition`` is 1 where the end of the response has repeated itself. ``teacher-overlap``
is the share of probability that a teacher has in common with the model, estimated in the same way.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlsim.core.errors import RlsimError
from rlsim.core.running_mean import RunningMean
from rlsim.core.streams import FloatArray
from rlsim.live.texts import PartialResponse

READ = ("quality", "confidence", "entropy", "repetition")
"""Signals that need the response and its log-probabilities alone."""
OVERLAP = "teacher-overlap"
LAST_TOKENS = 16
"""Over which entropy and overlap are means."""
END_TOKENS = 8
"""Last ones with a statistic of their own."""
LEAST_SEEN = 16
"""Successes, and failures, before a discriminant says anything."""
REPEATS = 3
REPEATED_TOKENS = 24
"""A response repeats itself when its last tokens are so many repeats of one text, and at least so many tokens."""
RIDGE = 1e-3
"""Of the variance of each statistic, added to it."""
FEATURES = 4


def repeats_itself(tokens: Sequence[int]) -> bool:
    """Whether the end is a text over and over."""
    ids = np.asarray(tokens)
    for period in range(1, len(ids) // REPEATS + 1):
        covered = max(REPEATS * period, REPEATED_TOKENS)
        if covered <= len(ids) and bool((ids[-covered + period :] == ids[-covered:-period]).all()):
            return True
    return False


def statistics(log_probs: Sequence[float]) -> FloatArray:
    """Mean, deviation, least, and mean of the last ones, shape (4,)."""
    values = np.asarray(log_probs)
    return np.array([values.mean(), values.std(), values.min(), values[-END_TOKENS:].mean()])


class Discriminant:
    """Fisher's linear discriminant of successes and failures, from sums."""

    def __init__(self) -> None:
        self._count = np.zeros(2)
        self._sum = np.zeros((2, FEATURES))
        self._squares = np.zeros((FEATURES, FEATURES))

    def add(self, features: FloatArray, success: bool) -> None:
        """Another response whose outcome is known."""
        self._count[int(success)] += 1
        self._sum[int(success)] += features
        self._squares += np.outer(features, features)

    def read(self, features: FloatArray) -> float | None:
        """In deviations from halfway between the two; None while too few are known, or nothing tells them apart."""
        if self._count.min() < LEAST_SEEN:
            return None
        means = self._sum / self._count[:, None]
        between = (means.T * self._count) @ means
        covariance = (self._squares - between) / (self._count.sum() - 2)
        covariance += np.diag(RIDGE * np.diag(covariance) + np.finfo(float).eps)
        weights = np.linalg.solve(covariance, means[1] - means[0])
        distance = float(weights @ (means[1] - means[0]))
        return float(weights @ (features - means.mean(axis=0))) / math.sqrt(distance) if distance > 0 else None


@dataclass(frozen=True, slots=True)
class Reading:
    """What was told at a mark."""

    signal: str
    tokens: int
    """The mark: of the turn."""
    value: float
    features: FloatArray
    """Statistics of the log-probabilities, shape (4,)."""


@dataclass(frozen=True, slots=True)
class SignalAuroc:
    """How well a signal told at a mark which responses would succeed."""

    signal: str
    tokens: int
    """The mark."""
    responses: int
    """That came to their own end."""
    auroc: float
    """Area under the ROC curve."""
    half_width: float
    """Of its 95 % interval (Hanley and McNeil 1982)."""


def auroc(failures: Sequence[float], successes: Sequence[float]) -> tuple[float, float]:
    """Area under the ROC curve of a reading, ties counting half, and half its 95 % interval; none may be empty."""
    from scipy.stats import mannwhitneyu

    lost, won = len(failures), len(successes)
    area = float(mannwhitneyu(successes, failures).statistic) / (lost * won)
    one, other = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (won - 1) * (one - area**2) + (lost - 1) * (other - area**2)
    return area, 1.96 * math.sqrt(max(0.0, variance) / (lost * won))


@dataclass(slots=True)
class Readings:
    """Those of one run, and how the responses came out that they were taken of."""

    known: list[tuple[Reading, bool]] = field(default_factory=list)
    """With whether the response succeeded; of those that came to their own end."""
    _open: defaultdict[int, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    _usual: defaultdict[int, RunningMean] = field(default_factory=lambda: defaultdict(RunningMean))
    """Mean log-probabilities by mark."""
    _heads: defaultdict[int, Discriminant] = field(default_factory=lambda: defaultdict(Discriminant))

    def read(self, signal: str, sample: int, mark: int, response: PartialResponse) -> float:
        """The value at a mark of a response so far; ``RlsimError`` where the engine tells no log-probabilities."""
        features = self._features(signal, response)
        return self._keep(sample, Reading(signal, mark, self._value(signal, mark, response, features), features))

    def overlap(self, sample: int, mark: int, response: PartialResponse, judged: Sequence[float]) -> float:
        """The mean of min(1, teacher / student) over the last tokens, from log-probabilities under the teacher.

        At temperature 1 an unbiased estimate of the sum over the vocabulary of the smaller of the two probabilities.
        """
        features, own = self._features(OVERLAP, response), np.asarray(response.log_probs)
        ratios = np.exp(np.minimum(0.0, np.asarray(judged) - own))
        return self._keep(sample, Reading(OVERLAP, mark, float(ratios[-LAST_TOKENS:].mean()), features))

    def _features(self, signal: str, response: PartialResponse) -> FloatArray:
        if len(response.log_probs) != len(response.places):
            message = f"{signal} of {len(response.places)} tokens, of which the engine scored {len(response.log_probs)}"
            raise RlsimError(message)
        return statistics(response.log_probs)

    def _keep(self, sample: int, reading: Reading) -> float:
        self._open[sample].append(reading)
        return reading.value

    def _value(self, signal: str, mark: int, response: PartialResponse, features: FloatArray) -> float:
        if signal == "repetition":
            return float(repeats_itself(response.tokens))
        if signal == "entropy":
            return -float(np.mean(response.log_probs[-LAST_TOKENS:]))
        confidence = self._confidence(mark, float(features[0]))
        if signal == "confidence":
            return confidence
        quality = self._heads[mark].read(features)
        return confidence if quality is None else quality

    def _confidence(self, mark: int, mean: float) -> float:
        usual = self._usual[mark]
        usual.add(mean)
        return (mean - usual.mean) / usual.deviation if usual.deviation else 0.0

    def came_out(self, sample: int, succeeded: bool | None) -> None:
        """How a response came out; None: it was cut, and nobody knows."""
        for reading in self._open.pop(sample, ()):
            if succeeded is not None:
                self._heads[reading.tokens].add(reading.features, succeeded)
                self.known.append((reading, succeeded))

    def aurocs(self) -> list[SignalAuroc]:
        """Of each signal and mark at which successes and failures are known."""
        by_place: defaultdict[tuple[str, int], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
        for reading, succeeded in self.known:
            by_place[reading.signal, reading.tokens][succeeded].append(reading.value)
        return [
            SignalAuroc(signal, tokens, len(lost) + len(won), *auroc(lost, won))
            for (signal, tokens), (lost, won) in sorted(by_place.items())
            if lost and won
        ]
