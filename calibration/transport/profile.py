"""``rlsim calibrate transport``: time the paths of weights on this machine; the transport section of a profile.

The law is latency and bandwidth (alpha-beta; Hockney 1994) with a term a tensor, as the sync cost of a scenario has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calibration.fitting.robust_regression import LinearFit, fit_linear, hold_out
from calibration.measure import host as hardware
from calibration.measure.campaign import RepeatedCampaign, TimeBudget
from calibration.measure.host import require
from calibration.measure.journal import MeasurementJournal
from calibration.measure.measurements import Timing, halves, noise_floor, slowdown, upward_bias
from calibration.profiles.file import Subject, journal_file, kept_beside, merged
from calibration.transport.paths import PATHS, WeightPayload, open_path, transport_name
from rlsim.core.errors import ParameterError, unknown
from rlsim.costs.evidence import Coefficient, Evidence, HoldOutError, Provenance, Sampled
from rlsim.costs.profile import Profile
from rlsim.costs.sections import TransportPath

if TYPE_CHECKING:
    from numpy.typing import NDArray

TIGHT = 0.02
LEAST_BYTES = 4 << 20
"""Least bytes of the largest parcel: below it only latency is seen."""
FASTEST = 1e13
"""Bytes/s that no path reaches: the end of an interval that has none."""
TINY_BYTES = 16 << 10
MANY = 16
"""Tensors of a parcel that is sent piece by piece."""
METHODS = {
    "shared-memory": "copied into a shared segment and out of it in another process, a message a tensor",
    "filesystem": "a file a tensor, written, flushed to the device and read by another process",
    "filesystem-uncached": "a file a tensor, written, flushed, dropped from the page cache and read by another process",
    "gloo-broadcast": "torch.distributed broadcast between two processes over gloo on loopback",
    "nccl-broadcast": "torch.distributed broadcast between two GPUs of this machine over NCCL",
}


@dataclass(frozen=True, slots=True)
class TransportRequest:
    """What is to be calibrated, and for how long."""

    out: Path
    budget: TimeBudget
    most_bytes: int
    paths: tuple[str, ...]
    device: str = "cpu"
    """``cuda``: the broadcast is between two GPUs."""
    folder: Path | None = None
    """Where files are written; ``None``: beside the profile."""
    command: str = ""


@dataclass(frozen=True, slots=True)
class PayloadDesign:
    """The parcels to fit, and those to judge by."""

    fitted: tuple[WeightPayload, ...]
    held_out: tuple[WeightPayload, ...]

    @property
    def all(self) -> tuple[WeightPayload, ...]:
        """Both."""
        return self.fitted + self.held_out


def payloads(most_bytes: int) -> PayloadDesign:
    """Sizes from ``most_bytes`` down by halves to a 32nd, in one tensor and in many; every third is held out.

    Smaller ones stay in caches, where weights never are; a single tiny one shows the latency. Raises
    ``ParameterError`` at ``bytes`` for less than four mebibytes.
    """
    if most_bytes < LEAST_BYTES:
        raise ParameterError("bytes", most_bytes, f"at least {LEAST_BYTES}")
    sizes = [most_bytes >> halvings for halvings in range(6)]
    every = [WeightPayload(size, tensors) for size in sizes for tensors in (1, MANY)]
    kept = tuple(parcel for number, parcel in enumerate(every) if number % 3 != 1)
    return PayloadDesign((WeightPayload(TINY_BYTES), *kept), tuple(every[1::3]))


def calibrate_transport(request: TransportRequest, tell: Callable[[str], None] = lambda line: None) -> Profile:
    """Measure each path, fit, and write ``request.out``.

    Raises ``ParameterError`` for an unknown path, and where a broadcast is asked for without torch.
    """
    for path in request.paths:
        if path not in PATHS:
            raise unknown("path", path, PATHS)
    if "broadcast" in request.paths:
        require("torch", "calibrate")
    device = hardware.chosen_device(request.device) if request.device != "cpu" else "cpu"
    subject = Subject("", hardware.device_label(device), "transport", "")
    profile_before = kept_beside(request.out, subject)
    subject = Subject("", profile_before.device, "transport", "") if profile_before else subject
    share = TimeBudget(request.budget.seconds / len(request.paths), request.budget.clock)
    sections = {transport_name(path, device): _measured(request, path, device, share, tell) for path in request.paths}
    profile = merged(request.out, subject, transport=sections)
    profile.write(request.out)
    return profile


def fit_path(sent: PayloadDesign, table: NDArray[np.float64]) -> tuple[LinearFit, HoldOutError]:
    """Fixed seconds, seconds a byte and seconds a tensor from even passes; errors on held-out parcels in odd ones."""
    even, odd = halves(table)
    least = np.array([0.0, 1.0 / FASTEST, 0.0])
    fit = fit_linear(_design(sent.fitted), even[: len(sent.fitted)], least, upward_bias(table))
    expected = _design(sent.held_out) @ fit.values
    return fit, hold_out(expected, odd[len(sent.fitted) :], sent.held_out)


def report(profile: Profile) -> Iterator[str]:
    """Lines for a person: what each path does, how far off the fit is, and the keys to paste."""
    for name, path in profile.transport.items():
        evidence = path.evidence
        yield f"{name}: {path.bytes_per_second}, fixed {path.fixed_seconds}, a tensor {path.per_tensor_seconds}"
        yield f"  hold-out {evidence.hold_out}; noise floor {evidence.noise_floor.get('all', 0.0):.1%}"
    for name, path in profile.transport.items():
        yield f"sync: # {name}, between two processes of this machine"
        yield f"  link_bytes_per_second: {path.bytes_per_second.value:.4g}"
        yield f"  base_seconds: {path.fixed_seconds.value:.4g}"
        if path.per_tensor_seconds is not None and path.per_tensor_seconds.value > 0:
            yield f"  per_tensor_seconds: {path.per_tensor_seconds.value:.4g} # with sync.tensors"


def _measured(
    request: TransportRequest, path: str, device: str, budget: TimeBudget, tell: Callable[[str], None]
) -> TransportPath:
    sent, folder = payloads(request.most_bytes), request.folder or request.out.resolve().parent
    file = journal_file(request.out, path)
    header = {"path": path, "device": device, "bytes": request.most_bytes, "folder": str(folder)}
    journal = MeasurementJournal(file, header, Timing)
    with open_path(path, request.most_bytes, folder, device) as send:
        for parcel in sent.all:
            send(parcel)
        table = RepeatedCampaign(
            points=len(sent.all),
            seconds_of=lambda index: send(sent.all[index]),
            journal=journal,
            budget=budget,
            interval=lambda samples: fit_path(sent, samples)[0].width((1,)),
            tight=TIGHT,
            report=lambda line: tell(f"{path}: {line}"),
        ).run()
    file.rename(request.out.with_suffix(f".{path}-samples.jsonl"))
    return _section(transport_name(path, device), sent, table, request, device)


def _section(
    name: str, sent: PayloadDesign, table: NDArray[np.float64], request: TransportRequest, device: str
) -> TransportPath:
    fit, error = fit_path(sent, table)
    samples = len(table) // 2 * len(sent.fitted)
    evidence = Evidence(
        provenance=Provenance("measured", f"rlsim calibrate transport, {name}, loopback", date.today().isoformat()),
        hold_out=error,
        sampled={"all": _sampled(sent, table)},
        method={"all": f"{METHODS[name]}; {len(table)} passes, median over quickest quarter {slowdown(table):.2f}"},
        noise_floor={"all": round(noise_floor(*halves(table)), 5)},
        command=request.command,
        hardware=hardware.described(device),
        driver=hardware.driver() if device == "cuda" else "",
        libraries=hardware.versions(("torch", "numpy")),
    )
    if fit.values[1] <= 1.0 / FASTEST:
        raise ParameterError("bytes", "no time that grows with bytes", "larger parcels, or a longer budget")
    low, value, high = (float(f"{1 / end[1]:.6g}") for end in (fit.high, fit.values, fit.low))
    return TransportPath(
        fixed_seconds=_coefficient(fit, 0, "s", samples),
        bytes_per_second=Coefficient(value, "bytes/s", low, high, samples=samples),
        ranks=2,
        evidence=evidence,
        per_tensor_seconds=_coefficient(fit, 2, "s", samples),
    )


def _design(sent: Sequence[WeightPayload]) -> NDArray[np.float64]:
    return np.array([[1.0, parcel.size_bytes, parcel.tensors] for parcel in sent])


def _coefficient(fit: LinearFit, column: int, unit: str, samples: int) -> Coefficient:
    ends = (fit.low[column], fit.values[column], fit.high[column])
    low, value, high = (float(f"{end:.6g}") for end in ends)
    return Coefficient(value, unit, low, high, samples=samples)


def _sampled(sent: PayloadDesign, table: NDArray[np.float64]) -> Sampled:
    sizes = [float(parcel.size_bytes) for parcel in sent.all]
    ranges = {"bytes": (min(sizes), max(sizes)), "seconds": (float(table.min()), float(table.max()))}
    return Sampled(len(table) * len(sent.fitted), len(table) * len(sent.held_out), ranges)
