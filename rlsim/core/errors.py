"""What went wrong, said so that the user can act: where, what was found, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class RlsimError(Exception):
    """Base of every error that rlsim raises on purpose."""


class ParameterError(RlsimError, ValueError):
    """A value that cannot be used. ``path`` is the key path inside what the user wrote.

    Raised by the part that knows the rule; the scenario loader adds file and line.
    """

    def __init__(self, path: str, found: object, allowed: str) -> None:
        super().__init__(path, found, allowed)
        self.path, self.found, self.allowed = path, found, allowed

    def __str__(self) -> str:
        return f"{self.path}: found {self.found!r}; allowed: {self.allowed}"


class ContradictionError(ValueError):
    """Fields that are each allowed and do not go together; one ParameterError a field to change."""

    def __init__(self, errors: Sequence[ParameterError]) -> None:
        super().__init__(*errors)
        self.errors = tuple(errors)


class ScenarioError(RlsimError, ValueError):
    """A scenario that is refused before anything runs; one line a fault, each with file and line."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "\n".join(self.faults)


class DeadlockError(RlsimError, RuntimeError):
    """A run that cannot progress; the message is the deadlock report."""


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed spelling closest to ``word``, if any is close."""
    matches = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.5)
    return matches[0] if matches else None


def unknown(path: str, word: str, allowed: Iterable[str]) -> ParameterError:
    """An unknown name, with the nearest valid spelling."""
    names = sorted(allowed)
    guess = nearest(word, names)
    hint = f" (did you mean '{guess}'?)" if guess else ""
    return ParameterError(path, word, ", ".join(names) + hint)
