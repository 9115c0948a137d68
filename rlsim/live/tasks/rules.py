"""Rules of tasks: questions and their right answers. A rule's fields are its difficulty.

All questions of a rule are equally long, and so are all answers but those of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rlsim.core.errors import ParameterError

Draw = Callable[[int, int], int]
"""``draw(index, n)``: a number from 0 to n - 1, the same at every call for a prompt."""
Question = tuple[Sequence[str], Sequence[str]]
"""The words of a question and of its answer."""


class Rule(Protocol):
    """Questions and their right answers."""

    @property
    def words(self) -> tuple[str, ...]:
        """Every word of questions and answers."""
        ...

    @property
    def answer_words(self) -> int:
        """Words of the longest answer."""
        ...

    def ask(self, draw: Draw) -> Question:
        """A question and its answer."""
        ...


@dataclass(frozen=True, slots=True)
class Successor:
    """Given a symbol of a ring, say the next one."""

    symbols: int = 8

    def __post_init__(self) -> None:
        _between("symbols", self.symbols, 2, 1000)

    @property
    def words(self) -> tuple[str, ...]:
        return _numbers(self.symbols)

    @property
    def answer_words(self) -> int:
        return 1

    def ask(self, draw: Draw) -> Question:
        """``3`` is answered by ``4``, the last symbol by the first."""
        start = draw(0, self.symbols)
        return (str(start),), (str((start + 1) % self.symbols),)


@dataclass(frozen=True, slots=True)
class SymbolSequence:
    """A rule whose answers are sequences of ``length`` symbols."""

    symbols: int = 8
    length: int = 4

    def __post_init__(self) -> None:
        _between("symbols", self.symbols, 2, 1000)
        _between("length", self.length, 1, 1000)

    @property
    def words(self) -> tuple[str, ...]:
        """The symbols and the sign that ends a question."""
        return (*_numbers(self.symbols), ">")

    @property
    def answer_words(self) -> int:
        return self.length


class Counting(SymbolSequence):
    """Given a symbol of a ring, go on counting a number of times."""

    __slots__ = ()

    def ask(self, draw: Draw) -> Question:
        """``3 >`` is answered by ``4 5 6 7``."""
        start = draw(0, self.symbols)
        return (str(start), ">"), [str((start + 1 + i) % self.symbols) for i in range(self.length)]


class Sorting(SymbolSequence):
    """Say the given symbols in ascending order."""

    __slots__ = ()

    def ask(self, draw: Draw) -> Question:
        """``3 1 7 1 >`` is answered by ``1 1 3 7``."""
        symbols = [draw(index, self.symbols) for index in range(self.length)]
        return [*map(str, symbols), ">"], [*map(str, sorted(symbols))]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Add two numbers of a few decimal digits."""

    digits: int = 1

    def __post_init__(self) -> None:
        _between("digits", self.digits, 1, 12)

    @property
    def words(self) -> tuple[str, ...]:
        return (*_numbers(10), "+", "=")

    @property
    def answer_words(self) -> int:
        """A digit more than the numbers have."""
        return self.digits + 1

    def ask(self, draw: Draw) -> Question:
        """``7 + 5 =`` is answered by ``1 2``."""
        one, other = (draw(index, 10**self.digits) for index in (0, 1))
        question = f"{one:0{self.digits}d}+{other:0{self.digits}d}="
        return tuple(question), tuple(str(one + other))


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(count))


def _between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ParameterError(f"task.{name}", value, f"{low} to {high}")
