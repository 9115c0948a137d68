"""The command that calibrates an inference engine on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rlsim.cli_trainer import INTERRUPTED, seconds_of


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
    from calibration.vllm_profile import VllmRequest, calibrate_vllm

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
        made = calibrate_vllm(request, lambda line: print(line, file=sys.stderr, flush=True))
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    for line in made.lines():
        print(line)
