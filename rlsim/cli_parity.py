"""``rlsim parity``: parse, call, print."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlsim.cli_options import ArmName, AsJson, Out, Overlays, ScenarioFile, Sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlsim.live.run import Backend
    from rlsim.planning.parity.study import Calibrate, Fitted
    from rlsim.world.making import Run


def parity(
    scenario: ScenarioFile,
    live: Annotated[str, typer.Option(help="Engine: vllm, vllm-paced, openai or fake.", show_default=False)],
    arm: ArmName = None,
    policies: Annotated[
        str | None,
        typer.Option(help="Rank these, A,B,C: arms of the scenario, or presets in its place.", show_default=False),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Live runs of each policy that count; policies take turns.")] = 3,
    tries: Annotated[int, typer.Option(min=1, help="Live runs for one that counts: late steps.")] = 3,
    calibrate: Annotated[
        bool | None,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="Fit costs to live runs of their own first; default: unless the engine is emulated.",
            show_default=False,
        ),
    ] = None,
    sets: Sets = [],  # noqa: B006
    overlays: Overlays = [],  # noqa: B006
    out: Out = None,
    markdown: Annotated[Path | None, typer.Option(help="Append the table to this file.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Hold a prediction against live runs: calibrate, predict, run live, compare; the error is taken apart."""
    from rlsim.live.backends import backend
    from rlsim.planning.parity import report
    from rlsim.planning.parity.study import Ask, chosen_plans, study
    from rlsim.scenario.source import load

    document = load(str(scenario), [str(overlay) for overlay in overlays], sets)
    names = [name.strip() for name in policies.split(",")] if policies else []
    name, plans = chosen_plans(document, arm, names)
    engine = backend(live)
    ask = Ask(live, repeats, tries, _fit(engine, calibrate), out)
    told = study(name, plans, engine, ask, lambda line: print(line, file=sys.stderr, flush=True))
    command = shlex.join(["rlsim", *sys.argv[1:]])
    print(report.as_json(told, command) if as_json else report.as_text(told), end="")
    if markdown is not None:
        report.append_markdown(told, markdown, command)
    if out is not None:
        report.save(told, out, command)
        print(f"saved to {out}", file=sys.stderr)


def _fit(engine: Backend, wanted: bool | None) -> Calibrate | None:
    """The calibration, by default where the engine's speed is found, not put in."""
    return _fitted if (not engine.emulated if wanted is None else wanted) else None


def _fitted(runs: Sequence[Run]) -> Fitted:
    from calibration.live_fit import fit_live
    from rlsim.planning.parity.study import Fitted

    found = fit_live(runs)
    return Fitted(found.overrides, found.lines)
