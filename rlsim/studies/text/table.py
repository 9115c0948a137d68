"""The look of tables and estimates, and how tables become text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from textwrap import fill

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table

from rlsim.results.statistics import Estimate

TEXT_WIDTH = 80
"""Columns of sentences."""
GAP = 2
"""Spaces between two columns of a table."""
FILE_WIDTH = 118
"""Columns of output that goes to no terminal and where COLUMNS says nothing."""


def rendered(
    tables: Iterable[Table], lines: Iterable[str] = (), width: int | None = None, first: Iterable[str] = ()
) -> str:
    """Lines that come ``first``, tables, each with an empty line after it, then ``lines``.

    As wide as the terminal, or ``width`` and without style. A table that is wider is cut into several, each with the
    columns on the left.
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
        if table.title:  # Above the table, which may be narrower than it.
            console.print(str(table.title), style="bold", markup=False)
            table.title = None
        for part in _parts(table, width):
            console.print(part, markup=False)
            console.print()
    for line in lines:
        console.print(line, markup=False)
    return out.getvalue()


def _parts(table: Table, width: int) -> list[Table]:
    """The table, or where its numbers do not fit side by side, tables of some columns each; no cell is cut."""
    texts = next((index for index, column in enumerate(table.columns) if column.justify != "left"), len(table.columns))
    if texts == len(table.columns):
        return [table]
    left = [min(_least_width(column), width // (2 * texts)) for column in table.columns[:texts]]
    parts, used = [list[Column]()], sum(left) + GAP * texts
    room = used
    for column in table.columns[texts:]:
        if parts[-1] and used + _least_width(column) > width:
            parts.append([])
            used = room
        parts[-1].append(column)
        used += _least_width(column) + GAP
    return [_part([*table.columns[:texts], *part], left, width) for part in parts]


def _part(columns: Sequence[Column], left: Sequence[int], width: int) -> Table:
    """Some columns of a table, each as wide as its cells need; headings get what is left of the width."""
    cells = zip(*(list(map(str, column.cells)) for column in columns), strict=True)
    part = new_table(None, [str(column.header) for column in columns], cells, texts=len(left), no_wrap=False)
    widths = [*left, *map(_least_width, columns[len(left) :])]
    spare = width - sum(widths) - GAP * (len(widths) - 1)
    for column, least in zip(part.columns, widths, strict=True):
        more = min(max(0, spare), max(0, cell_len(str(column.header)) - least))
        column.width = least + more
        spare -= more
    return part


def _least_width(column: Column) -> int:
    """Columns of text in which every cell is on one line and no word of the heading is cut."""
    words = str(column.header).split()
    return max((cell_len(str(text)) for text in (*column.cells, *words)), default=0)


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
