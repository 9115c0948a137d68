"""What stands behind calibrated costs: how they were measured, on what, and how far they are off where not fitted.

Every calibrated section of a profile (the engine step, the training step, a weight path) carries one
:class:`Evidence`. Nothing here needs an array library: listing profiles stays fast.

Where a cost came from, so that every prediction can say how far to trust it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from rlsim.core.errors import ParameterError, unknown
from rlsim.costs.fields import Fields

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

    median: float
    p95: float
    worst: float
    where: str
    """The point of the worst error."""
    points: int = 0

    def __str__(self) -> str:
        return f"median {self.median:.1%}, p95 {self.p95:.1%}, worst {self.worst:.1%} at {self.where}"

    @classmethod
    def from_fields(cls, given: Fields) -> HoldOutError:
        """Read the JSON object; faults name the key."""
        return cls(
            median=given.number("median"),
            p95=given.number("p95"),
            worst=given.number("worst"),
            where=given.text("where"),
            points=given.integer("points", least=0, default=0),
        )


@dataclass(frozen=True, slots=True)
class Sampled:
    """Summary of the raw samples of one kind."""

    fitted: int
    held_out: int
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Smallest and largest by quantity, named with its unit (``decodes``, ``context_tokens``, ``seconds``)."""

    @classmethod
    def from_fields(cls, given: Fields) -> Sampled:
        """Read the JSON object; faults name the key."""
        ranges = given.child("ranges") if "ranges" in given.tree else None
        return cls(
            fitted=given.integer("fitted", least=0),
            held_out=given.integer("held_out", least=0),
            ranges={name: _range(ranges, name) for name in ranges.tree} if ranges else {},
        )


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
    noise_floor: Mapping[str, float] = field(default_factory=dict)
    """Median relative spread of repeats of one point, by kind; empty where repeats are identical (tables)."""
    command: str = ""
    """The command that makes it again."""
    hardware: Mapping[str, str] = field(default_factory=dict)
    """What it was measured on (``gpu``, ``cpu``, ``memory`` ...), or what the tables are of."""
    driver: str = ""
    """GPU driver and CUDA; empty without a GPU, and where the tables do not say."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Versions by package."""

    @classmethod
    def from_fields(cls, given: Fields) -> Evidence:
        """Read the JSON object; faults name the key."""
        return cls(
            provenance=_provenance(given.child("provenance")),
            hold_out=HoldOutError.from_fields(given.child("hold_out")),
            hold_out_by_kind={k: HoldOutError.from_fields(f) for k, f in given.children("hold_out_by_kind").items()},
            sampled={kind: Sampled.from_fields(f) for kind, f in given.children("sampled").items()},
            method=given.texts("method"),
            noise_floor=given.numbers_by_name("noise_floor"),
            command=given.text("command", default=""),
            hardware=given.texts("hardware"),
            driver=given.text("driver", default=""),
            libraries=given.texts("libraries"),
        )


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One fitted or measured number with its confidence interval, where there is one."""

    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    """Confidence of the interval."""
    samples: int = 1

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise ParameterError("low", self.low, "both ends of an interval, or neither")
        if self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            raise ParameterError("value", self.value, f"a number within its interval [{self.low}, {self.high}]")

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.value:.4g}{interval} {self.unit}"

    @classmethod
    def from_fields(cls, given: Fields) -> Coefficient:
        """Read the JSON object; faults name the key."""
        return cls(
            value=given.number("value"),
            unit=given.text("unit"),
            low=given.optional_number("low"),
            high=given.optional_number("high"),
            level=given.number("level", default=0.95),
            samples=given.integer("samples", least=0, default=1),
        )


def _range(ranges: Fields, name: str) -> tuple[float, float]:
    ends = ranges.numbers(name)
    if len(ends) != 2 or ends[0] > ends[1]:
        raise ranges.fault(name, "the smallest and the largest value")
    return ends[0], ends[1]


def _provenance(given: Fields) -> Provenance:
    if given.text("kind") not in KINDS:
        raise given.fault("kind", ", ".join(KINDS))
    return Provenance(
        kind=cast(Kind, given.text("kind")),
        source=given.text("source"),
        date=given.text("date", default=""),
        licence=given.text("licence", default=""),
    )
