"""Policies ranked live and simulated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from rlsim.studies.parity.errors import ArmParity

CLEAR = 0.03
"""Relative difference of two simulated step times below which no order is claimed."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Step times in order, live and simulated."""

    live: tuple[str, ...]
    """Fastest first."""
    simulated: tuple[str, ...]
    threshold: float
    """Relative difference of simulated step times from which a pair counts: the noise, at least 3 %."""
    noise: float | None
    """The largest of all policies' live-to-live noise; None with one live run each."""
    pairs: int
    """That count."""
    concordant: int
    """Of these, in the same order live."""
    tau: float | None
    """Kendall's over the pairs that count; None where none does."""
    tau_of_all: float | None
    """Kendall's tau-b over all pairs; None where all step times of either kind are equal."""

    @property
    def same_winner(self) -> bool:
        """Whether the fastest policy is the same."""
        return self.live[0] == self.simulated[0]


def ranking(arms: Sequence[ArmParity]) -> Ranking:
    """Rank at least two policies by their step times."""
    from scipy.stats import kendalltau

    live, simulated = [arm.step.live for arm in arms], [arm.step.predicted for arm in arms]
    noises = [noise for arm in arms if (noise := arm.step.noise) is not None]
    threshold = max([CLEAR, *noises])
    counted = [
        (live[a] - live[b]) * (simulated[a] - simulated[b])
        for a, b in combinations(range(len(arms)), 2)
        if _apart(simulated[a], simulated[b]) > threshold
    ]
    tau_b = float(kendalltau(live, simulated).statistic)
    concordant, discordant = sum(product > 0 for product in counted), sum(product < 0 for product in counted)
    return Ranking(
        live=_ranked(arms, live),
        simulated=_ranked(arms, simulated),
        threshold=threshold,
        noise=max(noises, default=None),
        pairs=len(counted),
        concordant=concordant,
        tau=(concordant - discordant) / len(counted) if counted else None,
        tau_of_all=None if math.isnan(tau_b) else tau_b,
    )


def _apart(a: float, b: float) -> float:
    return max(a, b) / min(a, b) - 1


def _ranked(arms: Sequence[ArmParity], seconds: Sequence[float]) -> tuple[str, ...]:
    return tuple(name for _, name in sorted(zip(seconds, (arm.name for arm in arms), strict=True)))
