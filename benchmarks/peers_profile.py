"""Where rlsim's time goes: start-up by what is imported, and a run by the part of the code that it is spent in."""

from __future__ import annotations

import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from peers_cases import Case, scenario
from peers_table import markdown
from peers_tools import run_process

from rlsim.build import Plan
from rlsim.sim.run import collector_paused
from rlsim.sim.simulation import Simulation
from rlsim.world.making import make_controller, make_world

PARTS = {
    "engine: scheduler, KV blocks, windows": ("rlsim/core/",),
    "controller and policy": ("rlsim/controller/", "rlsim/policies/", "peers_cases"),
    "prompts and lengths": ("rlsim/workload/", "numpy/", "scipy/"),
    "calls, world and trainer": ("rlsim/world/", "rlsim/costs/"),
    "clock, executor and log": ("rlsim/sim/", "simpy/"),
}
REST = "other"
START_UP = {
    "the interpreter": "pass",
    "numpy": "import numpy",
    "pydantic and YAML": "import pydantic, ruamel.yaml",
    "simpy": "import simpy",
    "all that a run needs": "import peers_cases, rlsim.sim.run",
    "and the lengths' quantiles": "import peers_cases, rlsim.sim.run, scipy.special",
    "and what writes it down": "import peers_cases, rlsim.sim.run, scipy.special, rlsim.results.store",
}


def start_up_table(folder: Path) -> str:
    """CPU and memory of processes that only import, each with the interpreter in it."""
    rows = []
    for what, statement in START_UP.items():
        found = [run_process(Path(sys.executable), ["-c", statement], folder, 60) for _ in range(5)]
        cpu = statistics.median(process.cpu_seconds for process in found)
        rows.append([what, f"{cpu:.2f}", f"{statistics.median(process.peak_mib for process in found):.0f}"])
    return "\n".join(markdown(("imports", "CPU s", "MiB"), rows))


def profile_table(cases: Sequence[Case]) -> str:
    """Shares of a simulated run by part; cProfile makes calls dearer, so shares lean towards small functions."""
    shares = [_shares(_profiled(scenario(case))) for case in cases]
    seconds = [statistics.median(_seconds(scenario(case)) for _ in range(3)) for case in cases]
    rows = [[part, *(f"{share.get(part, 0.0):.0%}" for share in shares)] for part in [*PARTS, REST]]
    rows.append(["CPU s without the profiler", *(f"{cpu:.2f}" for cpu in seconds)])
    return "\n".join(markdown(("time within", *(case.title for case in cases)), rows))


def _run(made: Plan) -> Callable[[], object]:
    workload = made.workload_of(0)
    simulation = Simulation(make_controller(made, workload), make_world(made, workload))
    return lambda: simulation.run(made.scenario.run.steps)


def _seconds(made: Plan) -> float:
    run = _run(made)
    start = time.process_time()
    with collector_paused():
        run()
    return time.process_time() - start


def _profiled(made: Plan) -> pstats.Stats:
    run, profile = _run(made), cProfile.Profile()
    with collector_paused():
        profile.runcall(run)
    return pstats.Stats(profile)


def _shares(stats: pstats.Stats) -> dict[str, float]:
    """Own time by part; that of built-in functions goes to who called them."""
    spent: dict[str, float] = {}
    for (file, _, _), (_, _, own, _, callers) in stats.stats.items():  # type: ignore[attr-defined]
        if file == "~":
            for (caller, _, _), (_, _, within, _) in callers.items():
                spent[_part(caller)] = spent.get(_part(caller), 0.0) + within
        else:
            spent[_part(file)] = spent.get(_part(file), 0.0) + own
    whole = sum(spent.values())
    return {part: seconds / whole for part, seconds in spent.items()}


def _part(file: str) -> str:
    return next((part for part, places in PARTS.items() if any(place in file for place in places)), REST)
