"""``rlsim validate``: parse, call, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlsim.cli.options import AsJson, Workers


def validate(
    entries: Annotated[
        list[str] | None, typer.Argument(help="Labels (A1) or files; default: all.", show_default=False)
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where entries are.")] = Path("scenarios/published"),
    as_json: AsJson = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Put the tables into this file, between its markers.", show_default=False)
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw predicted against measured, a PNG.")] = None,
    replications: Annotated[
        int | None, typer.Option(min=1, help="In place of each entry's own; 1: no intervals.", show_default=False)
    ] = None,
    workers: Workers = None,
) -> None:
    """Hold predictions to published measurements; misses and failures are rows like the others."""
    from rlsim.cli.options import progress
    from rlsim.studies.validation import text
    from rlsim.studies.validation.entries import find_entries, left_out
    from rlsim.studies.validation.running import run_entries, tasks

    sources, without = find_entries(entries or [], folder), left_out(entries or [], folder)
    with progress(len(tasks(sources, replications))) as more:
        rows = run_entries(sources, lambda outcome: more(1), workers, replications)
    told = text.as_json if as_json else text.as_text
    print(told(sources, rows, without), end="")
    if markdown is not None:
        from rlsim.studies.validation.page import put

        put(markdown, sources, rows, without)
        print(f"written to {markdown}", file=sys.stderr)
    if figure is not None:
        from rlsim.studies.validation.page import draw

        draw(figure, rows)
        print(f"drawn in {figure}", file=sys.stderr)
