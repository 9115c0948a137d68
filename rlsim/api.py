"""rlsim from Python, as notebooks and scripts use it.

::

    import rlsim

    told = rlsim.compare(rlsim.load("scenarios/quickstart.yaml", {"run.replications": 2}))
    print(rlsim.text(told))

What comes back are the values that the command line prints: see ``Comparison``, ``Arm`` and ``Estimate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsim.executor.run import FinishedRun
from rlsim.resolve import ResolvedScenario, resolve
from rlsim.scenario.document import Document
from rlsim.scenario.document import load as load_document
from rlsim.scenario.override import settings_tree
from rlsim.studies.compare import Comparison, compare_plans, plans
from rlsim.studies.race import Race, race_plans
from rlsim.studies.runs.executor import local_executor

if TYPE_CHECKING:
    import pandas as pd

Settings = Mapping[str, Any]
"""Key paths of a scenario and their values: ``{"rollout.gpus": 8}``; the scenario reference lists the keys."""


def load(scenario: str | Path, settings: Settings | None = None) -> Document:
    """A scenario file with some keys set, arms and all. Raises ``ScenarioError`` with file, line and key."""
    return load_document(str(scenario)).with_settings(settings_tree(settings or {}))


def variants(
    scenario: str | Path, by_name: Mapping[str, Settings], settings: Settings | None = None, arm: str | None = None
) -> dict[str, ResolvedScenario]:
    """One arm of a scenario (the only one when None) under several settings of its keys, for ``compare``.

    ``settings`` hold for all of them. All meet the same prompts and random draws. Raises ``ScenarioError``.
    """
    documents = {name: load(scenario, {**(settings or {}), **own}) for name, own in by_name.items()}
    return {name: resolve(document.resolve(arm)) for name, document in documents.items()}


def compare(
    study: Document | Mapping[str, ResolvedScenario], out: str | Path | None = None, workers: int = 1
) -> Comparison:
    """Simulate all arms of a document or all variants with common random numbers; ``out`` saves what ``--out`` saves.

    Runs that ``out`` has from an earlier call are not made again.

    ``workers`` above 1 starts processes: in a script, only under ``if __name__ == "__main__":``.
    """
    plans_by_arm = plans(study) if isinstance(study, Document) else dict(study)
    warnings = study.dropped_rows() if isinstance(study, Document) else []
    directory = None if out is None else Path(out)
    with local_executor(directory, workers) as runs:
        comparison = compare_plans(plans_by_arm, runs, directory, warnings)
    if out is not None:
        from rlsim.studies.save import save_comparison

        save_comparison(Path(out), comparison)
    return comparison


def race(study: Document | Mapping[str, ResolvedScenario], to: float, workers: int = 1) -> Race:
    """Race arms or variants, all with a learning section, to the success ``to``, 0 to 1; ``workers`` as above."""
    plans_by_arm = plans(study) if isinstance(study, Document) else dict(study)
    with local_executor(workers=workers) as runs:
        return race_plans(plans_by_arm, to, runs)


def simulate(resolved: ResolvedScenario, replication: int = 0) -> FinishedRun:
    """One run of a plan, with everything that happened in it; ``tables`` reads it."""
    from rlsim.sim.simulation import simulate as run

    return run(resolved, replication)


def tables(run: FinishedRun) -> dict[str, pd.DataFrame]:
    """Tables of a run as data frames by name: samples, segments, updates, activity, services, gates.

    docs/concepts/metrics.md defines their columns.
    """
    from rlsim.results.tables import tables as read

    return read(run)


def text(study: Comparison | Race) -> str:
    """A comparison or a race as the command line prints it."""
    from rlsim.studies.text import comparison as present
    from rlsim.studies.text import race as race_text

    return race_text.as_text(study) if isinstance(study, Race) else present.as_text(study)


def report(directory: str | Path) -> Path:
    """One HTML page of what ``compare(..., out=directory)`` saved; its path."""
    from rlsim.studies.report.page import write_report

    return write_report(Path(directory))
