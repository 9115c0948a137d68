"""The look of tables and estimates, and how tables become text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from textwrap import fill

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rlsim.results.statistics import Estimate

TEXT_WIDTH = 80
"""Columns of sentences."""
FILE_WIDTH = 118
"""Columns of output that goes to no terminal and where COLUMNS says nothing."""


def rendered(
    tables: Iterable[Table], lines: Iterable[str] = (), width: int | None = None, first: Iterable[str] = ()
) -> str:
    """Lines that come ``first``, tables, each with an empty line after it, then ``lines``.

    As wide as the terminal, or ``width`` and without style.
    """
    out, screen = StringIO(), Console()
    is_styled = width is None and screen.is_terminal
    if width is None:
        width = screen.width if is_styled or "COLUMNS" in os.environ else FILE_WIDTH
        console = Console(file=out, width=width, highlight=False, force_terminal=is_styled)
    else:
        console = Console(file=out, width=width, highlight=False)
    for line in first:
        console.print(line, markup=False)
    for table in tables:
        console.print(table, markup=False)
        console.print()
    for line in lines:
        console.print(line, markup=False)
    return out.getvalue()


def wrapped(line: str, indent: int | None = None) -> str:
    """The line in ``TEXT_WIDTH`` columns; what does not fit goes on ``indent`` columns in, 4 beyond its own."""
    below = " " * (len(line) - len(line.lstrip()) + 4 if indent is None else indent)
    return fill(line, TEXT_WIDTH, subsequent_indent=below, break_long_words=False, break_on_hyphens=False)


def new_table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Iterable[str]],
    *,
    texts: int = 1,
    no_wrap: bool = True,
    folds: bool = False,
    edges: bool = False,
    collapses: bool = True,
) -> Table:
    """A table whose first columns, ``texts`` of them, are aligned left and whose others, numbers, right.

    ``no_wrap`` holds for the first column; ``folds`` breaks long words instead of cutting them.
    """
    table = Table(title=title, title_justify="left", title_style="bold", header_style="", box=SIMPLE_HEAD)
    table.show_edge, table.pad_edge, table.collapse_padding = edges, edges, collapses
    for index, column in enumerate(columns):
        justify, overflow = "left" if index < texts else "right", "fold" if folds else "ellipsis"
        table.add_column(column, justify=justify, overflow=overflow, no_wrap=no_wrap and not index)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    return table


def plus_minus(estimate: Estimate, mean: Callable[[float], str], half: Callable[[float], str] | None = None) -> str:
    """The mean and half the width of its interval; the mean alone where there is no interval."""
    if estimate.low is None or estimate.high is None:
        return mean(estimate.mean)
    return f"{mean(estimate.mean)} ± {(half or mean)((estimate.high - estimate.low) / 2)}"
