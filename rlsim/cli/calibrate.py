"""The command that calibrates an inference engine on this machine.

Commands that calibrate the trainer and the paths of the weights on this machine.

``rlsim calibrate learning``: parse, call, print.

``rlsim calibrate logs``: parse, call, print.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

Budget = Annotated[str, typer.Option("--budget", help="Time for measuring: 90s, 5m, 1h.")]
ProfileOut = Annotated[Path, typer.Option("--out", help="Profile file; other sections in it are kept.")]
INTERRUPTED = 130


def calibrate_torch(
    model: Annotated[str, typer.Option(help="Folder of a config.json, a catalogue name, or a built-in shape.")] = (
        "small6x512"
    ),
    device: Annotated[str, typer.Option(help="auto, cuda or cpu.")] = "auto",
    out: ProfileOut = Path("profile.json"),
    budget: Budget = "5m",
    processes: Annotated[int | None, typer.Option(help="FSDP ranks; default: one a GPU.", show_default=False)] = None,
    most_tokens: Annotated[
        int | None, typer.Option(help="Of the largest micro-batch; default: as budget and memory allow.")
    ] = None,
) -> None:
    """Measure the training step with torch on this machine and fit the trainer's costs."""
    from calibration.measure.campaign import TimeBudget
    from calibration.trainer import profile as torch_profile
    from calibration.trainer.bench import recipe_for

    seconds = TimeBudget(seconds_of(budget))
    request = torch_profile.TorchRequest(model, device, out, seconds, processes, most_tokens, _command())
    try:
        profile = torch_profile.calibrate_torch(request, lambda line: print(line, file=sys.stderr))
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    for line in torch_profile.report(profile, recipe_for(model, device).architecture):
        print(line)


def seconds_of(text: str) -> float:
    """Seconds of ``90s``, ``5m`` or ``1h``; raises ``ParameterError`` at ``budget``."""
    from rlsim.core.errors import ParameterError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) == 0:
        raise ParameterError("budget", text, "a time above zero: 90s, 5m, 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _command() -> str:
    """As it was typed, less the folder of the program."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])


def calibrate_transport(
    out: ProfileOut = Path("profile.json"),
    budget: Budget = "1m",
    size: Annotated[str, typer.Option("--bytes", help="Largest parcel: 64M, 1G.")] = "256M",
    paths: Annotated[
        list[str] | None, typer.Option("--path", help="Path to measure; default: all here.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="cuda: broadcast between two GPUs; cpu: between processes.")] = "cpu",
    folder: Annotated[Path | None, typer.Option(help="For files; default: beside the profile.")] = None,
) -> None:
    """Measure how weights move between processes of this machine and fit the sync costs."""
    from calibration.measure.campaign import TimeBudget
    from calibration.transport import profile as transport_profile
    from calibration.transport.paths import available

    request = transport_profile.TransportRequest(
        out, TimeBudget(seconds_of(budget)), bytes_of(size), tuple(paths or available()), device, folder, _command()
    )
    try:
        profile = transport_profile.calibrate_transport(request, lambda line: print(line, file=sys.stderr))
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    for line in transport_profile.report(profile):
        print(line)


def bytes_of(text: str) -> int:
    """Bytes of ``64M`` or ``1G`` (powers of 1024); raises ``ParameterError`` at ``bytes``."""
    from rlsim.core.errors import ParameterError

    match = re.fullmatch(r"(\d+)\s*([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ParameterError("bytes", text, "a size: 4M, 256M, 1G")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


def calibrate_vllm(
    model: Annotated[str, typer.Option(help="Folder of a config.json, or a built-in shape.")] = "small6x512",
    device: Annotated[str, typer.Option(help="auto, cuda or cpu.")] = "auto",
    out: Annotated[Path, typer.Option(help="Profile file; other sections in it are kept.")] = Path("profile.json"),
    budget: Annotated[str, typer.Option(help="Time for all of it: 90s, 10m, 1h.")] = "10m",
    model_name: Annotated[
        str | None, typer.Option(help="What scenarios call the model; default: the folder.", show_default=False)
    ] = None,
    tensor_parallel: Annotated[int, typer.Option(help="GPUs of the engine.")] = 1,
    max_num_seqs: Annotated[int | None, typer.Option(help="Sequences a step; default by device.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="Tokens a step; default by device.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Tokens a sequence; default by device and model.")] = None,
    threads: Annotated[int, typer.Option(help="OpenMP threads of the engine on a CPU.")] = 1,
    tolerance: Annotated[float, typer.Option(help="Stop when intervals move no step by more than this.")] = 0.05,
) -> None:
    """Run real vLLM on this machine and fit the law of its steps, with held-out errors and intervals."""
    from calibration.vllm.profile import VllmRequest, calibrate_vllm

    request = VllmRequest(
        model=model,
        device=device,
        out=out,
        budget_seconds=seconds_of(budget),
        command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        model_name=model_name,
        tensor_parallel=tensor_parallel,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        threads=threads,
        tolerance=tolerance,
    )
    try:
        profile = calibrate_vllm(request, lambda line: print(line, file=sys.stderr, flush=True))
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    for line in profile.lines():
        print(line)


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
    from calibration.rewards.fit import LearningSettings, fit_learning
    from calibration.rewards.log import read_runs
    from calibration.rewards.report import report_lines, write_overlay

    settings = LearningSettings(
        updates_per_version,
        asymptote,
        steepness,
        drift_versions,
        information_exponent=information_exponent,
        gains="reinforced" if reinforced else "alike",
        has_stuck=stuck,
    )
    fit = fit_learning(read_runs(paths, success_at, are_alike=alike), settings)
    write_overlay(fit, out)
    for line in report_lines(fit):
        print(line)
    typer.echo(f"saved to {out}", err=True)


def calibrate_logs(
    path: Annotated[
        Path,
        typer.Argument(
            help="A log file; or a folder: of a serving run (requests.jsonl and meta.json), of TensorBoard's event "
            "files at any depth, or of the files of one console (.log, .out, .err, .txt or no suffix), CSV or JSON "
            "lines, read in their order.",
            show_default=False,
        ),
    ],
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
            help="auto, timelines, tensorboard, trainer-state, jsonl, wandb-csv, verl, console-dicts, trainer-dicts, "
            "prime-rl, roll, nemo-rl, areal, skyrl, rlinf, open-instruct, vllm-stats, sglang-stats.",
        ),
    ] = "auto",
    skip: Annotated[int, typer.Option(min=0, help="Steps left out at the start (compilation, filling).")] = 1,
    tables: Annotated[
        Path | None, typer.Option(help="Layer-time tables, for timelines; by default those of the run's GPU beside it.")
    ] = None,
) -> None:
    """Fit costs and lengths to a real run's log: a scenario and a profile that reproduce it, and what stays open."""
    from calibration.logs.calibrate import calibrate
    from rlsim.scenario.document import load
    from rlsim.scenario.editing import Original

    original = None if base is None else Original(load(str(base)), arm)
    scenario = original.scenario() if original else None
    print(calibrate(path, scenario, out, kind, skip, tables, original).text(), end="")
    typer.echo(f"saved to {out}", err=True)
