"""What a framework's keys mean here: one table a framework, read in both directions.

A row relates framework keys to scenario keys through a codec. Import reads rows from left to right, export from right
to left, and the documentation prints them; nothing about a framework is written anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

Flat = Mapping[str, Any]
"""Values by dotted key."""


class Unset(Enum):
    """Stands for no value where null is one."""

    NO_DEFAULT = "no default"
    WRITTEN = "any value"


NO_DEFAULT, WRITTEN = Unset.NO_DEFAULT, Unset.WRITTEN

PROGRAM = "(program)"
"""The key under which the reader of a shell script puts the program that it starts."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of framework keys become values of scenario keys, and back.

    Both directions take as many values as there are keys on their side and give as many as there are on the other.
    They raise ``ValueError`` with what is allowed. A None that is given means: not set.
    """

    read: Callable[..., tuple[Any, ...]]
    write: Callable[..., tuple[Any, ...]]
    words: str
    """The relation, for the documentation."""


SAME = Codec(lambda *values: values, lambda *values: values, "the same")


@dataclass(frozen=True, slots=True)
class Key:
    """A framework's key and its default there."""

    name: str
    default: Any = NO_DEFAULT


@dataclass(frozen=True, slots=True)
class Row:
    """Keys of a framework and the scenario keys that say the same."""

    keys: tuple[Key, ...]
    paths: tuple[str, ...]
    codec: Codec = SAME
    legacy: bool = False
    """Read from older files, never written."""


def same(key: str, path: str, default: Any = NO_DEFAULT) -> Row:
    """One key for one key, with the same value."""
    return Row((Key(key, default),), (path,))


def legacy(key: str, path: str) -> Row:
    """A name of earlier versions."""
    return Row((Key(key),), (path,), legacy=True)


@dataclass(frozen=True, slots=True)
class Mark:
    """A key whose value tells which mode a file runs; WRITTEN: any value of the key, or of a key below it."""

    key: str
    value: Any = WRITTEN
    default: Any = NO_DEFAULT

    def holds(self, flat: Flat) -> bool:
        """Whether the file carries the mark."""
        if self.value is WRITTEN:
            return any(key == self.key or key.startswith(f"{self.key}.") for key in flat)
        return bool(flat.get(self.key, self.default) == self.value)


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run the framework: the preset it is, the marks that tell, and rows of its own."""

    preset: str
    marks: tuple[Mark, ...] = ()
    rows: tuple[Row, ...] = ()
    shares_gpus: bool = False
    program: str = ""
    """What a command line starts, where it is not a mark."""


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework's configuration; of its modes the first whose marks hold is the one."""

    name: str
    version: str
    """Source commit whose keys and defaults these are."""
    format: Literal["yaml", "toml", "hydra", "flags"]
    """How it is written: files, or a command line of ``key=value`` or ``--key value``."""
    rows: tuple[Row, ...]
    modes: tuple[Mode, ...]
    command: str = ""
    """Of a command line; ``{key}`` stands for a key's value, ``{program}`` for that of the mode."""

    def rows_of(self, mode: Mode) -> tuple[Row, ...]:
        """The rows that hold in a mode."""
        return (*self.rows, *mode.rows)

    def mode(self, preset: str) -> Mode | None:
        """The mode that is a preset."""
        return next((mode for mode in self.modes if mode.preset == preset), None)

    def recognised(self, flat: Flat) -> Mode | None:
        """The mode that a file runs."""
        return next((mode for mode in self.modes if all(mark.holds(flat) for mark in mode.marks)), None)

    def presets(self) -> tuple[str, ...]:
        """Presets that it can express, each once."""
        return tuple(dict.fromkeys(mode.preset for mode in self.modes))
