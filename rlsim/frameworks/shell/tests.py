"""Conditions of ``[ ]``, ``[[ ]]`` and ``test``: true, false, or left to the environment."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from rlsim.frameworks.shell.arithmetic import NotANumber, number
from rlsim.frameworks.shell.unknown import emptied, is_known, shown

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_TEXT = ("=", "==", "!=", "=~", "<", ">")
_FILES = tuple(f"-{letter}" for letter in "abcdefghkprstuwxLNOGS")
Token = tuple[str, str]
"""Kind (``op`` or ``word``) and text."""


class Condition:
    """A test over its tokens; ``said`` collects what was taken for granted to decide it."""

    def __init__(self, tokens: list[Token], exists: Callable[[str], bool]) -> None:
        self._tokens, self._at, self._exists = tokens, 0, exists
        self.said: list[str] = []

    def holds(self) -> bool | None:
        """Whether it holds; None where only the environment knows."""
        return self._either()

    def _peek(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _take(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _either(self) -> bool | None:
        value = self._both()
        while self._peek()[1] in ("||", "-o") and self._peek()[0] == "op":
            self._take()
            other = self._both()
            value = True if True in (value, other) else None if None in (value, other) else False
        return value

    def _both(self) -> bool | None:
        value = self._negated()
        while self._peek()[1] in ("&&", "-a") and self._peek()[0] == "op":
            self._take()
            other = self._negated()
            value = False if False in (value, other) else None if None in (value, other) else True
        return value

    def _negated(self) -> bool | None:
        if self._peek() == ("op", "!"):
            self._take()
            value = self._negated()
            return None if value is None else not value
        if self._peek() == ("op", "("):
            self._take()
            value = self._either()
            self._take()
            return value
        return self._primary()

    def _primary(self) -> bool | None:
        kind, text = self._take()
        if kind == "op" and text.startswith("-") and self._peek()[0] == "word":
            return self._unary(text, self._take()[1])
        operator = self._peek()
        if operator[0] == "op" and (operator[1] in _COMPARE or operator[1] in _TEXT):
            self._take()
            return self._binary(text, operator[1], self._take()[1])
        return bool(self._set(text)) if kind == "word" else False

    def _set(self, text: str) -> str:
        """The text, and a note where a variable that the file does not set is taken for empty."""
        if not is_known(text):
            self.said.append(f"{shown(text)} is taken for not set")
        return emptied(text)

    def _unary(self, operator: str, text: str) -> bool | None:
        if operator in ("-z", "-n"):
            return (self._set(text) == "") == (operator == "-z")
        if operator == "-v":
            return is_known(text)
        if operator in _FILES:
            if is_known(text) and self._exists(text):
                return True
            self.said.append(f"{shown(text)} is taken for absent")
            return False
        return None

    def _binary(self, left: str, operator: str, right: str) -> bool | None:
        if operator in _COMPARE:
            if not (is_known(left) and is_known(right)):
                return None
            try:
                return _COMPARE[operator](number(left.strip() or "0"), number(right.strip() or "0"))
            except NotANumber:
                return None
        if "\ue000(" in left + right:
            return None
        one, two = self._set(left), self._set(right)
        if operator == "=~":
            try:
                return re.search(two, one) is not None
            except re.error:
                return None
        if operator in ("<", ">"):
            return one < two if operator == "<" else one > two
        return fnmatch.fnmatchcase(one, two) == (operator != "!=")
