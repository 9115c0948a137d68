"""What a script has set so far, and what its reading has found."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rlsim.frameworks.shell.unknown import MOST_CHARACTERS, unknown

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_NODES = 50_000
"""Statements and words that are worked out: loops and functions end there."""
MOST_WORDS = 20_000


class Word(NamedTuple):
    """A word of a command."""

    text: str
    line: int


class Exhausted(Exception):
    """A script that goes on for longer than a launch script does."""


@dataclass(slots=True)
class State:
    """Variables, functions and findings of a script."""

    file: str
    folder: Path | None
    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[Word]] = field(default_factory=dict)
    functions: dict[str, tuple[Node, bytes]] = field(default_factory=dict)
    positional: list[Word] | None = None
    """Arguments of the running function; None outside of functions, where only the user knows them."""
    commands: list[list[Word]] = field(default_factory=list)
    """Commands that are no shell's own, in order."""
    documents: dict[str, str] = field(default_factory=dict)
    """Text of here-documents by the file that they are written to."""
    sourced: list[str] = field(default_factory=list)
    """Paths of the scripts that it reads in."""
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    nodes: int = 0
    depth: int = 0

    @property
    def path(self) -> str:
        """Where the script lies, as it would find itself."""
        return self.file if self.folder is None else str(self.folder.resolve() / Path(self.file).name)

    def count(self) -> None:
        """Count one more piece of work; Exhausted beyond MOST_NODES."""
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise Exhausted

    def note(self, line: int, text: str) -> None:
        """Keep what is taken for granted, once."""
        note = f"{self.file}:{line}: {text}"
        if note not in self.notes:
            self.notes.append(note)

    def get(self, name: str) -> str | None:
        """The value of a variable; None where the script does not set it."""
        if name in self.arrays:
            return self.arrays[name][0].text if self.arrays[name] else ""
        return self.variables.get(name)

    def value(self, name: str) -> str:
        """The value of a variable, unknown where the script does not set it."""
        text = self.get(name)
        return unknown(name) if text is None else text

    def set(self, name: str, text: str) -> None:
        """Set a variable; Exhausted for a text that no launch script has."""
        if len(text) > MOST_CHARACTERS:
            raise Exhausted
        self.arrays.pop(name, None)
        self.variables[name] = text

    def words(self, name: str) -> list[Word]:
        """The elements of an array, of the arguments, or the one value of a variable."""
        if name in ("@", "*"):
            return list(self.positional or [])
        if name in self.arrays:
            return self.arrays[name]
        return [Word(self.value(name), 0)] if name in self.variables else []

    def numbers(self) -> MutableMapping[str, str]:
        """The variables as arithmetic sees and changes them."""
        return _Numbers(self)


class _Numbers(MutableMapping[str, str]):
    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> str:
        text = self._state.get(name)
        if text is None:
            raise KeyError(name)
        return text

    def __setitem__(self, name: str, value: str) -> None:
        self._state.set(name, value)

    def __delitem__(self, name: str) -> None:
        raise KeyError(name)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._state.variables)

    def __len__(self) -> int:
        return len(self._state.variables)
