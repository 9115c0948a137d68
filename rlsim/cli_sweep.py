"""`rlsim sweep`: factors of a scenario, all their combinations or a list of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlsim.cli_options import AsJson, Cluster, Kept, Overlays, RayAddress, ScenarioFile, Workers

if TYPE_CHECKING:
    from rlsim.planning.sweep.orders import Makers

Factors = Annotated[
    list[str],
    typer.Option("--set", help="key.path=a,b,c, a factor; several keys together: k:l=1:2,3:4.", show_default=False),
]


def sweep(
    scenario: ScenarioFile,
    sets: Factors = [],  # noqa: B006
    lists: Annotated[
        Path | None,
        typer.Option("--list", help="YAML file: a list of mappings of keys to values, a variant each."),
    ] = None,
    arms: Annotated[
        list[str], typer.Option("--arm", help="Arms, A,B: a factor as well; default: all.", show_default=False)
    ] = [],  # noqa: B006
    overlays: Overlays = [],  # noqa: B006
    replications: Annotated[
        int | None, typer.Option(min=1, help="Of every variant; default: as the scenario says.", show_default=False)
    ] = None,
    baseline: Annotated[
        list[str], typer.Option(help="factor=level of the variant to compare with; default: the first.")
    ] = [],  # noqa: B006
    metrics: Annotated[
        list[str], typer.Option("--metric", help="Columns of the table, the first with ratios.", show_default=False)
    ] = [],  # noqa: B006
    out: Kept = None,
    as_json: AsJson = False,
    workers: Workers = None,
    cluster: Cluster = None,
    ray_address: RayAddress = None,
) -> None:
    """Simulate every combination of the factors' values on the same luck, and compare.

    Everything is checked before anything runs. Exit code 3: some variants did not come to their end; the others are
    told.
    """
    from rlsim.cli_progress import progress
    from rlsim.planning.sweep import present, study
    from rlsim.planning.sweep.store import opened
    from rlsim.planning.sweep.variants import baseline_of, variants
    from rlsim.results.atomic import replacing
    from rlsim.scenario.source import load
    from rlsim.scenario.variation import arms_factor, choices, factor, listed

    asked = {text: factor(text) for text in sets}
    fixed = [text for text, one in asked.items() if len(one.levels) == 1 and ":" not in one.name]
    document = load(str(scenario), [str(overlay) for overlay in overlays], fixed)
    arm = arms_factor(arms, document.arms())
    factors = [*([arm] if arm is not None else []), *(one for text, one in asked.items() if text not in fixed)]
    made = variants(document, choices(factors, listed(str(lists)) if lists is not None else ()))
    against = baseline_of(made, baseline)
    count = replications or made[0].scenario.run.replications
    with opened(out) as store, makers_of(cluster, ray_address, workers) as makers, progress(len(made) * count) as done:
        told = study.sweep(made, against, count, store, makers, metrics or study.METRICS, done)
    text = present.as_json(told)
    if out is not None:
        with replacing(out / "sweep.json") as part:
            part.write_text(text, encoding="utf-8")
        print(f"saved to {out}", file=sys.stderr)
    print(text if as_json else present.as_text(told), end="")
    if any(result.fault for result in told.results):
        raise typer.Exit(3)


def makers_of(cluster: str | None, ray_address: str | None, workers: int | None) -> Makers:
    """Who makes the runs; ``ParameterError`` for an unknown place, ``RlsimError`` where its extra is missing."""
    from rlsim.core.errors import ParameterError, unknown
    from rlsim.planning.sweep.orders import Processes, RayTasks

    if cluster is None:
        if ray_address is not None:
            raise ParameterError("--ray-address", ray_address, "only with --cluster ray")
        return Processes(workers)
    if cluster != "ray":
        raise unknown("--cluster", cluster, ["ray"])
    return RayTasks(ray_address)
