"""Lines for a terminal."""

from __future__ import annotations

import textwrap

WIDTH = 80


def wrapped(text: str, indent: str, first: str | None = None, width: int = WIDTH) -> list[str]:
    """Lines of a text, all but the first indented by ``indent``; paths and keys stay whole."""
    start = indent if first is None else first
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
