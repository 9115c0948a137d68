"""``${NAME...}``: defaults, lengths, prefixes, suffixes, replacements and parts of a variable."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from rlsim.frameworks.shell.state import State
from rlsim.frameworks.shell.unknown import is_known, unknown

_REFERENCE = re.compile(r"([!#]?)(\w+|[@*#?$!0-9-])(?:\[([^\]]*)\])?(.*)", re.DOTALL)
_OPERATOR = re.compile(r":?[-=+?]|##?|%%?|//?|\^\^?|,,?|:|@")


def expanded(inner: str, state: State, text_of: Callable[[str], str]) -> str:
    """The value of ``${inner}``; ``text_of`` works out the text after an operator. Unknown where the file is silent."""
    match = _REFERENCE.fullmatch(inner)
    if match is None:
        return unknown(f"{{{inner}}}")
    prefix, name, index, rest = match.groups()
    if prefix == "#" and not rest:
        return _length(name, index, state)
    if prefix == "!":
        target = state.value(name)
        return state.value(target) if is_known(target) and re.fullmatch(r"\w+", target) else unknown(f"{{{inner}}}")
    value = _indexed(name, index, state)
    operator = _OPERATOR.match(rest)
    if operator is None:
        return unknown(name) if value is None else value
    return _applied(name, value, operator[0], rest[operator.end() :], state, text_of)


def _length(name: str, index: str | None, state: State) -> str:
    if index in ("@", "*"):
        return str(len(state.words(name)))
    value = state.value(name)
    return str(len(value)) if is_known(value) else unknown(f"{{#{name}}}")


def special(name: str, state: State) -> str | None:
    """Arguments and the shell's own parameters; None for a variable's name."""
    if name == "#":
        return unknown("#") if state.positional is None else str(len(state.positional))
    if name in ("@", "*"):
        return " ".join(word.text for word in state.words(name))
    if name == "0":
        return state.path
    if name.isdigit():
        arguments = state.positional
        if arguments is None:
            return unknown(name)
        return arguments[int(name) - 1].text if int(name) <= len(arguments) else ""
    return {"?": "0"}.get(name, unknown(name)) if not re.fullmatch(r"\w+", name) else None


def _indexed(name: str, index: str | None, state: State) -> str | None:
    """The value; None where the script does not set it."""
    if name == "BASH_SOURCE":
        return state.path
    parameter = special(name, state)
    if parameter is not None:
        return None if name.isdigit() and not is_known(parameter) else parameter
    if index is None:
        return state.get(name)
    words = state.words(name)
    if index in ("@", "*"):
        return " ".join(word.text for word in words)
    at = state.get(index.lstrip("$")) or index
    return words[int(at)].text if re.fullmatch(r"-?\d+", at) and -len(words) <= int(at) < len(words) else None


def _applied(
    name: str, value: str | None, operator: str, rest: str, state: State, text_of: Callable[[str], str]
) -> str:
    empty = value is None or (operator.startswith(":") and value == "")
    match operator[-1]:
        case "-" | "=" | "+" | "?" if operator in ("-", "=", "+", "?", ":-", ":=", ":+", ":?"):
            if operator[-1] == "+":
                return "" if empty else text_of(rest)
            if not empty:
                return value or ""
            if operator[-1] == "?":
                return unknown(name)
            text = text_of(rest)
            if operator[-1] == "=":
                state.set(name, text)
            return text
    if value is None:
        return unknown(name)
    if not is_known(value) and operator not in ("##", "#", "%", "%%"):
        return unknown(f"{{{name}{operator}{rest}}}")
    return _edited(value, operator, rest, text_of)


def _edited(value: str, operator: str, rest: str, text_of: Callable[[str], str]) -> str:
    match operator:
        case "#" | "##" | "%" | "%%":
            return _trimmed(value, operator, text_of(rest))
        case "/" | "//":
            pattern, _, replacement = rest.partition("/")
            regex = re.compile(_regex(text_of(pattern)))
            return regex.sub(lambda _: text_of(replacement), value, count=0 if operator == "//" else 1)
        case "^" | "^^":
            return value.upper() if operator == "^^" else value[:1].upper() + value[1:]
        case "," | ",,":
            return value.lower() if operator == ",," else value[:1].lower() + value[1:]
        case ":":
            start, _, length = text_of(rest).partition(":")
            if not re.fullmatch(r"\s*-?\d+\s*", start) or not re.fullmatch(r"\s*-?\d*\s*", length):
                return unknown(f"{{{value}:{rest}}}")
            part = value[int(start) :]
            return part[: int(length)] if length.strip() else part
    return value


def _trimmed(value: str, operator: str, pattern: str) -> str:
    """The value without the shortest or longest part at its begin or end that matches."""
    cuts = range(len(value) + 1)
    order = cuts if operator in ("#", "%%") else reversed(cuts)
    for cut in order:
        part, rest = (value[:cut], value[cut:]) if operator[0] == "#" else (value[cut:], value[:cut])
        if fnmatch.fnmatchcase(part, pattern):
            return rest
    return value


def _regex(pattern: str) -> str:
    return fnmatch.translate(pattern).removeprefix("(?s:").removesuffix(")\\Z").removesuffix(")\\z")
