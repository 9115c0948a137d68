"""What a gain leaves with the prompts that were trained, and how a population moves apart by it.

Of a mean gain of d logits all prompts get ``transfer * d``; the rest, N (1 - transfer) d over N prompts, is dealt to
the groups of the batch by what they taught, n I^a for n samples of mean squared advantage I and the exponent a of
information. A group whose rewards agree keeps nothing for itself, and with a = 0 rewards do not matter here either. A
prompt of logit x then moves, under uniform training, on average by

    dx / d(mean gain) = transfer + (1 - transfer) * T(p(x)) / (mean of T over the prompts),    T(p) = E[I^a],

which is solved here, so that the curve of uniform training is met whatever the transfer. Ours, an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from rlsim.core.streams import FloatArray
from rlsim.learning.information import TrainedSample, squares_by_group

LARGEST_MOVE = 0.1
"""Logits by which a prompt moves in a step of the solution."""
LARGEST_STEP = 0.04
"""Logits of mean gain of a step."""
LARGEST_LOGIT = 40
"""Prompts beyond teach as those there: nothing, but with an exponent of 0."""


def taught_by_prompt(
    batch: Sequence[TrainedSample], exponent: float, expected: Callable[[int], float] | None, noise: float
) -> dict[int, float]:
    """n I^a of each prompt's groups; ``expected`` is the reward that a value model expects, None: the group's mean."""
    taught: dict[int, float] = {}
    for group in squares_by_group(batch, expected, noise):
        worth = group.samples * float((max(0.0, group.squares) / group.samples) ** exponent)
        taught[group.prompt] = taught.get(group.prompt, 0.0) + worth
    return taught


@lru_cache(maxsize=8)
def expected_worth(samples: int, exponent: float, value_baseline: bool) -> tuple[FloatArray, FloatArray]:
    """Logits in order, and T at each: the mean of I^a of groups of so many samples, with rewards of 0 and 1."""
    from scipy.special import expit
    from scipy.stats import binom

    logits = np.linspace(-LARGEST_LOGIT, LARGEST_LOGIT, 8 * LARGEST_LOGIT * 2 + 1)
    success, worth = expit(logits), np.zeros_like(logits)
    for won in range(samples + 1):
        about = success if value_baseline else np.full_like(success, won / samples)
        squares = (won * (1 - about) ** 2 + (samples - won) * about**2) / samples
        worth += binom.pmf(won, samples, success) * squares**exponent
    return logits, worth


def uniform_training(
    logits: FloatArray, weights: FloatArray, transfer: float, worth: Callable[[FloatArray], FloatArray]
) -> Iterator[tuple[float, FloatArray]]:
    """Mean gain and logits along uniform training, without end: midpoint steps, from no gain on."""

    def rates(at: FloatArray) -> FloatArray:
        taught = worth(at)
        return transfer + (1 - transfer) * taught / (weights @ taught)

    gain = 0.0
    while True:
        yield gain, logits
        before = rates(logits)
        step = min(LARGEST_STEP, LARGEST_MOVE / float(before.max()))
        logits = logits + step * rates(logits + step / 2 * before)
        gain += step
