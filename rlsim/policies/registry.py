"""Parts of policies by choice and name: a part registers itself, where it is defined.

``@part("admission", "ratio")`` above a frozen dataclass in any module of ``rlsim.policies`` is all that it takes: the
modules are found in the package and imported when a part is first looked up. Elsewhere a part is named
``module:Class``, and needs no registration.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Protocol, TypeVar, cast, get_type_hints

from rlsim.core.errors import ParameterError, unknown
from rlsim.core.view import RunSizes

CHOICES = (
    "admission",
    "batching",
    "update",
    "leftovers",
    "dispatch",
    "placement",
    "ordering",
    "migration",
    "allocation",
    "turns",
)
"""The choices that make a policy, in the order in which they are checked and listed."""


class Part(Protocol):
    """What every registered class offers."""

    def start(self, shape: RunSizes) -> Any:
        """Check against the sizes of the run and begin."""
        ...


AnyPart = TypeVar("AnyPart", bound=Part)

_registered: dict[str, dict[str, type[Part]]] = {choice: {} for choice in CHOICES}


def part(choice: str, name: str) -> Callable[[type[AnyPart]], type[AnyPart]]:
    """Class decorator that registers a part under a name of its choice; a name has one class."""

    def register(cls: type[AnyPart]) -> type[AnyPart]:
        holder = _registered[choice].setdefault(name, cls)
        if holder is not cls:
            raise ValueError(f"{choice} {name}: {holder.__qualname__} and {cls.__qualname__} have one name")
        return cls

    return register


def parts_of(choice: str) -> Mapping[str, type[Part]]:
    """Registered parts of a choice by name, in alphabetical order: it does not depend on where a part is defined."""
    _import_parts()
    return {name: _registered[choice][name] for name in sorted(_registered[choice])}


@cache
def _import_parts() -> None:
    """Import every module of the package, so that its parts register themselves."""
    package = importlib.import_module(__name__.rpartition(".")[0])
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def part_class(choice: str, use: str, path: str) -> type[Part]:
    """The class behind ``use``: a registered name, or ``module:Class`` of the user's own."""
    if ":" in use:
        return _own(use, path)
    parts = parts_of(choice)
    if use not in parts:
        raise unknown(path, use, [*parts, "module:Class"])
    return parts[use]


def make_part(choice: str, spec: Mapping[str, object], path: str) -> Part:
    """A part from ``{use: name, parameter: value, ...}``; faults name the key under ``path``."""
    use = spec.get("use")
    if not isinstance(use, str):
        raise ParameterError(f"{path}.use", use, f"a part: {', '.join(parts_of(choice))}, module:Class")
    cls = part_class(choice, use, f"{path}.use")
    settings = {name: value for name, value in spec.items() if name != "use"}
    names, kinds = parameters(cls), get_type_hints(cls)
    for name in settings:
        if name not in names:
            raise unknown(f"{path}.{name}", name, names)
    values = {name: _checked(kinds[name], value, f"{path}.{name}") for name, value in settings.items()}
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise ParameterError(f"{path}.{field.name}", None, f"a value ({field.type}): it has no default")
    return cls(**values)


def parameters(cls: type[Part]) -> tuple[str, ...]:
    """Names of a part's parameters."""
    return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]


def _checked(kind: Any, value: object, path: str) -> Any:
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import to_json

    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    try:
        if isinstance(value, list):  # as a file has it: strictly, only an array of JSON is a tuple
            return adapter.validate_json(to_json(value), strict=True)
        return adapter.validate_python(value, strict=True)
    except ValidationError as error:
        raise ParameterError(path, value, str(error.errors()[0]["msg"])) from error


def _own(use: str, path: str) -> type[Part]:
    """A user's own class. Its module is imported: the one exception to "nothing in a scenario is executed".

    Modules are looked for as installed, then in the current directory.
    """
    module, _, name = use.partition(":")
    if os.getcwd() not in sys.path:  # Where the interpreter was started by an entry point.
        sys.path.append(os.getcwd())
    try:
        cls: Any = getattr(importlib.import_module(module), name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ParameterError(path, use, f"module:Class that can be imported ({reason})") from error
    if not (isinstance(cls, type) and is_dataclass(cls) and hasattr(cls, "start")):
        raise ParameterError(path, use, "a dataclass with start(shape)")
    return cast("type[Part]", cls)
