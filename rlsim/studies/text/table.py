"""The look of tables, and how they become text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

FILE_WIDTH = 118
"""Columns of output that goes to no terminal and where COLUMNS says nothing."""


def rendered(tables: Iterable[Table], lines: Iterable[str] = ()) -> str:
    """Tables, each with an empty line after it, then lines, as wide as the terminal."""
    out, screen = StringIO(), Console()
    width = screen.width if screen.is_terminal or "COLUMNS" in os.environ else FILE_WIDTH
    console = Console(file=out, width=width, highlight=False, force_terminal=screen.is_terminal)
    for table in tables:
        console.print(table)
        console.print()
    for line in lines:
        console.print(line, markup=False)
    return out.getvalue()


def titled_table(title: str, first: str, columns: Iterable[str]) -> Table:
    """Names in the first column, which does not wrap, and numbers in the others."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table
