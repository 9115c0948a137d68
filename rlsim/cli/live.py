"""`rlsim run --live`: the same scenario with real engines.

``rlsim parity``: parse, call, print.

`rlsim servers`: what OpenAI-compatible servers offer a live run.
"""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlsim.cli.options import ArmName, AsJson, Out, Overlays, ScenarioFile, Sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlsim.executor.run import FinishedRun
    from rlsim.live.run import Backend
    from rlsim.live.site import Site
    from rlsim.scenario.document import Document
    from rlsim.scenario.live import Live
    from rlsim.studies.live import LiveReport
    from rlsim.studies.parity.study import Calibrate, Fitted


BROKEN, DEADLOCK, STOPPED = 1, 3, 4
"""Exit codes of a run that did not come to its last step: a mistake in the program, nothing left to happen, something
that stopped it (a signal, a lost engine or trainer, a full disk). What it did is in its log."""


@dataclass(frozen=True, slots=True)
class EnginePlacement:
    """Where engines and trainer are to be."""

    cluster: str | None = None
    """None: processes of this host; ``ray``."""
    ray_address: str | None = None
    """Of an existing cluster."""


HERE = EnginePlacement()


def run_live(
    document: Document, engine: str, arm: str | None, out: Path | None, as_json: bool, where: EnginePlacement = HERE
) -> None:
    """Run one arm of a scenario live, show it like a simulated one, and say what stopped it."""
    from rlsim.live.run import StoppedError
    from rlsim.studies.compare import plans
    from rlsim.studies.live import run_arm

    name, plan = next(iter(plans(document, document.chosen(arm)).items()))
    try:
        with _site(where, plan.scenario.live) as site:
            report = run_arm(name, plan, engine, out, site=site)
    except StoppedError as stopped:
        print(stopped, file=sys.stderr)
        raise typer.Exit(STOPPED) from None
    _show(report, out, as_json)
    code = _say_faults(report)
    if code:
        raise typer.Exit(code)


def _show(report: LiveReport, out: Path | None, as_json: bool) -> None:
    from rlsim.studies.live import learning_text
    from rlsim.studies.output import json_text
    from rlsim.studies.save import save_comparison
    from rlsim.studies.text.comparison import as_text

    if out is not None and not report.unsaved:
        if report.comparison is not None:
            save_comparison(out, report.comparison)
        print(f"saved to {out}", file=sys.stderr)
    if report.comparison is not None:
        shown = report.comparison
        print(json_text(shown.to_dict()) if as_json else as_text(shown, detailed=True), end="")
    if not as_json:
        print(learning_text(report.run), end="")


def _say_faults(report: LiveReport) -> int:
    """On stderr; the exit code."""
    import traceback

    from rlsim.core.errors import DeadlockError, RlsimError

    for what, (counts, first) in report.run.ending.unserved.items():
        if counts:
            told_as = "the trajectory was told so" if what == "tool" else "its reward counts as 0"
            number = ", ".join(f"{count} {record}" for record, count in sorted(counts.items()))
            print(f"{what} faults: {number}; {told_as} (first: {first})", file=sys.stderr)
    if report.unsaved:
        print(report.unsaved, file=sys.stderr)
    fault = report.fault
    if fault is None:
        return STOPPED if report.unsaved else 0
    if not isinstance(fault, RlsimError):
        traceback.print_exception(fault)
        return BROKEN
    print(fault, file=sys.stderr)
    return DEADLOCK if isinstance(fault, DeadlockError) else STOPPED


def _site(where: EnginePlacement, live: Live) -> AbstractContextManager[Site]:
    """``ParameterError`` for what is no place, ``RlsimError`` where its extra is missing."""
    from rlsim.core.errors import ParameterError, unknown
    from rlsim.live.backends import HERE

    if where.cluster is None:
        if where.ray_address is not None:
            raise ParameterError("--ray-address", where.ray_address, "only with --cluster ray")
        return nullcontext(HERE)
    if where.cluster != "ray":
        raise unknown("--cluster", where.cluster, ["ray"])
    from rlsim.live.ray.cluster import RaySite

    return RaySite(where.ray_address, live.placement)


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
    from rlsim.scenario.document import load
    from rlsim.studies.parity import report
    from rlsim.studies.parity.study import ParityOptions, chosen_plans, study

    document = load(str(scenario), [str(overlay) for overlay in overlays], sets)
    names = [name.strip() for name in policies.split(",")] if policies else []
    name, plans = chosen_plans(document, arm, names)
    engine = backend(live)
    ask = ParityOptions(live, repeats, tries, _fit(engine, calibrate), out)
    parity_study = study(name, plans, engine, ask, lambda line: print(line, file=sys.stderr, flush=True))
    command = shlex.join(["rlsim", *sys.argv[1:]])
    print(report.as_json(parity_study, command) if as_json else report.as_text(parity_study), end="")
    if markdown is not None:
        report.append_markdown(parity_study, markdown, command)
    if out is not None:
        report.save(parity_study, out, command)
        print(f"saved to {out}", file=sys.stderr)


def _fit(engine: Backend, wanted: bool | None) -> Calibrate | None:
    """The calibration, by default where the engine's speed is found, not put in."""
    return _fitted if (not engine.emulated if wanted is None else wanted) else None


def _fitted(runs: Sequence[FinishedRun]) -> Fitted:
    from calibration.live_runs.fit import fit_live
    from rlsim.studies.parity.study import Fitted

    fit = fit_live(runs)
    return Fitted(fit.overrides, fit.lines)


def servers(
    urls: Annotated[list[str], typer.Argument(help="Base URLs: http://HOST:PORT/v1.", show_default=False)],
    model: Annotated[str, typer.Option(help="Name of the model there; default: the first listed.")] = "",
    api_key_env: Annotated[str, typer.Option(help="Environment variable that holds the servers' key.")] = "",
    allow_remote: Annotated[bool, typer.Option(help="Accept servers on other machines.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask servers what they offer a live run; each makes about thirty calls of up to sixteen tokens."""
    import asyncio

    from rlsim.live.openai.probe import probe_all
    from rlsim.live.openai.settings import server_settings

    servers_found = asyncio.run(probe_all(server_settings(urls, model, api_key_env, allow_remote)))
    if as_json:
        sys.stdout.write(json.dumps([dict(one.rows()) for one in servers_found], indent=1) + "\n")
        return
    for one in servers_found:
        sys.stdout.write("".join(f"{what:<23}{value}\n" for what, value in one.rows()) + "\n")
