"""``rlsim calibrate logs``: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate_logs(
    path: Annotated[Path, typer.Argument(help="A log file, or a folder with one.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="Directory for scenario, profile and report.", show_default=False)],
    base: Annotated[
        Path | None,
        typer.Option("--base", help="Scenario that describes the run: model, GPUs, batch, cap, policy."),
    ] = None,
    arm: Annotated[str | None, typer.Option("--arm", help="Which arm of it.", show_default=False)] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            help="auto, jsonl, wandb-csv, trainer-state, console-dicts, prime-rl, tensorboard, vllm-stats, timelines.",
        ),
    ] = "auto",
    skip: Annotated[int, typer.Option(min=0, help="Steps left out at the start (compilation, filling).")] = 1,
    tables: Annotated[
        Path | None, typer.Option(help="Layer-time tables, for timelines; by default those of the run's GPU beside it.")
    ] = None,
) -> None:
    """Fit costs and lengths to a real run's log: a scenario and a profile that reproduce it, and what stays open."""
    from calibration.runlogs.calibrate import calibrate
    from rlsim.scenario.source import load

    scenario = None if base is None else load(str(base)).resolve(arm)
    print(calibrate(path, scenario, out, kind, skip, tables).text(), end="")
    typer.echo(f"saved to {out}", err=True)
