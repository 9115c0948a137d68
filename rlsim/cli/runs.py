"""What the commands that make runs share: where they are made and kept, and what is said of it on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlsim.studies.runs.executor import RunBackend, RunExecutor


@contextmanager
def executor(
    out: Path | None, workers: int | None, cluster: str | None, ray_address: str | None, count: int | None
) -> Iterator[RunExecutor]:
    """An executor of a command's ``count`` runs (None: not known), with a bar of those that have ended.

    Runs that the directory ``out`` has from an earlier command are not made again, and said to be there.
    """
    from rlsim.cli.options import progress
    from rlsim.studies.runs.executor import RunExecutor
    from rlsim.studies.runs.store import RunStore

    with RunStore(out) as store, backend_of(cluster, ray_address, workers) as backend, progress(count) as done:
        runs = RunExecutor(backend, store, done)
        yield runs
    if runs.runs_kept:
        print(f"{runs.runs_kept} of {runs.runs_kept + runs.runs_made} runs were kept in {out}", file=sys.stderr)


def backend_of(cluster: str | None, ray_address: str | None, workers: int | None) -> RunBackend:
    """The place where runs are made; ``ParameterError`` for one that is none, ``RlsimError`` without its extra."""
    from rlsim.core.errors import ParameterError, unknown
    from rlsim.studies.runs.executor import Processes, RayTasks

    if cluster is None:
        if ray_address is not None:
            raise ParameterError("--ray-address", ray_address, "only with --cluster ray")
        return Processes(workers)
    if cluster != "ray":
        raise unknown("--cluster", cluster, ["ray"])
    return RayTasks(ray_address)
