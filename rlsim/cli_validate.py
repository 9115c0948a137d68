"""``rlsim validate``: parse, call, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def validate(
    entries: Annotated[
        list[str] | None, typer.Argument(help="Labels (A1) or files; default: all.", show_default=False)
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where entries are.")] = Path("scenarios/published"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Put the tables into this file, between its markers.", show_default=False)
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw predicted against measured, a PNG.")] = None,
    replications: Annotated[
        int | None, typer.Option(min=1, help="In place of each entry's own; 1: no intervals.", show_default=False)
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; default: one a core.", show_default=False)] = None,
) -> None:
    """Hold predictions to published measurements; misses and failures are rows like the others."""
    from rlsim.planning.validation import text
    from rlsim.planning.validation.entries import find_entries, left_out
    from rlsim.planning.validation.running import run_entries, tasks

    sources, without = find_entries(entries or [], folder), left_out(entries or [], folder)
    runs, done = len(tasks(sources, replications)), 0

    def tell(one: object) -> None:
        nonlocal done
        done += 1
        print(f"{done}/{runs} {getattr(one, 'name', '')}", file=sys.stderr, flush=True)

    rows = run_entries(sources, tell, workers, replications)
    told = text.as_json if as_json else text.as_text
    print(told(sources, rows, without), end="")
    if markdown is not None:
        from rlsim.planning.validation.markdown import put

        put(markdown, sources, rows, without)
        print(f"written to {markdown}", file=sys.stderr)
    if figure is not None:
        from rlsim.planning.validation.figure import draw

        draw(figure, rows)
        print(f"drawn in {figure}", file=sys.stderr)
