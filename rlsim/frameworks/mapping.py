"""What a framework's keys mean here: one table a framework, read in both directions.

A row relates framework keys to scenario keys through a codec. Import reads rows from left to right, export from right
to left, and the documentation prints them; nothing about a framework is written anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
OUTSIDE = "("
"""First character of keys that a reader adds and no file holds: program, launcher's flags, variables of a script."""


class Partial(ValueError):
    """A relation of which some values are known: they are used (None: not known) and the text is told as a fault."""

    def __init__(self, values: tuple[Any, ...], text: str) -> None:
        super().__init__(text)
        self.values = values


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
    """Read, never written: a name of earlier versions, or what a key written by another row implies."""


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
class Condition:
    """What several keys together tell of a file."""

    words: str
    """The condition, for the documentation."""
    holds: Callable[[Flat], bool]
    """Whether the file meets it."""
    written: tuple[tuple[str, Any], ...] = ()
    """Keys and values that an export writes so that it is met."""


def runs(program: str) -> Condition:
    """The program that a command line starts, by its last component."""
    return Condition(
        f"the program `{program}`",
        lambda flat: str(flat.get(PROGRAM, "")).rpartition("/")[2] == program,
        ((PROGRAM, program),),
    )


def hold(marks: tuple[Mark | Condition, ...], flat: Flat) -> bool:
    """Whether all marks hold."""
    return all(mark.holds(flat) for mark in marks)


def written(marks: tuple[Mark | Condition, ...]) -> dict[str, Any]:
    """Keys and values that an export writes so that the marks hold."""
    flat: dict[str, Any] = {}
    for mark in marks:
        if isinstance(mark, Condition):
            flat.update(mark.written)
        elif mark.value is not WRITTEN:
            flat[mark.key] = mark.value
    return flat


@dataclass(frozen=True, slots=True)
class Backend:
    """A training library or an engine that the framework can run on, and the rows that count only then."""

    name: str
    rows: tuple[Row, ...] = ()
    marks: tuple[Mark | Condition, ...] = ()
    """What tells that it is the active one."""
    prefixes: tuple[str, ...] = ()
    """Beginnings of keys that only it reads, mapped or not."""

    def reads(self, key: str) -> bool:
        """Whether the key is one of its own."""
        return key.startswith(self.prefixes) or any(key == one.name for row in self.rows for one in row.keys)


@dataclass(frozen=True, slots=True)
class Unmodelled:
    """A key whose effect on time or memory is not simulated: said, where the file sets it."""

    key: str
    words: str
    """What it is, after the value."""
    off: tuple[Any, ...] = (None, False, 0)
    """Values that change nothing."""


def lora(key: str) -> Unmodelled:
    """The rank of low-rank adapters."""
    return Unmodelled(key, "LoRA: all weights are simulated as trained and sent")


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run the framework: the preset it is, the marks that tell, and rows of its own."""

    preset: str
    marks: tuple[Mark | Condition, ...] = ()
    rows: tuple[Row, ...] = ()
    shares_gpus: bool = False
    program: str = ""
    """What a command line starts, where it is not a mark."""
    notes: tuple[str, ...] = ()
    """What the preset does not show of the mode, a line each."""


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
    trainers: tuple[Backend, ...] = ()
    """Training backends; the first whose marks hold is active."""
    engines: tuple[Backend, ...] = ()
    """Inference backends, likewise."""
    unmodelled: tuple[Unmodelled, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names of keys in earlier versions, and those of today with the same meaning."""
    hyphens: bool = False
    """Whether flags are those of HfArgumentParser: with hyphens for underscores too, and a word for true or false."""
    companions: tuple[str, ...] = ()
    """Keys that name a YAML file whose keys count where the command line does not set them."""
    processes: str = ""
    """Key of the processes that train, where what launches them may give their number."""
    calls: tuple[str, ...] = ()
    """Classes of the framework whose keyword arguments a Python file may hold."""

    def name_of(self, key: str) -> str:
        """Today's name of a key."""
        spelt = key.replace("-", "_") if self.hyphens and not key.startswith(OUTSIDE) else key
        return self.renamed.get(spelt, spelt)

    def rows_of(self, mode: Mode, backends: tuple[Backend, ...]) -> tuple[Row, ...]:
        """The rows that hold in a mode on those backends."""
        return (*self.rows, *mode.rows, *(row for backend in backends for row in backend.rows))

    def active(self, flat: Flat) -> tuple[Backend, ...]:
        """The backends that a file runs on, at most one of each kind."""
        backends = (
            next((one for one in kind if hold(one.marks, flat)), None) for kind in (self.trainers, self.engines)
        )
        return tuple(one for one in backends if one is not None)

    def inactive(self, active: tuple[Backend, ...]) -> tuple[Backend, ...]:
        """The other backends."""
        return tuple(one for one in (*self.trainers, *self.engines) if one not in active)

    def mode(self, preset: str) -> Mode | None:
        """The mode that is a preset."""
        return next((mode for mode in self.modes if mode.preset == preset), None)

    def recognised(self, flat: Flat) -> Mode | None:
        """The mode that a file runs."""
        return next((mode for mode in self.modes if hold(mode.marks, flat)), None)

    def presets(self) -> tuple[str, ...]:
        """Presets that it can express, each once."""
        return tuple(dict.fromkeys(mode.preset for mode in self.modes))
