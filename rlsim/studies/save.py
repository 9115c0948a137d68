"""What ``--out`` leaves on disk, and what reads it again.

::

    comparison.json, provenance.json, step_time.png, utilisation.png (of a race also progress.png, allotted_*.png)
    ARM/scenario.yaml, ARM/metrics.json
    ARM/replication-0/  tables as Parquet, decisions.jsonl, trace.json.gz, figures as PNG (of the first replication)
"""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim import __version__
from rlsim.core.errors import ParameterError
from rlsim.results.store import DECISIONS, SCENARIO, load_decisions, read_table, write_metrics
from rlsim.results.tables import TABLES
from rlsim.scenario.document import resolved_yaml
from rlsim.studies.compare import Comparison, arm_folder
from rlsim.studies.output import json_text, write_text

if TYPE_CHECKING:
    import pandas as pd

COMPARISON, PROVENANCE = "comparison.json", "provenance.json"
VERSIONS = ("simpy", "numpy", "scipy", "pandas", "pyarrow")
"""What may change a figure in its last digits, or how it is stored."""


def save_comparison(directory: Path, comparison: Comparison) -> None:
    """The arms' scenarios and metrics, the comparison and its two figures; the runs are there already."""
    from rlsim.results.plots.arms import step_time_bars, utilisation_bars
    from rlsim.results.plots.style import save_figure

    for arm in comparison.arms:
        folder = directory / arm_folder(arm.name)
        write_text(folder / SCENARIO, resolved_yaml(arm.plan.scenario))
        write_metrics(folder, [record.metrics for record in arm.records])
    write_text(directory / COMPARISON, json_text(comparison.to_dict()))
    steps = {arm.name: arm.estimate("step_seconds") for arm in comparison.arms}
    published = {
        arm.name: [row.measured for row in arm.plan.scenario.published if row.is_step_time] for arm in comparison.arms
    }
    confidence = comparison.arms[0].plan.scenario.run.confidence
    save_figure(
        step_time_bars(steps, published, f"Step time, {comparison.name}", confidence), directory / "step_time.png"
    )
    uses = {arm.name: [record.metrics for record in arm.records] for arm in comparison.arms}
    save_figure(utilisation_bars(uses), directory / "utilisation.png")


def save_provenance(directory: Path, command: str) -> None:
    """The command that made the results there, and what it ran with; where results went is no part of it."""
    versions = {"python": platform.python_version(), **{name: version(name) for name in VERSIONS}}
    provenance = {"command": command, "rlsim": __version__, "versions": versions}
    write_text(directory / PROVENANCE, json_text(provenance))


def load_tables(directory: Path) -> dict[str, pd.DataFrame]:
    """The tables of a saved replication; ``ParameterError`` when the directory holds none."""
    for name in TABLES:
        if not (directory / f"{name}.parquet").is_file():
            raise ParameterError(
                str(directory), f"no {name}.parquet", "the directory of a replication saved with --out"
            )
    return {name: read_table(directory / f"{name}.parquet") for name in TABLES}


def replay_saved(directory: Path) -> str:
    """Replay a saved replication; ``ReplayError`` at the first command that differs."""
    from rlsim.executor.run import make_controller
    from rlsim.resolve import resolve
    from rlsim.results.replay.decisions import replay
    from rlsim.scenario.document import load

    resolved = resolve(load(str(directory.parent / SCENARIO)).resolve())
    decisions = load_decisions(directory / DECISIONS)
    name, _, number = directory.name.rpartition("-")
    if name != "replication" or not number.isdigit():
        raise ParameterError(str(directory), directory.name, "replication-N, as --out writes it")
    replay(decisions, make_controller(resolved, resolved.workload_of(int(number))))
    commands = sum(len(decision.commands) for decision in decisions)
    return f"{len(decisions)} decisions replayed, all {commands} commands equal"
