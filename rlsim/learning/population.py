"""Success over a population of prompts: its mean and its reward variance by mean gain, and that gain by updates.

Integrals over the law of prompts are sums over nodes, tabulated once along uniform training. Where gains reach all
prompts, these are Gauss-Hermite nodes that move alike; where not (``rlsim.learning.gains``, ``locality``), even ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from rlsim.core.streams import FloatArray
from rlsim.learning.gains import LARGEST_SHIFT, Gains
from rlsim.learning.locality import expected_worth, uniform_training
from rlsim.learning.model import BatchEffect, Domain, LengthCoupling, Population, ProgressCurve, RewardValues

NODES = 96
EVEN_SCORES = np.linspace(-6.0, 6.0, 241)
"""Nodes of a population that moves apart, for the gap between those that learn and those that do not yet."""
LOSSES_SKIPPED = 10
"""Of the tabulated shifts below 0, one in so many is enough for such a population."""
LEAST_GAIN = 0.005
"""Logits between two of its states that are tabulated."""
_SCORES = np.linspace(-9.0, 9.0, 3601)
_LEAST = 1e-12


@lru_cache(maxsize=1)
def _nodes() -> tuple[FloatArray, FloatArray]:
    """Gauss-Hermite nodes and weights of the standard normal law."""
    scores, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return scores, weights / weights.sum()


def _even_nodes() -> tuple[FloatArray, FloatArray]:
    weights = np.exp(-(EVEN_SCORES**2) / 2)
    return EVEN_SCORES, weights / weights.sum()


def sigmoid(logits: FloatArray) -> FloatArray:
    """1 / (1 + exp(-logits)), without overflow."""
    from scipy.special import expit

    return np.asarray(expit(logits))


def logits_of(population: Population) -> Callable[[float], float]:
    """From a prompt's normal score to its logit, but for what is common to all prompts."""
    if population.law == "logit-normal":
        spread = population.spread
        return lambda score: spread * score
    table = _beta_logits(population, _SCORES)
    step, last = float(_SCORES[1] - _SCORES[0]), len(_SCORES) - 2
    values = table.tolist()

    def looked_up(score: float) -> float:
        place = (score - _SCORES[0]) / step
        index = min(max(int(place), 0), last)
        return float(values[index] + (place - index) * (values[index + 1] - values[index]))

    return looked_up


def logits_at(population: Population, scores: FloatArray) -> FloatArray:
    """``logits_of`` for many scores: the shape of the scores."""
    if population.law == "logit-normal":
        return population.spread * scores
    return np.asarray(np.interp(scores, _SCORES, _beta_logits(population, _SCORES)))


def _beta_logits(population: Population, scores: FloatArray) -> FloatArray:
    from scipy.special import betaincinv, logit, ndtr

    total, mean = population.concentration, population.mean_success
    success = np.clip(betaincinv(total * mean, total * (1 - mean), ndtr(scores)), _LEAST, 1 - _LEAST)
    return np.asarray(logit(success))


class PopulationCurve:
    """Mean success and reward variance of uniform training at any skill, the mean gain, and the skill by updates."""

    def __init__(
        self,
        population: Population,
        curve: ProgressCurve,
        reward: RewardValues,
        effect: BatchEffect,
        gains: Gains,
        group_size: int,
    ) -> None:
        together = effect.transfer == 1.0 and effect.gains == "alike"
        scores, weights = _nodes() if together else _even_nodes()
        domains = tuple(population.domains.values()) or (Domain(share=1.0),)
        shares = np.array([domain.share for domain in domains]) / sum(domain.share for domain in domains)
        self.scores = np.tile(scores, len(domains))
        self.weights = np.outer(shares, weights).ravel()
        offsets = np.repeat([domain.offset for domain in domains], len(scores))
        self._length_ratios = np.repeat([domain.length_ratio for domain in domains], len(scores))
        self.logits = logits_at(population, self.scores) + offsets
        self.level = self._level(population.mean_success)
        """Added to every logit so that the untrained mean is the population's."""
        self.logits += self.level
        self._gains, states = gains.shifts, gains.all_moved(self.logits[None, :], gains.shifts[:, None])
        if effect.transfer < 1.0:
            self._gains, states = self._apart(states, effect, group_size, curve.asymptote)
        success = sigmoid(states)
        credit, failure = reward.partial_credit, 1 - success
        mean, square = success + failure * credit / 2, success + failure * credit**2 / 3
        self._success = success @ self.weights
        self._variance = (square - mean**2) @ self.weights
        self._invert(population, curve)

    def _level(self, mean_success: float) -> float:
        from scipy.optimize import brentq

        def excess(level: float) -> float:
            return float(self.weights @ sigmoid(self.logits + level)) - mean_success

        return float(brentq(excess, -LARGEST_SHIFT * 2, LARGEST_SHIFT * 2, xtol=1e-12))

    def _apart(
        self, alike: FloatArray, effect: BatchEffect, group_size: int, asymptote: float
    ) -> tuple[FloatArray, FloatArray]:
        """Mean gains and the logits of every node at each, up to the asymptote; below no gain all move alike."""
        table = expected_worth(group_size, effect.information_exponent, effect.baseline == "value")
        course = uniform_training(
            self.logits, self.weights, effect.transfer, lambda logits: np.asarray(np.interp(logits, *table))
        )
        lost = np.flatnonzero(self._gains < 0)[::LOSSES_SKIPPED]
        gains, states = self._gains[lost].tolist(), list(alike[lost])
        for gain, logits in course:
            done = gain > LARGEST_SHIFT or float(self.weights @ sigmoid(logits)) > asymptote
            if done or gain - gains[-1] > LEAST_GAIN:
                gains.append(gain)
                states.append(logits)
            if done:
                break
        return np.array(gains), np.array(states)

    def _invert(self, population: Population, curve: ProgressCurve) -> None:
        start, self._half, self._steepness = population.mean_success, curve.half_updates, curve.steepness
        ways = np.linspace(0.0, 1.0, 2049)
        below = self._success < 1 - 1e-9
        rises = np.concatenate([[True], np.diff(self._success[below]) > 0])
        targets = start + (curve.asymptote - start) * ways
        self._skills: list[float] = np.interp(targets, self._success[below][rises], self._gains[below][rises]).tolist()
        self._skills[0] = 0.0
        self._slope = self._skills[1024] / self._half

    def skill(self, updates: float) -> float:
        """Mean logits gained after so many reference updates; below 0, a line of the slope of the first half."""
        if updates <= 0:
            return float(updates * self._slope)
        place = 2048 / (1 + math.exp(self._steepness * math.log(self._half / updates)))
        index = min(int(place), 2047)
        low, high = self._skills[index], self._skills[index + 1]
        return float(low + (place - index) * (high - low))

    def success(self, skill: float) -> float:
        """Mean success of the population after uniform training of this mean gain."""
        return float(np.interp(skill, self._gains, self._success))

    def success_shifted(self, shift: float) -> float:
        """Mean success of the untrained population if all its logits were higher by so much."""
        return float(self.weights @ sigmoid(self.logits + shift))

    def length(self, lengths: LengthCoupling) -> float:
        """Mean length over the untrained population; 1 is a success on an average prompt of a kind of ratio 1."""
        success = sigmoid(self.logits)
        of_failure, of_success = (np.exp(-ease * self.scores) for ease in lengths.eases)
        mean_lengths = success * of_success + lengths.failure_ratio * (1 - success) * of_failure
        return float((self._length_ratios * mean_lengths) @ self.weights)

    def reward_variance(self, skill: float) -> float:
        """Mean over prompts of the variance of a sample's reward then, without its noise."""
        return float(np.interp(skill, self._gains, self._variance))
