"""Outcomes of trajectories that begin alike: random draws that are coupled by their common prefix.

Whether a sample succeeds is decided by a uniform quantile. Here that is the end of a Brownian path that unfolds evenly
along the response: what has been written decides a part of it, what is still to be written the rest. A sample that
takes over the first ``s`` of another's response takes over that part of its path, so the normal scores of the two have
correlation ``s``, each alone has the odds of any sample, and given a prefix at which the path stands at b, a
sample succeeds with probability P(b + sqrt(1 - s) * Z <= z(p)), p its probability without a prefix. A stand-in: it has
the right ends (independent without a common prefix, the same with all of it in common) and nothing else to go by.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from rlsim.core.streams import PlacedStream
from rlsim.workload.draws import GroupDraws

Ancestors = tuple[tuple[int, int, float], ...]
"""(attempt, member, share of the response up to which it is that one's), shares ascending; its own path goes on."""
PLACES = 64
"""Of a path: shares are rounded to them."""
_STANDARD = NormalDist()
_EDGE = 1e-12


def beginning(ancestors: Ancestors, attempt: int, member: int, share: float) -> Ancestors:
    """Ancestors of a sample that takes over the first ``share`` of one with these ancestors."""
    inherited: list[tuple[int, int, float]] = []
    for of_attempt, of_member, until in (*ancestors, (attempt, member, 1.0)):
        inherited.append((of_attempt, of_member, min(until, share)))
        if until >= share:
            break
    return tuple(inherited)


def score(quantile: float) -> float:
    """Normal score of a quantile, finite at both ends."""
    return _STANDARD.inv_cdf(min(1 - _EDGE, max(_EDGE, quantile)))


class PrefixCoupling:
    """Outcome quantiles of samples that inherit a prefix; none depends on who inherits from its sample."""

    def __init__(self, seed: int, outcomes: GroupDraws) -> None:
        self._outcomes, self._steps = outcomes, PlacedStream(seed, "unfolding")

    def quantile(self, prompt: int, attempt: int, member: int, ancestors: Ancestors) -> float:
        """The sample's quantile; its own draw without ancestors."""
        if not ancestors:
            return self._outcomes.value(prompt, attempt, 0, member)
        total, begin = 0.0, 0
        for of_attempt, of_member, share in (*ancestors, (attempt, member, 1.0)):
            end = max(begin, round(share * PLACES))
            total += sum(self._path(prompt, of_attempt, of_member)[begin:end])
            begin = end
        return _STANDARD.cdf(total)

    def standing(self, prompt: int, attempt: int, member: int, share: float) -> float:
        """Where the path of a sample without ancestors stands after ``share`` of its response."""
        return sum(self._path(prompt, attempt, member)[: round(share * PLACES)])

    def _path(self, prompt: int, attempt: int, member: int) -> list[float]:
        """Increments of a path that ends at the sample's own score: a Brownian bridge."""
        free: list[float] = self._steps.at(prompt, attempt, member).standard_normal(PLACES).tolist()
        free = [step / math.sqrt(PLACES) for step in free]
        short = (score(self._outcomes.value(prompt, attempt, 0, member)) - sum(free)) / PLACES
        return [step + short for step in free]


def success_given(standing: float, share: float, success: float) -> float:
    """Probability of success of a sample that takes over a prefix; ``success`` is that of one without."""
    if share >= 1.0:
        return float(standing <= score(success))
    return _STANDARD.cdf((score(success) - standing) / math.sqrt(1 - share))
