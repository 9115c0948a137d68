"""The sections of a profile: the engine step, the training step, the paths of the weights, each with its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rlsim.core.errors import ParameterError
from rlsim.costs.evidence import Coefficient, Evidence
from rlsim.costs.fields import Number, Numbers, Whole
from rlsim.costs.step_model import StepTimeModel

POINT_COLUMNS = ("decodes", "kv_tokens", "chunks", "prefill_tokens", "pairs", "seconds")
"""Columns of held-out points: the arguments of :meth:`StepTimeModel.mixed_seconds`, then the measured seconds."""

COEFFICIENTS = ("dense_seconds", "sequence_seconds", "kv_seconds_per_token", "prefill_seconds", "pair_seconds")
"""The fitted numbers of a law; each but the last has one value a knot."""


@dataclass(frozen=True, slots=True)
class StepModelIntervals:
    """Confidence intervals of a law's coefficients, in the law's units and at its knots."""

    level: Number
    method: str
    """How they were found (``bootstrap over the samples, 200 times``)."""
    low: Mapping[str, Numbers]
    """By coefficient (:data:`COEFFICIENTS`), one value a knot."""
    high: Mapping[str, Numbers]

    def check(self, law: StepTimeModel) -> None:
        """Raise ``ParameterError`` unless every interval has one low and one high a knot of ``law``."""
        for name in sorted({*self.low, *self.high}):
            values = getattr(law, name, None) if name in COEFFICIENTS else None
            if values is None:
                raise ParameterError("intervals", name, f"coefficients of the law: {', '.join(COEFFICIENTS)}")
            expected = len(values) if isinstance(values, tuple) else 1
            sizes = (len(self.low.get(name, ())), len(self.high.get(name, ())))
            if sizes != (expected, expected):
                raise ParameterError(f"intervals.{name}", sizes, f"{expected} values in low and in high")


@dataclass(frozen=True, slots=True)
class StepFit:
    """A law of the engine step as it was fitted, without any framework overhead added afterwards."""

    law: StepTimeModel
    evidence: Evidence
    intervals: StepModelIntervals | None = None
    """``None`` where there is no noise to infer them from (tables)."""
    held_out_points: Mapping[str, Numbers] = field(default_factory=dict)
    """Points that were not fitted, by column (:data:`POINT_COLUMNS`): all of them, or an even choice."""

    def __post_init__(self) -> None:
        if (self.law.scale, self.law.offset_seconds) != (1.0, 0.0):
            overheads = f"scale {self.law.scale}, offset {self.law.offset_seconds} s"
            raise ParameterError("step.law", overheads, "a law as fitted: overheads are knobs of the whole profile")
        if self.intervals is not None:
            self.intervals.check(self.law)
        lengths = {name: len(values) for name, values in self.held_out_points.items()}
        if self.held_out_points and (set(lengths) != set(POINT_COLUMNS) or len(set(lengths.values())) > 1):
            raise ParameterError("step.held_out_points", lengths, f"equally long {', '.join(POINT_COLUMNS)}")

    def as_dict(self) -> dict[str, Any]:
        """The JSON object."""
        law = self.law.as_dict()
        del law["scale"], law["offset_seconds"]
        return {
            "law": law,
            "intervals": None if self.intervals is None else asdict(self.intervals),
            "evidence": asdict(self.evidence),
            "held_out_points": dict(self.held_out_points),
        }


@dataclass(frozen=True, slots=True)
class TrainingFit:
    """Coefficients of the training step, by names that end in what they are (``forward_seconds_per_token``)."""

    coefficients: Mapping[str, Coefficient]
    evidence: Evidence
    parallel: Mapping[str, Whole] = field(default_factory=dict)
    """Sizes of the groups it was measured with (``data_parallel``, ``tensor_parallel`` ...)."""


@dataclass(frozen=True, slots=True)
class TransportPath:
    """Weights over one path: ``fixed_seconds`` + bytes / ``bytes_per_second`` + tensors * ``per_tensor_seconds``."""

    fixed_seconds: Coefficient
    bytes_per_second: Coefficient
    ranks: Whole
    """Processes that take part, the sender included."""
    evidence: Evidence
    per_tensor_seconds: Coefficient | None = None
    """``None``: not told apart from the fixed time."""


ENGINE_TIMES = (
    "startup_seconds",
    "sleep_seconds",
    "wake_seconds",
    "weight_update_seconds",
    "preemption_seconds",
    "prefix_hit_seconds",
)
"""Times of an engine besides its steps: a start; to sleep and to wake (level 1); weights from a path that is there
already; what one preemption and one request with its prompt cached cost besides the steps that they add."""
