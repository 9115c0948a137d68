"""What stands behind calibrated costs: how they were measured, on what, and how far they are off where not fitted.

Every calibrated section of a profile (the engine step, the training step, a weight path) carries one
:class:`Evidence`. Nothing here needs an array library: listing profiles stays fast.

Where a cost came from, so that every prediction can say how far to trust it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from rlsim.core.errors import ParameterError, unknown
from rlsim.costs.fields import Count, Number, Range

Kind = Literal["measured", "silicon-table", "fitted", "given", "estimate"]
"""``measured`` on the hardware at hand, ``silicon-table`` composed from measured kernels, ``fitted`` to the
logs of a run, ``given`` by the user, ``estimate`` from data-sheet facts."""

KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Provenance:
    """The source of a set of coefficients."""

    kind: Kind
    source: str
    date: str = ""
    """ISO date of the measurement or fit; empty when it does not apply."""
    licence: str = ""
    """Licence and attribution of the underlying data; empty when it is the user's own."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("provenance.kind", self.kind, KINDS)

    @property
    def is_estimate(self) -> bool:
        """True when no measurement stands behind the numbers: output must say so."""
        return self.kind == "estimate"

    def __str__(self) -> str:
        return ", ".join(part for part in (f"{self.kind}: {self.source}", self.date) if part)


@dataclass(frozen=True, slots=True)
class HoldOutError:
    """Absolute relative errors of a fit on points it was not fitted to."""

    median: Number
    p95: Number
    worst: Number
    where: str
    """The point of the worst error."""
    points: Count = 0

    def __str__(self) -> str:
        return f"median {self.median:.1%}, p95 {self.p95:.1%}, worst {self.worst:.1%} at {self.where}"


@dataclass(frozen=True, slots=True)
class Sampled:
    """Summary of the raw samples of one kind."""

    fitted: Count
    held_out: Count
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Smallest and largest by quantity, named with its unit (``decodes``, ``context_tokens``, ``seconds``)."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """How coefficients were measured and how well they hold."""

    provenance: Provenance
    """Kind, source, date and licence."""
    hold_out: HoldOutError
    """Over all kinds together."""
    hold_out_by_kind: Mapping[str, HoldOutError] = field(default_factory=dict)
    """Of an engine step ``decode``, ``prefill``, ``mixed``; of a training step its phases."""
    sampled: Mapping[str, Sampled] = field(default_factory=dict)
    """By the same kinds."""
    method: Mapping[str, str] = field(default_factory=dict)
    """How each kind was measured, one sentence."""
    noise_floor: Mapping[str, Number] = field(default_factory=dict)
    """Median relative spread of repeats of one point, by kind; empty where repeats are identical (tables)."""
    command: str = ""
    """The command that makes it again."""
    hardware: Mapping[str, str] = field(default_factory=dict)
    """What it was measured on (``gpu``, ``cpu``, ``memory`` ...), or what the tables are of."""
    driver: str = ""
    """GPU driver and CUDA; empty without a GPU, and where the tables do not say."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Versions by package."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One fitted or measured number with its confidence interval, where there is one."""

    value: Number
    unit: str
    low: Number | None = None
    high: Number | None = None
    level: Number = 0.95
    """Confidence of the interval."""
    samples: Count = 1

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise ParameterError("low", self.low, "both ends of an interval, or neither")
        if self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            raise ParameterError("value", self.value, f"a number within its interval [{self.low}, {self.high}]")

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.value:.4g}{interval} {self.unit}"
