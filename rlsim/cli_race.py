"""``rlsim race``: parse, call, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlsim.cli_options import AsJson, Out, Overlays, Sets, Workers


def race(
    scenario: Annotated[Path, typer.Argument(help="Scenario file (YAML) with a learning section.", show_default=False)],
    to: Annotated[float, typer.Option("--to", min=0, max=1, help="Success that the arms are to reach.")] = 0.6,
    sets: Sets = [],  # noqa: B006
    overlays: Overlays = [],  # noqa: B006
    out: Out = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Race the arms to a success rate: rollouts, tokens, time and money that each takes, and what it wastes."""
    from rlsim.cli_progress import progress
    from rlsim.planning import race_text
    from rlsim.planning.comparison import Comparison, plans, replications
    from rlsim.planning.race import run_race
    from rlsim.scenario.source import load

    document = load(str(scenario), [str(overlay) for overlay in overlays], sets)
    with progress(len(replications(plans(document), None))) as more:
        told = run_race(document, to, out, workers, lambda outcome: more(1))
    print(race_text.as_json(told) if as_json else race_text.as_text(told), end="")
    if out is not None:
        from rlsim.cli_report import command_of
        from rlsim.planning.save import save_comparison, save_provenance

        save_comparison(out, Comparison(told.name, told.arms, ()))
        figures = race_text.save_figures(told, out)
        save_provenance(out, command_of("race", scenario, overlays, sets, {"to": f"{to:g}"}))
        print(f"saved to {out}: {', '.join(path.name for path in figures)}", file=sys.stderr)
