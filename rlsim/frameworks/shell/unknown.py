"""Parts of a text that only the environment of a script knows, marked inside the text itself."""

from __future__ import annotations

import re

_BEGIN, _END = "\ue000", "\ue001"
_MARKED = re.compile(f"{_BEGIN}([^{_BEGIN}{_END}]*){_END}")
_BLANKS = re.compile(rf"[ \t\n]+(?![^{_BEGIN}{_END}]*{_END})")
_CODED = re.compile(r"uQ((?:10|[1-9a-f])?[0-9a-f]{2,4})Qu")
_ALL_MARKS = str.maketrans("", "", _BEGIN + _END)
MOST_CHARACTERS = 20_000
"""Characters of one value: a script that makes longer ones is not a launch script."""


def unknown(text: str) -> str:
    """A variable's name, or a command in parentheses, as an unknown part."""
    return f"{_BEGIN}{text.translate(_ALL_MARKS)[:500]}{_END}"


def is_known(text: str) -> bool:
    """Whether the script says all of the text."""
    return _BEGIN not in text


def shown(text: str) -> str:
    """The text with ``$NAME`` or ``$(command)`` for what is unknown."""
    return _MARKED.sub(lambda match: f"${match[1]}", text)


def emptied(text: str) -> str:
    """The text with nothing for what is unknown, as where the environment does not set it."""
    return _MARKED.sub("", text)


def unset_names(text: str) -> tuple[str, ...]:
    """The variables among the unknown parts, each once."""
    return tuple(dict.fromkeys(name for name in _MARKED.findall(text) if re.fullmatch(r"\w+", name)))


def split_blanks(text: str) -> list[str]:
    """The text parted at its blanks, but for those inside an unknown part."""
    return _BLANKS.split(text)


def to_ascii(text: str) -> bytes:
    """The text as bytes of ASCII, for a grammar that may crash on others; ``from_ascii`` gives it back."""
    return re.sub(r"[^\x00-\x7f]", lambda match: f"uQ{ord(match[0]):x}Qu", text).encode("ascii")


def from_ascii(source: bytes) -> str:
    """The text of a part of what ``to_ascii`` made."""
    return re.sub(
        r"uQ((?:10|0?[0-9a-f])?[0-9a-f]{2,4})Qu", lambda match: chr(int(match[1], 16)), source.decode("ascii")
    )


def cleaned(text: str) -> str:
    """A script's text without characters that stand for marks."""
    return text.translate(_ALL_MARKS)
