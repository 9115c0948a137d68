"""Arguments and options that several commands have, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ScenarioFile = Annotated[Path, typer.Argument(help="Scenario file (YAML).", show_default=False)]
Sets = Annotated[list[str], typer.Option("--set", help="Override one key: path.to.key=value.", show_default=False)]
Overlays = Annotated[list[Path], typer.Option("--overlay", help="File merged over the scenario.", show_default=False)]
ArmName = Annotated[str | None, typer.Option("--arm", help="Which arm of the scenario.", show_default=False)]
Out = Annotated[Path | None, typer.Option("--out", help="Directory for tables, logs and figures.", show_default=False)]
Kept = Annotated[
    Path | None, typer.Option("--out", help="Directory that keeps finished runs: the same command goes on.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes; default: one a core.", show_default=False)
]
Cluster = Annotated[
    str | None, typer.Option(help="Runs as tasks of a cluster (ray) instead of processes.", show_default=False)
]
RayAddress = Annotated[
    str | None, typer.Option(help="Of an existing Ray cluster; RAY_ADDRESS, or a local one.", show_default=False)
]
