"""The models and devices rlsim knows by name; facts live in ``data/*.yaml`` with their sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError, unknown
from rlsim.costs.architecture import Architecture, Experts, LatentAttention, LinearAttention, SlidingWindow
from rlsim.costs.fields import Fields, positive
from rlsim.costs.names import base_name


@dataclass(frozen=True, slots=True)
class Device:
    """Data-sheet peaks of one GPU. Link rates are in one direction."""

    name: str
    bf16_flops: float
    """Dense FLOP/s."""
    memory_bytes_per_second: float
    memory_bytes: float
    link_bytes_per_second: float
    """To the GPUs of its node."""
    inter_node_bytes_per_second: float
    """Its share of the network."""
    host_link_bytes_per_second: float
    """To host memory."""
    price_usd_per_gpu_hour: float
    """An editable assumption; see ``price_source``."""
    source: str
    price_source: str

    def __post_init__(self) -> None:
        for name in RATES:
            positive(name, getattr(self, name))


RATES = (
    "bf16_flops",
    "memory_bytes_per_second",
    "memory_bytes",
    "link_bytes_per_second",
    "inter_node_bytes_per_second",
    "host_link_bytes_per_second",
    "price_usd_per_gpu_hour",
)
"""The numeric facts of a device."""


def model_names() -> list[str]:
    """Models of the catalogue, sorted."""
    return sorted(_entries("models"))


def device_names() -> list[str]:
    """Devices of the catalogue, sorted."""
    return sorted(_entries("devices"))


def model(name_or_path: str, path: str = "model") -> Architecture:
    """A model by its ``config.json`` (or the folder that holds it) or by a name that :mod:`rlsim.costs.names` reads.

    Raises ``ParameterError`` at ``path`` for an unknown name, with the nearest spelling, or a faulty file.
    """
    if name_or_path.endswith(".json") or (Path(name_or_path) / "config.json").is_file():
        return Architecture.from_hf_config(name_or_path, path)
    base = base_name(name_or_path, _entries("models"))
    if base is None:
        raise ParameterError(path, name_or_path, _models_allowed(name_or_path))
    name, assumed = base
    shape = _architecture(name)
    if not assumed:
        return shape
    return replace(shape, assumed=(*shape.assumed, f"{name_or_path} is taken to have the shape of {name}"))


def _models_allowed(text: str) -> str:
    last = text.rstrip("/").rpartition("/")[2].lower()
    by_name = {name.lower(): name for name in _entries("models")}
    near = " or ".join(repr(by_name[one]) for one in get_close_matches(last, by_name, n=3, cutoff=0.6))
    return f"{f'did you mean {near}? ' if near else ''}a known model or fine-tune, or the path of its config.json"


def device(name: str, path: str = "cluster.device") -> Device:
    """A device by catalogue name (case does not matter).

    Raises ``ParameterError`` at ``path`` for an unknown name, with the nearest spelling.
    """
    spelling = _spelled(name, _entries("devices"))
    if spelling is None:
        raise unknown(path, name, _entries("devices"))
    entry = _fields("devices", spelling)
    numbers = {key: entry.number(key) for key in RATES}
    return Device(name=spelling, source=entry.text("source"), price_source=entry.text("price_source"), **numbers)


def model_source(name: str) -> str:
    """Where the shape of a catalogue model was read."""
    return _fields("models", model(name).name).text("source")


@cache
def _architecture(name: str) -> Architecture:
    entry = dict(_entries("models")[name])
    del entry["source"]
    if "experts" in entry:
        entry["experts"] = Experts(**entry["experts"])
    for key, kind in (("latent", LatentAttention), ("linear", LinearAttention), ("window", SlidingWindow)):
        if key in entry:
            entry[key] = kind(**entry[key])
    return Architecture(name=name, **entry)


@cache
def _entries(kind: str) -> dict[str, dict[str, Any]]:
    from ruamel.yaml import YAML

    text = (files("rlsim.costs") / "data" / f"{kind}.yaml").read_text(encoding="utf-8")
    return dict(YAML(typ="safe", pure=True).load(text))


def _fields(kind: str, name: str) -> Fields:
    return Fields(_entries(kind)[name], f"{kind}.yaml: {name}", kind)


def _spelled(name: str, names: Iterable[str]) -> str | None:
    return next((known for known in names if known.lower() == name.lower()), None)
