"""``rlsim report``: parse, call, print; and the command that made what a report shows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer


def report(
    directory: Annotated[Path, typer.Argument(help="What --out saved: all of it, or an arm's folder.")],
    target: Annotated[Path | None, typer.Option("--to", help="File; default: report.html in it.")] = None,
) -> None:
    """Write one HTML page of a saved comparison or run: tables, figures, provenance. It opens offline."""
    from rlsim.studies.report.page import write_report

    print(write_report(directory, target))


def command_of(
    verb: str, scenario: Path, overlays: Sequence[Path], sets: Sequence[str], chosen: Mapping[str, str | None]
) -> str:
    """A command of rlsim as one can type it again, without what says only where results go."""
    words = ["rlsim", verb, str(scenario)]
    words += [f"--{option}={value}" for option, value in chosen.items() if value is not None]
    words += [word for overlay in overlays for word in ("--overlay", str(overlay))]
    words += [word for one in sets for word in ("--set", one)]
    return shlex.join(words)
