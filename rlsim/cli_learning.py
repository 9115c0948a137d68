"""``rlsim calibrate learning``: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate_learning(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Tables of rewards (Parquet, CSV), or folders with rewards.*; several runs: the first one uniform.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Overlay with the section learning.")] = Path("learning.yaml"),
    updates_per_version: Annotated[float, typer.Option(help="Optimizer updates a publication.")] = 1.0,
    asymptote: Annotated[float, typer.Option(help="Success after endless training; taken as known.")] = 0.8,
    steepness: Annotated[float, typer.Option(help="Of the curve; taken as known.")] = 1.0,
    drift_versions: Annotated[float, typer.Option(help="After which difficulty is forgotten; taken as known.")] = 100.0,
    information_exponent: Annotated[
        float,
        typer.Option(help="How gains that stay with prompts are dealt; taken as known. Fitted with several runs."),
    ] = 1.0,
    reinforced: Annotated[
        bool, typer.Option("--reinforced", help="Prompts gain as their successes teach them, and not all alike.")
    ] = False,
    stuck: Annotated[
        bool, typer.Option("--stuck", help="Fit the share of prompts that nothing solves, as a kind of their own.")
    ] = False,
    alike: Annotated[
        bool, typer.Option("--alike", help="Several runs are uniform ones of one task: fit them as one.")
    ] = False,
    success_at: Annotated[float, typer.Option(help="Least reward of a success.")] = 1.0,
) -> None:
    """Fit prompts and progress to the rewards of runs: an overlay for scenarios, intervals, and a held-out loss.

    With several runs of strategies that train on different batches, what batches are worth is fitted too.
    """
    from calibration.learning_fit import Given, fit_learning
    from calibration.learning_report import report_lines, write_overlay
    from calibration.reward_log import read_runs

    given = Given(
        updates_per_version,
        asymptote,
        steepness,
        drift_versions,
        information_exponent=information_exponent,
        gains="reinforced" if reinforced else "alike",
        has_stuck=stuck,
    )
    fit = fit_learning(read_runs(paths, success_at, are_alike=alike), given)
    write_overlay(fit, out)
    for line in report_lines(fit):
        print(line)
    typer.echo(f"saved to {out}", err=True)
