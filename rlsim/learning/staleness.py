"""How much of a sample's worth is left when the model has moved on: a tolerance curve per method.

    factor(lag) = 1                                                          up to the tolerance,
    factor(lag) = floor + (1 - floor) * exp(-(lag - tolerance) / collapse)   beyond it,

with the lag in optimizer updates between the weights that made a token and those that train on it. Flat, then collapse
is what M2PO and VCPO describe (systems list entries 51 and 42); the exponential is ours. A floor below 0 is a model
that unlearns. Most sources give one point, the largest lag that they found harmless: the rest of a curve is a stand-in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlsim.core.errors import unknown
from rlsim.core.streams import FloatArray


@dataclass(frozen=True, slots=True)
class Method:
    """A tolerance curve. Lags in optimizer updates."""

    tolerance_updates: float
    """Lag up to which nothing is lost."""
    collapse_updates: float
    """Scale of the fall beyond; above 0."""
    floor: float
    """Worth of a sample of endless lag; below 0 it does harm."""
    reuse: float = 0.7
    """Worth of a further pass over a batch, relative to the pass before; an estimate where not said otherwise."""
    ess_scaled: bool = False
    """Whether the step is scaled by the effective sample size."""
    source: str = "given"
    """Where the tolerance comes from, and what of the curve is a stand-in."""

    def factor(self, lags_updates: FloatArray) -> FloatArray:
        """Worth of samples of these lags, in (floor, 1]; the shape of the lags."""
        beyond = np.maximum(0.0, lags_updates - self.tolerance_updates)
        return self.floor + (1.0 - self.floor) * np.exp(-beyond / self.collapse_updates)


_STAND_IN = "the fall beyond is a stand-in"

METHODS: dict[str, Method] = {
    "none": Method(0.0, 1.0, 1.0, 1.0, source="no effect of staleness, nor of repeated passes"),
    "ppo": Method(
        8,
        8,
        -0.5,
        source="AReaL figure, naive PPO: 4 updates a step, unharmed at 1 version, not at 2; floor a stand-in",
    ),
    "grpo": Method(8, 8, -0.5, source="as ppo: the same clipped ratio; a stand-in"),
    "decoupled-ppo": Method(
        32, 64, 0.0, source="AReaL figure: 4 updates a step, within a point to 8 versions, lower and stable beyond"
    ),
    "truncated-is": Method(16, 32, 0.0, source="estimate: no source gives a lag"),
    "m2po": Method(256, 256, -0.5, source=f"systems list entry 51: on-policy quality at 256 updates; {_STAND_IN}"),
    "vcpo": Method(128, 128, -0.5, ess_scaled=True, source=f"systems list entry 42: stable at 128 steps; {_STAND_IN}"),
    "dlc": Method(32, 64, 0.0, source="estimate: systems list entry 60 bounds the ESS (0.5), not the lag"),
    "pnpo": Method(
        16, 16, -0.5, 1.0, source=f"systems list entry 23: 4 passes of 4 updates as good as fresh batches; {_STAND_IN}"
    ),
    "mu-grpo": Method(
        64, 64, -0.5, source="estimate: systems list entry 73 has 4 large stages, and no count of updates"
    ),
    "sfpo": Method(8, 8, 0.0, 0.9, source="estimate: systems list entry 146 repositions after inner updates"),
    "sao": Method(32, 32, -0.5, source="estimate: systems list entry 80 is stable for 1,000 steps, and gives no lag"),
    "adaptive-braking": Method(
        32, 32, -0.5, source=f"systems list entry 133: 32 updates, of image classifiers; {_STAND_IN}"
    ),
}
"""Tolerance curves by name."""


def method_named(name: str, path: str = "learning.staleness.method") -> Method:
    """The curve of that name; ``ParameterError`` at ``path`` for an unknown one."""
    if name not in METHODS:
        raise unknown(path, name, METHODS)
    return METHODS[name]
