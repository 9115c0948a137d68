"""`rlsim plan`: which GPUs, split and policy, under which limits, and what would change that."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rlsim.cli.options import AsJson, Cluster, Out, Overlays, RayAddress, ScenarioFile, Sets, Workers


def plan(
    scenario: ScenarioFile,
    axes: Annotated[
        list[str],
        typer.Option("--search", help="key=a,b,c or key={from: 1, to: 8, factor: 2}; split={gpus: 32, step: 4}."),
    ] = [],  # noqa: B006
    budget: Annotated[
        list[str], typer.Option(help="max_gpus=N, max_usd_per_hour=X, max_start_lag=N, ...", show_default=False)
    ] = [],  # noqa: B006
    objective: Annotated[
        str | None,
        typer.Option(help="step_seconds, seconds_per_ or usd_per_million_trained_tokens.", show_default=False),
    ] = None,
    arms: Annotated[
        list[str], typer.Option("--arm", help="Arms to choose from, A,B; default: all.", show_default=False)
    ] = [],  # noqa: B006
    sets: Sets = [],  # noqa: B006
    overlays: Overlays = [],  # noqa: B006
    evaluations: Annotated[
        int | None,
        typer.Option(min=4, help="Points simulated at most; larger spaces are searched.", show_default=False),
    ] = None,
    uncertain: Annotated[
        list[str], typer.Option(help="key=a,b,c: values an input may have; choose for all.", show_default=False)
    ] = [],  # noqa: B006
    robust: Annotated[str | None, typer.Option(help="regret (least worst) or mean.", show_default=False)] = None,
    sensitivity: Annotated[
        list[str], typer.Option(help="key=low,high or key=-20%,+20%: does it change the choice?", show_default=False)
    ] = [],  # noqa: B006
    replications: Annotated[
        int | None, typer.Option(min=1, help="Of every contender; default: as the scenario says.", show_default=False)
    ] = None,
    out: Out = None,
    as_json: AsJson = False,
    workers: Workers = None,
    cluster: Cluster = None,
    ray_address: RayAddress = None,
) -> None:
    """Choose the best point of a space of scenarios, and say how sure and how flat that is.

    Exit code 4: no point of the space is feasible.
    """
    from rlsim.cli.runs import executor
    from rlsim.scenario.document import load
    from rlsim.studies.optimize.study import optimize, optimize_request
    from rlsim.studies.output import json_text
    from rlsim.studies.text.optimize import as_text

    request = optimize_request(
        load(str(scenario), [str(overlay) for overlay in overlays], sets),
        axes,
        arms,
        budget,
        objective=objective,
        evaluations=evaluations,
        uncertain=uncertain,
        sensitivity=sensitivity,
        robust_by=robust,
        replications=replications,
    )
    with executor(out, workers, cluster, ray_address, None) as runs:
        result = optimize(request, runs)
    if out is not None:
        from rlsim.studies.optimize.save import save_result

        save_result(out, result)
        print(f"saved to {out}", file=sys.stderr)
    print(json_text(result.to_dict()) if as_json else as_text(result), end="")
    if result.selection is None:
        raise typer.Exit(4)
