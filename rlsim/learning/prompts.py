"""The difficulty of every prompt at every version: what persists, and a slow drift of its own.

A prompt's score is standard normal at every version,

    score = sqrt(persistence) * z_prompt + sqrt(1 - persistence) * drift(version),

where the drift passes through independent normals every ``drift_versions`` versions, as cos * left + sin * right, so
that its variance is 1 throughout. Drift never changes the law of the population, only who is hard. Ours, an estimate.
"""

from __future__ import annotations

import math

import numpy as np

from rlsim.core.streams import FloatArray, IndexedNormals, IndexedUniforms
from rlsim.learning.model import Population
from rlsim.learning.population import PopulationCurve, logits_at, logits_of


class Prompts:
    """Scores and untrained logits by prompt and version; a function of the seed and these alone."""

    def __init__(self, population: Population, curve: PopulationCurve, seed: int, dataset_prompts: int) -> None:
        self._population, self._prompts = population, dataset_prompts
        self._logit, self._level = logits_of(population), curve.level
        self._kept, self._moved = math.sqrt(population.persistence), math.sqrt(1 - population.persistence)
        self._own = IndexedNormals(seed, "prompt success")
        self._drift = IndexedNormals(seed, "prompt success drift")
        self._kinds = IndexedUniforms(seed, "prompt domain")
        self._domains = tuple(population.domains.values())
        total = sum(domain.share for domain in self._domains)
        self._bounds = np.cumsum([domain.share / total for domain in self._domains])
        self._offsets = np.array([domain.offset for domain in self._domains] or [0.0])

    def score(self, prompt: int, version: int) -> float:
        """Ease of the prompt among all, standard normal."""
        own = self._own[prompt]
        if self._moved == 0.0:
            return own
        knot, left, right = self._knots(version)
        first = knot * self._prompts + prompt
        drift = left * self._drift[first] + right * self._drift[first + self._prompts]
        return self._kept * own + self._moved * drift

    def _knots(self, version: int) -> tuple[int, float, float]:
        place = version / self._population.drift_versions
        angle = (place - int(place)) * math.pi / 2
        return int(place), math.cos(angle), math.sin(angle)

    def logit(self, prompt: int, score: float) -> float:
        """Logit of success without any training, of a prompt that has this score."""
        offset = 0.0 if not self._domains else float(self._offsets[self.domain(prompt)])
        return self._logit(score) + self._level + offset

    def length_ratio(self, prompt: int) -> float:
        """Length of the responses of its domain over that of others."""
        return self._domains[self.domain(prompt)].length_ratio if self._domains else 1.0

    def domain(self, prompt: int) -> int:
        """Place of its domain in the population's; 0 without domains."""
        if not self._domains:
            return 0
        return min(int(np.searchsorted(self._bounds, self._kinds[prompt], "right")), len(self._bounds) - 1)

    def all_logits(self, version: int) -> FloatArray:
        """``logit`` of every prompt of the data set: shape (prompts,)."""
        count = self._prompts
        scores = self._own.take(0, count)
        if self._moved:
            knot, left, right = self._knots(version)
            drift = left * self._drift.take(knot * count, count) + right * self._drift.take((knot + 1) * count, count)
            scores = self._kept * scores + self._moved * drift
        kinds = np.zeros(count, dtype=int)
        if self._domains:
            indices = np.searchsorted(self._bounds, self._kinds.take(0, count), "right")
            kinds = np.minimum(indices, len(self._bounds) - 1)
        return np.asarray(logits_at(self._population, scores) + self._level + self._offsets[kinds])
