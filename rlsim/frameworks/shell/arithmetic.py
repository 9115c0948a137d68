"""Whole-number arithmetic as Bash has it, over variables that a script sets."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping

_TOKEN = re.compile(
    r"\s*(0[xX][0-9a-fA-F]+|\d+#\w+|\d+|[A-Za-z_]\w*|\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%<>=!~&|^?:(),])"
)
_LARGEST = 2**63
_MOST_TOKENS = 500
_BINARY: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<=", ">=", "<", ">"),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
"""Operators by level, the loosest first."""


class NotANumber(ValueError):
    """An expression that is not whole-number arithmetic, or names a variable that is not a number."""


def _divided(left: int, right: int) -> int:
    if right == 0:
        raise NotANumber("division by 0")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_APPLY: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a or b)),
    "&&": lambda a, b: int(bool(a and b)),
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << min(max(b, 0), 64),
    ">>": lambda a, b: a >> min(max(b, 0), 64),
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divided,
    "%": lambda a, b: a - b * _divided(a, b),
}


def evaluate(text: str, variables: MutableMapping[str, str]) -> int:
    """The value of an expression; assignments in it change ``variables``. NotANumber where it has none."""
    parser = _Parser(_tokens(text), variables)
    value = parser.comma()
    if parser.rest():
        raise NotANumber(f"{text.strip()!r} is not arithmetic")
    return value


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or len(tokens) >= _MOST_TOKENS:
            raise NotANumber(f"{text[:80]!r} is not arithmetic")
        tokens.append(match[1])
        at = match.end()
    return tokens


class _Parser:
    """Precedence climbing over tokens."""

    def __init__(self, tokens: list[str], variables: MutableMapping[str, str]) -> None:
        self._tokens, self._at, self._variables, self._depth = tokens, 0, variables, 0

    def rest(self) -> list[str]:
        return self._tokens[self._at :]

    def _next(self, *allowed: str) -> str | None:
        if self._at < len(self._tokens) and self._tokens[self._at] in allowed:
            self._at += 1
            return self._tokens[self._at - 1]
        return None

    def comma(self) -> int:
        value = self._assignment()
        while self._next(","):
            value = self._assignment()
        return value

    def _assignment(self) -> int:
        name, operator = (*self.rest()[:2], "", "")[:2]
        if re.fullmatch(r"[A-Za-z_]\w*", name) and re.fullmatch(r"=|[-+*/%&|^]=|<<=|>>=", operator):
            self._at += 2
            value = self._assignment()
            if operator != "=":
                value = _bounded(_APPLY[operator[:-1]](self._variable(name), value))
            self._variables[name] = str(value)
            return value
        return self._ternary()

    def _ternary(self) -> int:
        self._depth += 1
        if self._depth > 100:
            raise NotANumber("nested too deeply")
        condition = self._binary(0)
        if self._next("?"):
            first = self._assignment()
            if self._next(":") is None:
                raise NotANumber("? without :")
            second = self._assignment()
            condition = first if condition else second
        self._depth -= 1
        return condition

    def _binary(self, level: int) -> int:
        if level == len(_BINARY):
            return self._power()
        value = self._binary(level + 1)
        while operator := self._next(*_BINARY[level]):
            value = _bounded(_APPLY[operator](value, self._binary(level + 1)))
        return value

    def _power(self) -> int:
        base = self._unary()
        if self._next("**"):
            exponent = self._power()
            if not 0 <= exponent <= 63:
                raise NotANumber("a power from 0 to 63")
            return _bounded(base**exponent)
        return base

    def _unary(self) -> int:
        sign = self._next("-", "+", "!", "~", "++", "--")
        if sign in ("++", "--"):
            return self._stepped(self._name(), sign, after=True)
        if sign is not None:
            value = self._unary()
            return {"-": -value, "+": value, "!": int(not value), "~": ~value}[sign]
        return self._atom()

    def _atom(self) -> int:
        if self._next("("):
            value = self.comma()
            if self._next(")") is None:
                raise NotANumber("( without )")
            return value
        token = self._name()
        if re.match(r"[A-Za-z_]", token):
            step = self._next("++", "--")
            return self._stepped(token, step, after=False) if step else self._variable(token)
        return number(token)

    def _name(self) -> str:
        if self._at >= len(self._tokens):
            raise NotANumber("an expression that ends early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _variable(self, name: str) -> int:
        text = self._variables.get(name)
        if text is None:
            raise NotANumber(f"${name} is not set in the file")
        return number(text.strip() or "0")

    def _stepped(self, name: str, step: str, after: bool) -> int:
        before = self._variable(name)
        self._variables[name] = str(before + (1 if step == "++" else -1))
        return int(self._variables[name]) if after else before


def number(text: str) -> int:
    """A whole number as Bash reads it: decimal, 0x hexadecimal, 0 octal, base#digits."""
    try:
        if "#" in text:
            base, digits = text.split("#", 1)
            return int(digits, int(base))
        if re.fullmatch(r"-?0[0-7]+", text):
            return int(text, 8)
        return _bounded(int(text, 0 if text[:2].lower() == "0x" else 10))
    except ValueError:
        raise NotANumber(f"{text[:80]!r} is not a whole number") from None


def _bounded(value: int) -> int:
    """The value in 64 bits, which wraps as Bash's does."""
    return (value + _LARGEST) % (2 * _LARGEST) - _LARGEST
