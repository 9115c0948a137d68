"""What went wrong, said so that the user can act: where, what was found, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
LONGEST = 300
"""Characters of what was found, in one error: a path with the keys of a file may be in it."""


def shown(value: object, longest: int = 100) -> str:
    """A value as the user would recognise it, in at most ``longest`` characters; of a mapping or list, that it is one.

    None, true and false are as in a file.
    """
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


class RlsimError(Exception):
    """Base of every error that rlsim raises on purpose."""


class ParameterError(RlsimError, ValueError):
    """A value that cannot be used. ``path`` is the key path inside what the user wrote.

    Raised by the part that knows the rule; the scenario loader adds file and line.
    """

    def __init__(self, path: str, value: object, allowed: str) -> None:
        super().__init__(path, value, allowed)
        self.path, self.found, self.allowed = path, value, allowed

    def __str__(self) -> str:
        return f"{self.path}: found {shown(self.found, LONGEST)}; allowed: {self.allowed}"


class ContradictionError(ValueError):
    """Fields that are each allowed and do not go together; one ParameterError a field to change."""

    def __init__(self, errors: Sequence[ParameterError]) -> None:
        super().__init__(*errors)
        self.errors = tuple(errors)


class Faults:
    """Collects the faults of independent sections."""

    def __init__(self) -> None:
        self.errors: list[ParameterError] = []

    def catch(self, make: Callable[[], T]) -> T | None:
        """The value made, or None with its fault kept."""
        try:
            return make()
        except ParameterError as error:
            self.errors.append(error)
            return None


class ResolveError(ParameterError):
    """All faults of a scenario that can only be seen when its names are resolved."""

    def __init__(self, errors: list[ParameterError]) -> None:
        super().__init__(errors[0].path, errors[0].found, errors[0].allowed)
        self.errors = errors

    def __reduce__(self) -> tuple[type[ResolveError], tuple[list[ParameterError]]]:
        """Workers send it back by its one argument."""
        return type(self), (self.errors,)


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
