"""Commands that calibrate the trainer and the paths of the weights on this machine."""

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
    from calibration import torch_profile
    from calibration.passes import Budget as Seconds
    from calibration.torch_trainer import recipe_for

    seconds = Seconds(seconds_of(budget))
    request = torch_profile.TorchRequest(model, device, out, seconds, processes, most_tokens, _command())
    try:
        profile = torch_profile.calibrate_torch(request, lambda progress: print(progress, file=sys.stderr))
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
    from calibration import transport_profile
    from calibration.passes import Budget as Seconds
    from calibration.weight_paths import available

    request = transport_profile.TransportRequest(
        out, Seconds(seconds_of(budget)), bytes_of(size), tuple(paths or available()), device, folder, _command()
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
