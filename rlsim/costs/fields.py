"""Reading data files: JSON objects of bounded size whose faults name the file and the key.

A file of many levels is a dataclass, which :func:`record` reads; a file of others, of which a few keys are used, is a
:class:`Fields`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from rlsim.core.errors import ParameterError, shown

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


def non_negative(path: str, value: object) -> float:
    """``value`` if it is finite and not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ParameterError(path, value, "a finite number >= 0")
    return float(value)


def positive(path: str, value: float) -> float:
    """``value`` if it is finite and above zero."""
    if not math.isfinite(value) or value <= 0:
        raise ParameterError(path, value, "a finite number > 0")
    return value


def count(path: str, value: object, least: int = 1) -> int:
    """``value`` if it is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParameterError(path, value, f"a whole number >= {least}")
    return value


def fraction(path: str, value: float) -> float:
    """``value`` if it lies in (0, 1]."""
    if not 0 < value <= 1:
        raise ParameterError(path, value, "a number in (0, 1]")
    return value


def finite_numbers(path: str, values: object) -> tuple[float, ...]:
    """``values`` if they are a list of finite numbers, at least one."""
    allowed = "a list of finite numbers"
    if not isinstance(values, list) or not values or any(type(value) not in (int, float) for value in values):
        raise ParameterError(path, values, allowed)
    if not all(map(math.isfinite, values)):
        raise ParameterError(path, values, allowed)
    return tuple(map(float, values))


def whole_numbers(path: str, values: object) -> tuple[int, ...]:
    """``values`` if they are a list of whole numbers, at least one."""
    if not isinstance(values, list) or not values or any(type(value) is not int for value in values):
        raise ParameterError(path, values, "a list of whole numbers")
    return tuple(values)


def ends(path: str, values: object) -> tuple[float, float]:
    """``values`` if they are two finite numbers, the smaller first."""
    numbers = finite_numbers(path, values)
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise ParameterError(path, values, "the smallest and the largest value")
    return numbers[0], numbers[1]


@dataclass(frozen=True)
class Checked:
    """A check of a value in a file, as pydantic metadata that does not need pydantic until something is read."""

    check: Callable[[str, object], Any]

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:
        """Pydantic's schema of a value that the check takes or refuses."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(lambda value: self.check("", value))


Number = Annotated[float, Checked(non_negative)]
Numbers = Annotated[tuple[float, ...], Checked(finite_numbers)]
Range = Annotated[tuple[float, float], Checked(ends)]
Whole = Annotated[int, Checked(count)]
Count = Annotated[int, Checked(partial(count, least=0))]
Wholes = Annotated[tuple[int, ...], Checked(whole_numbers)]

_ALLOWED = {"string_type": "a string"}


class _Missing:
    def __repr__(self) -> str:
        return "missing"


def record(kind: type[T], tree: Mapping[str, Any], origin: str, path: str) -> T:
    """The dataclass ``kind`` of a JSON object; keys that it does not have are passed over.

    Raises ``ParameterError`` at ``path`` for the first fault, with ``origin`` and the keys that lead to it.
    """
    from pydantic import ValidationError

    try:
        return cast(T, _adapter(kind).validate_python(tree))  # type: ignore[arg-type]
    except ValidationError as refused:
        fault = refused.errors(include_url=False)[0]
    keys, cause = [str(key) for key in fault["loc"]], fault.get("ctx", {}).get("error")
    if fault["type"] == "missing":
        # What may stand there is known to the check of the value: it is asked about one that nothing may be.
        return record(kind, _planted(tree, keys, _Missing()), origin, path)
    if isinstance(cause, ParameterError) and cause.path:
        raise ParameterError(path, f"{origin}: {cause.path}: {shown(cause.found)}", cause.allowed)
    if isinstance(cause, ParameterError):
        allowed = cause.allowed
    elif fault["type"] == "literal_error":
        allowed = fault["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
    else:
        allowed = _ALLOWED.get(fault["type"], "an object")
    value = f"{origin}: {': '.join(keys)}: {shown(fault['input'])}"
    raise ParameterError(path, value, f"{keys[-1]}: {allowed}")


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _planted(tree: Mapping[str, Any], keys: Sequence[str], value: object) -> dict[str, Any]:
    key, *below = keys
    return {**tree, key: _planted(tree[key], below, value) if below else value}


def read_json_object(file: Path, limit_bytes: int, path: str) -> dict[str, Any]:
    """The object in a JSON file.

    Raises ``ParameterError`` at ``path`` when the file is missing, larger than ``limit_bytes``, not UTF-8,
    not JSON or not an object.
    """
    try:
        if file.stat().st_size > limit_bytes:
            raise ParameterError(path, f"{file}: {file.stat().st_size} bytes", f"at most {limit_bytes} bytes")
        tree = json.loads(file.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ParameterError(path, str(file), f"a readable file ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ParameterError(path, f"{file}: {error}", "a JSON object") from error
    if not isinstance(tree, dict):
        raise ParameterError(path, f"{file}: {type(tree).__name__}", "a JSON object")
    return tree


class Fields:
    """Typed access to a mapping; a fault is a ``ParameterError`` at ``path`` that names origin and key."""

    def __init__(self, tree: Mapping[str, Any], origin: str, path: str) -> None:
        self.tree, self.origin, self.path = tree, origin, path

    def fault(self, key: str, allowed: str) -> ParameterError:
        """The error for ``key``, saying whether it is missing or what was found."""
        said = repr(self.tree[key]) if key in self.tree else "missing"
        return ParameterError(self.path, f"{self.origin}: {key}: {said}", f"{key}: {allowed}")

    def _checked(self, key: str, check: Callable[[str, object], T], value: object) -> T:
        try:
            return check(key, value)
        except ParameterError as error:
            raise self.fault(key, error.allowed) from None

    def integer(self, key: str, least: int = 1, default: int | None = None) -> int:
        """A whole number; ``default`` stands for a missing or null key."""
        value = self.tree.get(key)
        if value is None and default is not None:
            return default
        return self._checked(key, partial(count, least=least), value)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number >= 0."""
        return self._checked(key, non_negative, self.tree.get(key, default))

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self.tree.get(key, default)
        if not isinstance(value, str):
            raise self.fault(key, "a string")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers, at least one."""
        return self._checked(key, whole_numbers, self.tree.get(key))

    def child(self, key: str) -> Fields:
        """The mapping at ``key``."""
        value = self.tree.get(key)
        if not isinstance(value, dict):
            raise self.fault(key, "an object")
        return Fields(value, f"{self.origin}: {key}", self.path)
