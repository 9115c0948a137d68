"""rlsim on one case, in a process of its own; measures itself and holds its run against the trace file.

python evidence/benchmarks/peers_rlsim.py CASE TRACE DIRECTORY
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path


def _cpu_and_memory() -> tuple[float, float]:
    """(CPU seconds of the process so far, most memory in MiB)."""
    return time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(name: str, trace: Path, directory: Path) -> None:
    import pyarrow.parquet  # noqa: F401 -- what is imported late is not to be timed with the run
    import scipy.special  # noqa: F401

    from evidence.benchmarks.peers_cases import CASES, read_lengths, scenario
    from rlsim.core.ticks import to_seconds
    from rlsim.results.store import write_run
    from rlsim.sim.simulation import simulate

    imported = _cpu_and_memory()
    made = scenario(next(case for case in CASES if case.name == name))
    planned, wall = _cpu_and_memory(), time.perf_counter()
    run = simulate(made)
    simulated, wall = _cpu_and_memory(), time.perf_counter() - wall
    write_run(directory / "run", run)
    written = _cpu_and_memory()
    ended = [row.event for row in run.log.decisions if type(row.event).__name__ == "Finished"]
    assert sorted(event.tokens for event in ended) == sorted(output for _, output in read_lengths(trace))
    last = max(row.now for row in run.log.decisions if row.event in (ended[-1],))
    told = {
        "makespan_seconds": to_seconds(last),
        "engine_cpu_seconds": simulated[0] - planned[0],
        "engine_wall_seconds": wall,
        "import_cpu_seconds": imported[0],
        "import_mib": imported[1],
        "write_cpu_seconds": written[0] - simulated[0],
        "simulated_mib": simulated[1],
        "preemptions": run.log.preemptions,
        "events": run.log.events,
    }
    (directory / "windows.json").write_text(json.dumps([list(row) for row in run.log.windows]))
    (directory / "measured.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
