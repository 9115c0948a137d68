"""References in configurations (``${a.b}``, ``${mul:2,${c}}``) by OmegaConf; the environment is never read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

_ENVIRONMENT = re.compile(r"\$\{oc\.env:\s*['\"]?([\w.]+)['\"]?\s*(?:,\s*([^{}]*?)\s*)?\}")
_NUMBERS: dict[str, Callable[..., Any]] = {
    "mul": lambda *values: _product(values),
    "add": lambda *values: sum(values),
    "sub": lambda one, two: one - two,
    "div": lambda one, two: one / two if one % two else one // two,
    "floordiv": lambda one, two: one // two,
    "int": lambda value: int(value),
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
}
"""Resolvers that frameworks add to OmegaConf's own, by their names."""


def _product(values: tuple[Any, ...]) -> Any:
    product = values[0]
    for value in values[1:]:
        product *= value
    return product


def resolved(tree: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str], dict[str, tuple[str, ...]]]:
    """Values by dotted key, the texts of those that cannot be worked out, and the environment's names in them.

    Lists are values. A default of a variable of the environment is its value; without one it is unknown.
    """
    from omegaconf import OmegaConf

    raw = dict(leaves(tree, ""))
    names = {key: _names(value) for key, value in raw.items()}
    config = OmegaConf.create(_prepared(tree))
    _add_resolvers()
    flat: dict[str, Any] = {}
    unresolved: dict[str, str] = {}
    for key, value in raw.items():
        if key.rpartition(".")[2] == "_target_" or (isinstance(value, str) and value.strip() == "???"):
            unresolved[key] = str(value)
            continue
        if not _has_reference(value):
            flat[key] = value
            continue
        try:
            value_at_end = _selected(config, key)
        except Exception as error:  # OmegaConf's own, and whatever a resolver raises on its arguments
            del error
            unresolved[key] = str(value)
            continue
        if _has_reference(value_at_end):
            unresolved[key] = str(value)
        elif isinstance(value_at_end, dict) and value_at_end:
            flat |= dict(leaves(value_at_end, f"{key}."))
        else:
            flat[key] = value_at_end
    return flat, unresolved, {key: names[key] for key in unresolved if names[key]}


def leaves(tree: Mapping[str, Any], under: str) -> Iterator[tuple[str, Any]]:
    """Dotted keys and values; lists and empty mappings are values."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{under}{key}.")
        else:
            yield f"{under}{key}", value


def _has_reference(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_reference, value.values()))
    if isinstance(value, list):
        return any(map(_has_reference, value))
    return isinstance(value, str) and "${" in value


def _names(value: Any) -> tuple[str, ...]:
    return tuple(match[1] for match in _ENVIRONMENT.finditer(str(value)) if match[2] is None)


def _prepared(value: Any) -> Any:
    """The tree with string keys, and with the defaults of variables of the environment in their places."""
    if isinstance(value, Mapping):
        return {str(key): _prepared(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_prepared(one) for one in value]
    if not isinstance(value, str):
        return value
    return _ENVIRONMENT.sub(lambda match: match[0] if match[2] is None else match[2].strip("'\""), value)


def _selected(config: DictConfig, key: str) -> Any:
    from omegaconf import OmegaConf

    selected = OmegaConf.select(config, key, throw_on_resolution_failure=True)
    if OmegaConf.is_config(selected):
        selected = OmegaConf.to_container(selected, resolve=True)
    return _typed(selected)


def _typed(value: Any) -> Any:
    """A number that stands in a text, as where a default of the environment was put in."""
    if isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", value):
        return int(value) if re.fullmatch(r"-?\d+", value) else float(value)
    return value


@cache
def _add_resolvers() -> None:
    """Tell OmegaConf the frameworks' resolvers, and take from it the one that reads the environment."""
    from omegaconf import OmegaConf

    register = getattr(OmegaConf, "register_resolver", None) or OmegaConf.register_new_resolver
    for name, function in _NUMBERS.items():
        if not OmegaConf.has_resolver(name):
            register(name, function)
    register("oc.env", _no_environment, replace=True)


def _no_environment(*names: str) -> Any:
    raise ValueError(f"{names[0]} is of the environment")
