"""Laws by the names and keys that a scenario uses.

In ``LENGTH_FIELDS`` and ``LATENCY_FIELDS`` a key is True if it must be there. Of a lognormal's
``median_tokens``, ``mean_tokens`` and ``sigma`` two are given. A ``mean_tokens`` is the mean after the cap,
as logs show it; a ``mean_seconds`` is the mean before the cap, which is a timeout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rlsim.core.checks import above, inside, number, whole, within
from rlsim.core.errors import ParameterError, unknown
from rlsim.workload.empirical import Empirical
from rlsim.workload.fitting import fit_gamma, fit_lognormal
from rlsim.workload.latency import (
    LONGEST_SECONDS,
    ConstantLatency,
    EmpiricalLatency,
    GammaLatency,
    LatencyDistribution,
    LognormalLatency,
    NormalLatency,
)
from rlsim.workload.lengths import Constant, LengthDistribution, Lognormal, Mixture, Pareto, Uniform

Fields = Mapping[str, object]

LENGTH_FIELDS: dict[str, dict[str, bool]] = {
    "constant": {"tokens": True, "cap_tokens": False},
    "lognormal": {"median_tokens": False, "mean_tokens": False, "sigma": False, "cap_tokens": True},
    "gamma": {"mean_tokens": True, "shape": True, "cap_tokens": True},
    "pareto": {
        "tail_index": True,
        "cap_tokens": True,
        "scale_tokens": False,
        "median_tokens": False,
        "sigma": False,
        "tail_share": False,
    },
    "uniform": {"low_tokens": True, "high_tokens": True, "cap_tokens": False},
    "mixture": {"weights": True, "laws": True},
    "empirical": {"values": False, "file": False, "column": False, "cap_tokens": False},
}

LATENCY_FIELDS: dict[str, dict[str, bool]] = {
    "constant": {"seconds": True},
    "exponential": {"mean_seconds": True, "cap_seconds": False},
    "lognormal": {"median_seconds": True, "sigma": True, "cap_seconds": False},
    "gamma": {"mean_seconds": True, "shape": True, "cap_seconds": False},
    "normal": {"mean_seconds": True, "deviation_seconds": True},
    "empirical": {"values": False, "file": False, "column": False},
}


def lengths_from_fields(kind: str, fields: Fields, path: str, *, directory: Path = Path()) -> LengthDistribution:
    """The length law ``kind`` with the keys ``fields``; ``path`` is where the user wrote them.

    Files are relative to ``directory``. ParameterError names the key path of what is wrong.
    """
    _check_keys(kind, fields, path, LENGTH_FIELDS)
    with inside(path):
        return _LENGTHS[kind](fields, directory)


def latency_from_fields(kind: str, fields: Fields, path: str, *, directory: Path = Path()) -> LatencyDistribution:
    """The latency law ``kind`` with the keys ``fields``, as `lengths_from_fields`."""
    _check_keys(kind, fields, path, LATENCY_FIELDS)
    with inside(path):
        return _LATENCIES[kind](fields, directory)


def _check_keys(kind: str, fields: Fields, path: str, kinds: Mapping[str, Mapping[str, bool]]) -> None:
    if kind not in kinds:
        raise unknown(f"{path}.law", kind, kinds)
    for key in fields:
        if key not in kinds[kind]:
            raise unknown(f"{path}.{key}", key, kinds[kind])
    for key, required in kinds[kind].items():
        if required and key not in fields:
            raise ParameterError(f"{path}.{key}", None, f"a value: law '{kind}' needs it")


def _real(fields: Fields, key: str) -> float:
    return number(key, fields[key], "a finite number")


def _optional(fields: Fields, key: str) -> float | None:
    return _real(fields, key) if key in fields else None


def _cap(fields: Fields) -> int:
    """The cap; 0, which stands for the largest value, where it is not given."""
    return whole("cap_tokens", fields["cap_tokens"]) if "cap_tokens" in fields else 0


def _constant(fields: Fields, directory: Path) -> Constant:
    return Constant(whole("tokens", fields["tokens"]), _cap(fields))


def _lognormal(fields: Fields, directory: Path) -> Lognormal:
    median, mean, sigma = (_optional(fields, key) for key in ("median_tokens", "mean_tokens", "sigma"))
    return fit_lognormal(median, mean, sigma, _cap(fields))


def _gamma(fields: Fields, directory: Path) -> LengthDistribution:
    return fit_gamma(_real(fields, "mean_tokens"), _real(fields, "shape"), _cap(fields))


def _pareto(fields: Fields, directory: Path) -> Pareto:
    index, cap = _real(fields, "tail_index"), _cap(fields)
    body = [key for key in ("median_tokens", "sigma", "tail_share") if key in fields]
    if "scale_tokens" in fields and not body:
        return Pareto(above("scale_tokens", fields["scale_tokens"]), index, cap)
    if "scale_tokens" in fields or len(body) < 3:
        written = ", ".join(key for key in fields if key not in ("tail_index", "cap_tokens")) or None
        raise ParameterError("law", written, "scale_tokens alone, or median_tokens, sigma and tail_share")
    median, sigma, share = (_real(fields, key) for key in body)
    return Pareto.spliced(median, sigma, share, index, cap)


def _uniform(fields: Fields, directory: Path) -> Uniform:
    low, high = (whole(key, fields[key]) for key in ("low_tokens", "high_tokens"))
    return Uniform(low, high, _cap(fields))


def _mixture(fields: Fields, directory: Path) -> Mixture:
    weights, laws = _sequence(fields, "weights"), _sequence(fields, "laws")
    parts = [_component(part, f"laws.{i}", directory) for i, part in enumerate(laws)]
    checked = [number(f"weights.{i}", weight, "a number above 0") for i, weight in enumerate(weights)]
    return Mixture(tuple(checked), tuple(parts))


def _component(part: object, path: str, directory: Path) -> LengthDistribution:
    if not isinstance(part, Mapping):
        return Constant(whole(path, part))
    fields = {str(key): value for key, value in part.items()}
    kind = fields.pop("law", None)
    if kind == "mixture":
        raise ParameterError(f"{path}.law", kind, "a law that is not itself a mixture")
    return lengths_from_fields(str(kind), fields, path, directory=directory)


def _sequence(fields: Fields, key: str) -> Sequence[object]:
    value = fields[key]
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ParameterError(key, value, "a list with at least one entry")
    return value


def _source(fields: Fields, directory: Path) -> tuple[Path | None, str | None]:
    """The file (None if the values are given) and its column."""
    if ("values" in fields) == ("file" in fields):
        raise ParameterError("values", sorted(fields), "either values or a file")
    for key in ("file", "column"):
        if not isinstance(fields.get(key, ""), str):
            raise ParameterError(key, fields[key], "text")
    column = str(fields["column"]) if "column" in fields else None
    return (directory / str(fields["file"]) if "file" in fields else None), column


def _empirical(fields: Fields, directory: Path) -> Empirical:
    file, column = _source(fields, directory)
    if file is None:
        return Empirical.from_values(_sequence(fields, "values"), _cap(fields))
    return Empirical.from_file(file, _cap(fields), column=column)


def _cap_seconds(fields: Fields) -> float:
    return _real(fields, "cap_seconds") if "cap_seconds" in fields else math.inf


def _constant_latency(fields: Fields, directory: Path) -> ConstantLatency:
    return ConstantLatency(_real(fields, "seconds"))


def _lognormal_latency(fields: Fields, directory: Path) -> LognormalLatency:
    return LognormalLatency(_real(fields, "median_seconds"), _real(fields, "sigma"), _cap_seconds(fields))


def _gamma_latency(fields: Fields, directory: Path) -> GammaLatency:
    shape = _real(fields, "shape") if "shape" in fields else 1.0
    return GammaLatency(_real(fields, "mean_seconds"), shape, _cap_seconds(fields))


def _normal_latency(fields: Fields, directory: Path) -> NormalLatency:
    return NormalLatency(_real(fields, "mean_seconds"), _real(fields, "deviation_seconds"))


def _empirical_latency(fields: Fields, directory: Path) -> EmpiricalLatency:
    file, column = _source(fields, directory)
    if file is not None:
        return EmpiricalLatency.from_file(file, column=column)
    values = enumerate(_sequence(fields, "values"))
    return EmpiricalLatency(tuple(within(f"values.{i}", v, 0.0, LONGEST_SECONDS) for i, v in values))


_LENGTHS: dict[str, Callable[[Fields, Path], LengthDistribution]] = {
    "constant": _constant,
    "lognormal": _lognormal,
    "gamma": _gamma,
    "pareto": _pareto,
    "uniform": _uniform,
    "mixture": _mixture,
    "empirical": _empirical,
}

_LATENCIES: dict[str, Callable[[Fields, Path], LatencyDistribution]] = {
    "constant": _constant_latency,
    "exponential": _gamma_latency,
    "lognormal": _lognormal_latency,
    "gamma": _gamma_latency,
    "normal": _normal_latency,
    "empirical": _empirical_latency,
}
