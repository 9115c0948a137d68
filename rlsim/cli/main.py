"""The command line: parse, call, print. Results go to stdout, progress and errors to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlsim.cli import calibrate, live, optimize, policies, profile, study, validate
from rlsim.cli import report as reports
from rlsim.cli.options import ArmName, AsJson, Cluster, Out, Overlays, RayAddress, ScenarioFile, Sets, Workers

if TYPE_CHECKING:
    from rlsim.scenario.document import Document

app = typer.Typer(
    help="Simulate reinforcement-learning post-training of language models, before buying the GPUs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
conformance_app = typer.Typer(help="Hold the simulated engine to a real one.", no_args_is_help=True)
calibrate_app = typer.Typer(help="Fit cost models to real runs.", no_args_is_help=True)
app.add_typer(conformance_app, name="conformance")
app.add_typer(calibrate_app, name="calibrate")
app.add_typer(policies.app, name="policies")
calibrate_app.command("torch")(calibrate.calibrate_torch)
calibrate_app.command("transport")(calibrate.calibrate_transport)
app.add_typer(profile.app, name="profile")
calibrate_app.command("tables")(profile.calibrate_tables)
app.command()(policies.import_config)
app.command()(policies.export_config)
calibrate_app.command("vllm")(calibrate.calibrate_vllm)
calibrate_app.command("logs")(calibrate.calibrate_logs)
calibrate_app.command("learning")(calibrate.calibrate_learning)
app.command()(study.explain)
app.command()(live.parity)
app.command()(study.race)
app.command()(reports.report)
app.command()(live.servers)
app.command()(validate.validate)
app.command()(study.sweep)
app.command()(optimize.plan)


def main() -> None:
    """Entry point: errors the user can act on end with one line and exit code 2, a deadlock with 3."""
    from rlsim.cli.options import let_readers_leave
    from rlsim.core.errors import DeadlockError, RlsimError

    let_readers_leave()
    try:
        app()
    except DeadlockError as error:
        print(error, file=sys.stderr)
        sys.exit(3)
    except RlsimError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


@app.command()
def run(
    scenario: ScenarioFile,
    arm: ArmName = None,
    sets: Sets = [],  # noqa: B006
    overlays: Overlays = [],  # noqa: B006
    out: Out = None,
    as_json: AsJson = False,
    workers: Workers = None,
    live: Annotated[
        str | None, typer.Option(help="Run it for real instead: vllm, vllm-paced, openai or fake.", show_default=False)
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="With --live: engines and trainer as actors of a cluster (ray).", show_default=False),
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(help="Of an existing Ray cluster; RAY_ADDRESS, or a local one.", show_default=False)
    ] = None,
) -> None:
    """Simulate one scenario, or one arm of it, and say what bounds it; or run it live.

    Exit codes of a live run: 0 all steps; 1 a mistake in the program; 2 refused before it started; 3 nothing left to
    happen; 4 stopped before the last step (signal, lost replicas or trainer, full disk), its log whole; 130 a second
    Ctrl-C.
    """
    if live is not None:
        from rlsim.cli.live import EnginePlacement, run_live

        with _provenance(out, "run", scenario, overlays, sets, arm=arm, live=live, cluster=cluster):
            run_live(_load(scenario, overlays, sets), live, arm, out, as_json, EnginePlacement(cluster, ray_address))
        return
    if cluster is not None or ray_address is not None:
        from rlsim.core.errors import ParameterError

        raise ParameterError("--cluster", cluster or ray_address, "only with --live")
    with _provenance(out, "run", scenario, overlays, sets, arm=arm):
        _compare(_load(scenario, overlays, sets), out, as_json, workers, arm=arm, single=True)


@app.command()
def compare(
    scenario: ScenarioFile,
    sets: Sets = [],  # noqa: B006
    overlays: Overlays = [],  # noqa: B006
    out: Out = None,
    as_json: AsJson = False,
    workers: Workers = None,
    cluster: Cluster = None,
    ray_address: RayAddress = None,
) -> None:
    """Simulate all arms of a scenario with common random numbers and put them side by side."""
    with _provenance(out, "compare", scenario, overlays, sets):
        _compare(_load(scenario, overlays, sets), out, as_json, workers, cluster, ray_address)


@app.command()
def trace(
    directory: Annotated[Path, typer.Argument(help="A run saved with --out (a replication's directory).")],
    target: Annotated[Path | None, typer.Option("--to", help="File; default: trace.json.gz beside the tables.")] = None,
) -> None:
    """Write a timeline that opens in Perfetto (ui.perfetto.dev)."""
    from rlsim.results.trace import write_trace
    from rlsim.studies.save import load_tables

    path = target or directory / "trace.json.gz"
    write_trace(path, load_tables(directory))
    print(path)


@app.command()
def plot(
    directory: Annotated[Path, typer.Argument(help="A run saved with --out (a replication's directory).")],
) -> None:
    """Draw the timeline, the running requests and the histograms of a saved run."""
    from rlsim.studies.runs.files import save_run_figures
    from rlsim.studies.save import load_tables

    for path in save_run_figures(directory, load_tables(directory), directory.parent.name):
        print(path)


@app.command()
def replay(
    directory: Annotated[Path, typer.Argument(help="A run saved with --out (a replication's directory).")],
) -> None:
    """Put a recorded run through a fresh controller: every command must come again."""
    from rlsim.studies.save import replay_saved

    print(replay_saved(directory))


@conformance_app.command("vllm")
def conformance_vllm(
    cases: Annotated[int, typer.Option(help="Random workloads.")] = 300,
    seed: Annotated[int, typer.Option(help="Of the workloads.")] = 0,
) -> None:
    """Drive the installed vLLM's own scheduler and the simulated one on the same requests, step by step."""
    from calibration.vllm.conformance import run_conformance
    from rlsim.engine.scheduler import Scheduler

    report = run_conformance(Scheduler, cases=cases, seed=seed)
    print(report.table())
    if report.differences:
        raise typer.Exit(1)


@calibrate_app.command("replay")
def calibrate_replay(
    directory: Annotated[
        Path,
        typer.Argument(
            help="A recorded vLLM run: a folder with requests.jsonl, meta.json and, if there are any, timeseries.csv "
            "and config.json; or a folder of such folders, each of which is replayed."
        ),
    ],
    tables: Annotated[
        Path | None,
        typer.Option(
            help="Folder of its layer-time tables: dense.csv, attention.csv, per_sequence.csv and, of a mixture of "
            "experts, moe.csv. Default: the one of GPU, model and split in kernel-tables beside the run."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", help="The model's config.json. Default: the one in the run's folder, or the name's shape."
        ),
    ] = None,
) -> None:
    """Replay a real vLLM run: fit the host overhead on its first half, score the second."""
    from calibration.serving.replay import replay_report

    print(replay_report(directory, tables, config).table())


def _load(scenario: Path, overlays: list[Path], sets: list[str]) -> Document:
    from rlsim.scenario.document import load

    return load(str(scenario), [str(overlay) for overlay in overlays], sets)


@contextmanager
def _provenance(
    out: Path | None, verb: str, scenario: Path, overlays: list[Path], sets: list[str], **chosen: str | None
) -> Iterator[None]:
    """Leave the command beside what it saved; also where a live run that stopped early says so by its exit code."""
    code: typer.Exit | None = None
    try:
        yield
    except typer.Exit as ended:
        code = ended
    if out is not None and out.is_dir():
        from rlsim.cli.report import command_of
        from rlsim.studies.save import save_provenance

        save_provenance(out, command_of(verb, scenario, overlays, sets, chosen))
    if code is not None:
        raise code


def _compare(
    document: Document,
    out: Path | None,
    as_json: bool,
    workers: int | None,
    cluster: str | None = None,
    ray_address: str | None = None,
    *,
    arm: str | None = None,
    single: bool = False,
) -> None:
    from rlsim.cli.runs import executor
    from rlsim.studies.compare import compare_plans, plans, run_count
    from rlsim.studies.output import json_text
    from rlsim.studies.text.comparison import as_text

    chosen = document.chosen(arm) if single else None
    resolved = plans(document, chosen)
    with executor(out, workers, cluster, ray_address, run_count(resolved)) as runs:
        comparison = compare_plans(resolved, runs, out, document.dropped_rows([chosen] if chosen else ()))
    if out is not None:
        from rlsim.studies.save import save_comparison

        save_comparison(out, comparison)
        print(f"saved to {out}", file=sys.stderr)
    print(json_text(comparison.to_dict()) if as_json else as_text(comparison, detailed=single), end="")
