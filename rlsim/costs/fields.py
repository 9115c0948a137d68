"""Reading data files: JSON objects of bounded size whose faults name the file and the key."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsim.core.errors import ParameterError


def non_negative(path: str, value: float) -> float:
    """``value`` if it is finite and not negative."""
    if not math.isfinite(value) or value < 0:
        raise ParameterError(path, value, "a finite number >= 0")
    return value


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

    def integer(self, key: str, least: int = 1, default: int | None = None) -> int:
        """A whole number; ``default`` stands for a missing or null key."""
        value = self.tree.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.fault(key, f"a whole number >= {least}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number >= 0."""
        value = self.tree.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(key, "a finite number >= 0")
        if not math.isfinite(value) or value < 0:
            raise self.fault(key, "a finite number >= 0")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self.tree.get(key, default)
        if not isinstance(value, str):
            raise self.fault(key, "a string")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of finite numbers, at least one."""
        values = self.tree.get(key)
        if not isinstance(values, list) or not values or not all(map(_is_finite_number, values)):
            raise self.fault(key, "a list of finite numbers")
        return tuple(map(float, values))

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers, at least one."""
        values = self.tree.get(key)
        if not isinstance(values, list) or not values or not all(type(value) is int for value in values):
            raise self.fault(key, "a list of whole numbers")
        return tuple(values)

    def child(self, key: str) -> Fields:
        """The mapping at ``key``."""
        value = self.tree.get(key)
        if not isinstance(value, dict):
            raise self.fault(key, "an object")
        return Fields(value, f"{self.origin}: {key}", self.path)

    def children(self, key: str) -> dict[str, Fields]:
        """The mappings in the mapping at ``key``, by name; none where the key is missing."""
        if key not in self.tree:
            return {}
        outer = self.child(key)
        return {name: outer.child(name) for name in outer.tree}

    def texts(self, key: str) -> dict[str, str]:
        """The strings in the mapping at ``key``, by name; none where the key is missing."""
        outer = self.child(key) if key in self.tree else None
        return {name: outer.text(name) for name in outer.tree} if outer else {}

    def numbers_by_name(self, key: str) -> dict[str, float]:
        """The finite numbers >= 0 in the mapping at ``key``, by name; none where the key is missing."""
        outer = self.child(key) if key in self.tree else None
        return {name: outer.number(name) for name in outer.tree} if outer else {}

    def optional_number(self, key: str) -> float | None:
        """A finite number >= 0; ``None`` where the key is missing or null."""
        return None if self.tree.get(key) is None else self.number(key)


def _is_finite_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
