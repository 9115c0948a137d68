"""``rlsim validate``: parse, call, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlsim.cli.options import AsJson, Cluster, Out, RayAddress, Workers


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
    out: Out = None,
    workers: Workers = None,
    cluster: Cluster = None,
    ray_address: RayAddress = None,
) -> None:
    """Hold predictions to published measurements; misses and failures are rows like the others."""
    from rlsim.cli.runs import executor
    from rlsim.studies.output import write_text
    from rlsim.studies.validation import text
    from rlsim.studies.validation.entries import find_entries, left_out
    from rlsim.studies.validation.running import planned_runs, run_entries

    entry_files, without = find_entries(entries or [], folder), left_out(entries or [], folder)
    planned = planned_runs(entry_files, replications)
    with executor(out, workers, cluster, ray_address, planned.run_count) as runs:
        rows = run_entries(entry_files, planned, runs)
    if out is not None:
        write_text(out / "validation.json", text.as_json(entry_files, rows, without))
        print(f"saved to {out}", file=sys.stderr)
    formatted = text.as_json if as_json else text.as_text
    print(formatted(entry_files, rows, without), end="")
    if markdown is not None:
        from rlsim.studies.validation.page import put

        put(markdown, entry_files, rows, without)
        print(f"written to {markdown}", file=sys.stderr)
    if figure is not None:
        from rlsim.studies.validation.page import draw

        draw(figure, rows)
        print(f"drawn in {figure}", file=sys.stderr)
