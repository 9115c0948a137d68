"""Where rlsim's time goes: start-up by what is imported, and a run by the part of the code that it is spent in."""

from __future__ import annotations

import cProfile
import gc
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from evidence.benchmarks.peers_cases import Case, requests, scenario
from evidence.benchmarks.peers_table import markdown
from evidence.benchmarks.peers_tools import run_process
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks
from rlsim.engine.replica import Replica
from rlsim.engine.requests import Request
from rlsim.executor.run import make_controller, make_world
from rlsim.resolve import ResolvedScenario
from rlsim.sim.collector import collector_paused
from rlsim.sim.simulation import Simulation, simulate

PARTS = {
    "engine: scheduler, KV blocks, windows": ("rlsim/core/", "rlsim/engine/"),
    "controller and policy": ("rlsim/controller/", "rlsim/policies/", "peers_cases"),
    "prompts and lengths": ("rlsim/workload/", "numpy/", "scipy/"),
    "calls, executor and trainer": ("rlsim/executor/", "rlsim/costs/"),
    "clock, executor and log": ("rlsim/sim/", "simpy/"),
}
REST = "other"
START_UP = {
    "the interpreter": "pass",
    "numpy": "import numpy",
    "pydantic and YAML": "import pydantic, ruamel.yaml",
    "simpy": "import simpy",
    "all that a run needs": "import evidence.benchmarks.peers_cases, rlsim.sim.simulation",
    "and the lengths' quantiles": "import evidence.benchmarks.peers_cases, rlsim.sim.simulation, scipy.special",
    "and what writes it down": "import evidence.benchmarks.peers_cases, rlsim.sim.simulation, scipy.special, "
    "rlsim.results.store, pyarrow.parquet",
}


def start_up_table(folder: Path) -> str:
    """CPU and memory of processes that only import, each with the interpreter in it; medians of five."""
    rows = []
    for what, statement in START_UP.items():
        found = [run_process(Path(sys.executable), ["-c", statement], folder, 60) for _ in range(5)]
        cpu = statistics.median(process.cpu_seconds for process in found)
        rows.append([what, f"{cpu:.2f}", f"{statistics.median(process.peak_mib for process in found):.0f}"])
    return "\n".join(markdown(("imports", "CPU s", "MiB"), rows))


def profile_table(cases: Sequence[Case]) -> str:
    """Own time by part of the code; cProfile makes calls dearer, so that it leans towards small functions."""
    shares = [_shares(_profiled(scenario(case))) for case in cases]
    rows = [[part, *(f"{share.get(part, 0.0):.0%}" for share in shares)] for part in [*PARTS, REST]]
    return "\n".join(markdown(("profiled within", *(case.title for case in cases)), rows))


def alone_table(cases: Sequence[Case]) -> str:
    """CPU seconds of a run, and of what can be run by itself, without a profiler; medians of five."""
    columns = [_alone(case) for case in cases]
    rows = [[what, *(f"{column[what]:.2f}" for column in columns)] for what in columns[0]]
    return "\n".join(markdown(("CPU s, each by itself", *(case.title for case in cases)), rows))


def _alone(case: Case) -> dict[str, float]:
    made = scenario(case)
    log = simulate(made).log
    whole = _median(lambda: _seconds(made))
    engine = _median(lambda: engine_alone(case)[0])
    controller = _median(lambda: _controller_seconds(made, log))
    return {
        "a run": whole,
        "replicas alone": engine,
        "the controller alone, on the recorded events": controller,
        "the rest: calls, clock, executor, log": whole - engine - controller,
        "in these two, prompts and lengths drawn": _median(lambda: _drawing_seconds(made)),
    }


def _drawing_seconds(made: ResolvedScenario) -> float:
    gc.collect()
    start = time.process_time()
    with collector_paused():
        list(requests(made))
    return time.process_time() - start


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(5))


def _controller_seconds(made: ResolvedScenario, log: RunLog) -> float:
    controller = make_controller(made, made.workload_of(0))
    gc.collect()
    start = time.process_time()
    with collector_paused():
        for row in log.decisions:
            controller.handle(row.now, row.event)
    return time.process_time() - start


def _run(made: ResolvedScenario) -> Callable[[], object]:
    workload = made.workload_of(0)
    simulation = Simulation(make_controller(made, workload), make_world(made, workload))
    return lambda: simulation.run(made.scenario.run.steps)


def engine_alone(case: Case) -> tuple[float, Ticks]:
    """(CPU seconds, makespan) of the replicas without controller, clock and log, each with every n-th request."""
    made = scenario(case)
    rows = enumerate(requests(made))
    asked = [Request(at, row.prompt, row.input_tokens, row.input_tokens, row.output_tokens) for at, row in rows]
    replicas = make_world(made, made.workload_of(0)).replicas
    gc.collect()
    start = time.process_time()
    with collector_paused():
        ends = [_run_alone(replica, asked[place :: len(replicas)]) for place, replica in enumerate(replicas)]
    return time.process_time() - start, max(ends)


def _run_alone(replica: Replica, asked: Sequence[Request]) -> Ticks:
    for request in asked:
        replica.submit(request)
    now: Ticks = 0
    while (end := replica.begin(now)) is not None:
        replica.end(end)
        now = end
    return now


def _seconds(made: ResolvedScenario) -> float:
    run = _run(made)
    gc.collect()
    start = time.process_time()
    with collector_paused():
        run()
    return time.process_time() - start


def _profiled(made: ResolvedScenario) -> pstats.Stats:
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
