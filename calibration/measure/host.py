"""What a calibration ran on: the device by its catalogue name, the rest in words.

Optional packages, imported when a command needs them.

How long other processes kept this one from a core: time of the machine, not of the work.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError, unknown
from rlsim.costs import catalogue


def require(module: str, extra: str) -> Any:
    """The module; raises ``ParameterError`` that names the extra which brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        allowed = f"an environment with it: pip install 'rlsim[{extra}]', see README, section Live ({error})"
        raise ParameterError(module, "not installed", allowed) from error


DEVICES = ("auto", "cuda", "cpu")


def chosen_device(device: str) -> str:
    """``cuda`` or ``cpu``; ``auto`` takes a GPU where torch sees one. Raises ``ParameterError`` at ``device``."""
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    torch = require("torch", "calibrate")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise unknown("device", device, ("cpu (torch sees no GPU)",))
    return device


def device_label(device: str) -> str:
    """The catalogue's name of the GPU, torch's where it has none; ``cpu: <model>`` without a GPU."""
    if device == "cpu":
        return f"cpu: {cpu_model()}"
    properties = require("torch", "calibrate").cuda.get_device_properties(0)
    return catalogued(properties.name, float(properties.total_memory)) or str(properties.name)


def catalogued(name: str, memory_bytes: float) -> str | None:
    """The catalogue device that torch calls ``name``: all its words but the form factor, and memory within a fifth."""
    words = set(name.upper().replace("-", " ").split())
    for known in catalogue.device_names():
        parts = {part for part in known.upper().split("-") if part not in ("SXM", "80GB")}
        near = abs(catalogue.device(known).memory_bytes / memory_bytes - 1) < 0.2
        if parts <= words and near and not ("SXM" in known and "PCIE" in words):
            return known
    return None


def cpu_model() -> str:
    """As the kernel names it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def described(device: str) -> dict[str, str]:
    """Hardware for a profile's evidence."""
    facts = {"cpu": cpu_model(), "cores": str(os.cpu_count())}
    if device == "cuda":
        torch = require("torch", "calibrate")
        properties = torch.cuda.get_device_properties(0)
        facts |= {"gpu": properties.name, "gpus": str(torch.cuda.device_count())}
        facts |= {"memory": f"{properties.total_memory / 2**30:.0f} GiB"}
    return facts


def driver() -> str:
    """The GPU driver's own words, with torch's CUDA; empty without one."""
    file = Path("/proc/driver/nvidia/version")
    if not file.exists():
        return ""
    cuda = require("torch", "calibrate").version.cuda
    return f"{file.read_text(encoding='utf-8').splitlines()[0].strip()}; CUDA {cuda}"


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of those that are installed, and of Python."""
    installed = {"python": platform.python_version()}
    for package in packages:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def matmul_flops(torch: Any, device: Any) -> float:
    """bf16 FLOP/s of a large matrix product, the quickest of a few: a peak for devices without a data sheet."""
    import time

    size = 8192 if device.type == "cuda" else 1024
    left, right = (torch.randn(size, size, dtype=torch.bfloat16, device=device) for _ in range(2))
    best = float("inf")
    for _ in range(12):
        start = time.perf_counter()
        float((left @ right)[0, 0])
        best = min(best, time.perf_counter() - start)
    return float(2 * size**3 / best)


_QUEUE = Path("/proc/thread-self/schedstat")


def waited_seconds() -> float:
    """Seconds that this thread has been ready to run and was not run, since it started; 0 where the kernel tells none.

    Second number of ``/proc/<task>/schedstat`` (Linux, Documentation/scheduler/sched-stats). What a hypervisor
    takes is not in it.
    """
    try:
        return int(_QUEUE.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class Stopwatch:
    """Seconds since it was made; with ``own_core``, less those for which other processes held the core."""

    def __init__(self, own_core: bool) -> None:
        self._own_core = own_core
        self._waited = waited_seconds() if own_core else 0.0
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """Since then."""
        elapsed = time.perf_counter() - self._start
        return elapsed - (waited_seconds() - self._waited) if self._own_core else elapsed
