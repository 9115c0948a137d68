"""The time of one phase of a step as a line over its work: a factor, and a constant where the log parts the two.

A fit gives what the log can tell. Steps with about the same work tell one number, so a factor alone is fitted and it is
said why. A constant that comes out below zero is at its bound, and the factor's interval then holds both fits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from calibration.fitting.robust_regression import solve
from calibration.logs.estimates import (
    LEAST_VARIATION,
    JointEstimate,
    LinearEstimate,
    LogEstimate,
    least_squares,
    undisturbed,
    variation_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST_FOR_TWO = 6
"""Steps from which a factor and a constant are fitted."""
VAGUE = 0.5
"""Half the interval over the factor from which the steps do not part it from a constant."""
SURPRISE = 1.75
"""Half 95 % intervals that a constant which was not expected must be above zero."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What is fitted: seconds of the fitted steps, and what the base scenario says of them."""

    name: str
    """Column of the log, for messages."""
    seconds: NDArray[np.float64]
    work: NDArray[np.float64]
    """What the base's costs make of each step, seconds."""
    count: NDArray[np.float64]
    """How often the constant comes in each step."""
    expects_constant: bool = True
    """Whether a constant has a key of its own; otherwise it is kept only when it is far above zero."""
    inseparable: str = ""
    """Why the log does not say the work of each step well enough to part the two; empty where it does."""


@dataclass(frozen=True, slots=True)
class PhaseFit:
    """``factor * work + constant * count``."""

    factor: LogEstimate
    constant: LogEstimate | None
    joint: JointEstimate | None
    alone: str
    """Why no constant was fitted; empty where one was."""

    def seconds(self, work: NDArray[np.float64], count: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predicted seconds."""
        return self.factor.value * work + (self.constant.value if self.constant else 0.0) * count


def without_disturbed(phase: Phase) -> tuple[Phase, int]:
    """The phase less its disturbed steps, and how many they are, by a line that these do not move."""
    design = np.stack([phase.work, phase.count], axis=1)
    rows = undisturbed(phase.seconds, design @ solve(design, np.maximum(phase.seconds, 1e-9)))
    if rows.sum() < 2:
        return phase, 0
    used = replace(phase, seconds=phase.seconds[rows], work=phase.work[rows], count=phase.count[rows])
    return used, int((~rows).sum())


def fit_phase(phase: Phase, keys: tuple[str, str]) -> PhaseFit:
    """The line, ``keys`` being the names of factor and constant."""
    source = f"{phase.name} over rebuilt batches"
    line = least_squares(phase.seconds, [phase.work])
    single = line.estimate(0, keys[0], source)
    why, pair = _parted(phase)
    if not phase.expects_constant:
        if why or pair is None or not surprises(pair.estimate(1, keys[1], source)):
            return PhaseFit(single, None, None, why or "not far above zero")
    elif why or pair is None or pair.coefficients[1] < 0:
        return _alone(phase, keys, line, pair, why)
    constant = pair.estimate(1, keys[1], source)
    constant = replace(constant, low=max(0.0, constant.low))
    return PhaseFit(pair.estimate(0, keys[0], source), constant, jointly(pair, phase, keys), "")


def _alone(
    phase: Phase, keys: tuple[str, str], line: LinearEstimate, pair: LinearEstimate | None, why: str
) -> PhaseFit:
    """The factor that takes all of the time: how much of it a constant has, which is at least zero, stays open.

    So the factor's interval reaches down to the one beside a constant; both together are as sure as the time is.
    """
    source = f"{phase.name} over rebuilt batches"
    single = line.estimate(0, keys[0], source)
    beside = pair.estimate(0, keys[0], source).low if pair else 0.0
    factor = replace(single, low=min(single.low, max(0.0, beside)))
    together = line.together([float(phase.work.mean())], f"{phase.name} at the mean work", source)
    joint = JointEstimate(keys, pair.correlation() if pair else -1.0, together)
    if why or pair is None:
        return PhaseFit(factor, None, joint, why)
    constant = pair.estimate(1, keys[1], source)
    zero = replace(constant, value=0.0, low=0.0, high=max(0.0, constant.high), bound="0")
    return PhaseFit(factor, zero, joint, "")


def surprises(constant: LogEstimate) -> bool:
    """Whether a constant is far above zero."""
    return constant.value > SURPRISE * (constant.value - constant.low)


def jointly(line: LinearEstimate, phase: Phase, keys: tuple[str, str], *others: float) -> JointEstimate:
    """The first two coefficients of a line, and all of it at the mean work; ``others`` are means of further columns."""
    weights = [float(phase.work.mean()), float(phase.count.mean()), *others]
    together = line.together(weights, f"{phase.name} at the mean work", phase.name)
    return JointEstimate(keys, line.correlation(), together)


def _parted(phase: Phase) -> tuple[str, LinearEstimate | None]:
    """Why the steps do not part factor and constant, empty where they do; and the fit of both."""
    count = len(phase.seconds)
    if phase.inseparable:
        return phase.inseparable, None
    if count < FEWEST_FOR_TWO:
        return f"{count} fitted steps are too few to part it from the factor", None
    pair, varies = least_squares(phase.seconds, [phase.work, phase.count]), variation_of(phase.work / phase.count)
    slope = pair.estimate(0, "", "")
    if varies < LEAST_VARIATION:
        return f"batches are too much alike to part it from the factor (their work varies by {varies:.1%})", pair
    if slope.low <= 0:
        return f"{phase.name} does not clearly grow with the work, so they are not parted", pair
    if slope.high - slope.low > 2 * VAGUE * slope.value:
        return "the steps hardly part it from the factor", pair
    return "", pair
