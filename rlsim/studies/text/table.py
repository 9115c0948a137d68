"""The look of tables with a title."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.table import Table


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
