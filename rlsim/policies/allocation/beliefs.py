"""What past rewards let one believe of a prompt's success: a Beta posterior that forgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlsim.core.group_laws import useful_group_expected
from rlsim.policies.allocation.outcomes import solved
from rlsim.policies.hashed import gamma

PRIOR = 1.0
"""Successes and failures of a prompt that was never sampled: a uniform law."""


@dataclass(frozen=True, slots=True)
class Belief:
    """A Beta law of the success probability: 1 + successes, 1 + failures, both remembered in part."""

    successes: float = PRIOR
    failures: float = PRIOR

    @property
    def mean(self) -> float:
        """Expected success probability."""
        return self.successes / (self.successes + self.failures)

    @property
    def variance(self) -> float:
        """Of the success probability."""
        total = self.successes + self.failures
        return self.successes * self.failures / (total**2 * (total + 1))

    def useful(self, samples: int) -> float:
        """Expected probability that a group of this size has two rewards."""
        return useful_group_expected(self.successes, self.failures, samples)

    def told(self, rewards: Sequence[float]) -> Belief:
        """With further samples."""
        won = sum(solved(reward) for reward in rewards)
        return Belief(self.successes + won, self.failures + len(rewards) - won)

    def faded(self, kept: float) -> Belief:
        """With this share of what was seen."""
        return Belief(PRIOR + kept * (self.successes - PRIOR), PRIOR + kept * (self.failures - PRIOR))

    def drawn(self, *key: int | str) -> float:
        """A success probability from it, by hash."""
        won = gamma(self.successes, *key, "successes")
        return won / (won + gamma(self.failures, *key, "failures"))


class Beliefs:
    """By prompt: a visit keeps ``kept_per_visit`` of what was seen before, a weights version ``kept_per_version``."""

    def __init__(self, kept_per_visit: float, kept_per_version: float) -> None:
        self._visit, self._version = kept_per_visit, kept_per_version
        self._known: dict[int, tuple[Belief, int]] = {}

    def of(self, prompt: int, version: int) -> Belief:
        """At a version; that of a new prompt is even."""
        belief, seen = self._known.get(prompt, (Belief(), version))
        return belief.faded(self._version ** (version - seen))

    def tell(self, prompt: int, version: int, rewards: Sequence[float]) -> None:
        """How a group came out."""
        self._known[prompt] = (self.of(prompt, version).faded(self._visit).told(rewards), version)
