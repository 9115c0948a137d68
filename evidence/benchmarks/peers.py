"""rlsim beside published simulators of serving: the same requests, model and GPU, in one run on one machine.

    python evidence/benchmarks/peers.py [--keep DIR] [--repeats 3] [--write]

Installs AISimulate and Vidur into environments of their own (2.9 GB, minutes, from the package index that pip is set up
for), in a temporary folder or in the one named with ``--keep``, which is used again. ``--write`` puts the
tables into evidence/data/benchmarks.yaml. A tool that cannot be had, fails or takes too long is a row with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evidence.benchmarks.peers_cases import BLOCK_TOKENS, CASES, Case, requests, scenario, write_trace
from evidence.benchmarks.peers_profile import alone_table, profile_table, start_up_table
from evidence.benchmarks.peers_steps import STATES, last_replica, own_seconds, peer_seconds, shares, write_law
from evidence.benchmarks.peers_table import (
    COMPILED,
    OURS,
    Ran,
    Row,
    ratio_table,
    ratios,
    share_table,
    state_table,
    table,
)
from evidence.benchmarks.peers_tools import TOOLS, Process, Tool, ToolError, environment, run_process
from evidence.findings import parsed, save


@dataclass(slots=True)
class Bench:
    """Where everything lies, what has been measured, and what did not answer, by (tool, case)."""

    folder: Path
    limit_seconds: float
    pythons: dict[str, Path] = field(default_factory=dict)
    output_tokens: dict[str, int] = field(default_factory=dict)
    runs: dict[tuple[str, str], list[Ran]] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)

    def trace(self, case: Case) -> Path:
        """The requests of a case."""
        return self.folder / f"{case.name}.jsonl"

    def directory(self, tool: Tool, case: Case) -> Path:
        """Where a tool works on a case."""
        found = self.folder / "runs" / f"{tool.key}-{case.name}"
        found.mkdir(parents=True, exist_ok=True)
        return found


def prepare(bench: Bench, cases: Sequence[Case], tools: Sequence[Tool]) -> None:
    """Traces, the law as tables, and environments; a tool that cannot be installed has no interpreter."""
    for case in cases:
        asked = list(requests(scenario(case)))
        write_trace(bench.trace(case), asked)
        bench.output_tokens[case.name] = sum(row.output_tokens for row in asked)
    write_law(bench.folder / "law.json", BLOCK_TOKENS)
    for tool in tools:
        try:
            bench.pythons[tool.name] = environment(tool, bench.folder)
        except ToolError as error:
            bench.reasons |= {(tool.name, case.name): f"not installed: {error}" for case in cases}


def measure(bench: Bench, tool: Tool, case: Case) -> None:
    """One run, unless the tool failed on this case before."""
    key = (tool.name, case.name)
    if key in bench.reasons:
        return
    directory = bench.directory(tool, case)
    try:
        imports = run_process(bench.pythons[tool.name], ["-c", tool.imports], directory, 120)
        process = _run(bench, tool, case, directory)
        bench.runs.setdefault(key, []).append(Ran(tool.read(directory), process, imports))
    except ToolError as error:
        bench.reasons[key] = str(error)


def _run(bench: Bench, tool: Tool, case: Case, directory: Path) -> Process:
    arguments = tool.command(case, bench.trace(case), directory)
    return run_process(bench.pythons[tool.name], arguments, directory, bench.limit_seconds)


def rows(bench: Bench, cases: Sequence[Case], tools: Sequence[Tool]) -> list[Row]:
    """What all runs come to; a tool that failed once on a case has no figure there."""
    return [_row(bench, tool, case) for case in cases for tool in tools]


def _row(bench: Bench, tool: Tool, case: Case) -> Row:
    key, tokens = (tool.name, case.name), bench.output_tokens[case.name]
    if key in bench.reasons:
        return Row(tool.name, case, tokens, tool.record, reason=bench.reasons[key])
    return Row(tool.name, case, tokens, tool.record, tuple(bench.runs[key]))


def price_tables(bench: Bench, found: Sequence[Row]) -> Iterator[str]:
    """Steps at both tools' prices, and the schedules of the cases that both ran."""
    peer = next((tool for tool in TOOLS if tool.name.startswith(COMPILED)), None)
    if peer is None or peer.name not in bench.pythons:
        return
    python = bench.pythons[peer.name]
    yield state_table([own_seconds(state) for state in STATES], peer_seconds(python, STATES))
    spans = {(row.tool, row.case.name): row.makespan_seconds for row in found if row.runs}
    for case in dict.fromkeys(row.case for row in found):
        own, theirs = spans.get((OURS, case.name)), spans.get((peer.name, case.name))
        if own and theirs:
            windows = json.loads((bench.directory(TOOLS[0], case) / "windows.json").read_text())
            yield share_table(case, shares(python, last_replica(windows)), own, theirs)


def report(bench: Bench, cases: Sequence[Case], tools: Sequence[Tool], repeats: int) -> str:
    """Everything that is printed, in Markdown."""
    found = rows(bench, cases, tools)
    machine = f"{os.cpu_count()} cores, {_processor()}, Python {platform.python_version()}, {repeats} interleaved runs."
    prices = list(price_tables(bench, found))
    parts = ["### Predictions and costs", machine, table(found)]
    parts += ["### Against the fastest compiled peer", ratio_table(ratios(found))]
    if prices:
        parts += ["### Prices of one engine step", prices[0]]
    if prices[1:]:
        parts += ["### Makespans, term by term", *prices[1:]]
    parts += ["### Where rlsim's time goes", start_up_table(bench.folder), alone_table(cases), profile_table(cases)]
    return "\n\n".join(parts)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for the environments, used again by later runs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120, help="seconds that one run of a tool may take")
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES], help="only these workloads")
    parser.add_argument("--tool", action="append", choices=[tool.key for tool in TOOLS], help="only these")
    parser.add_argument("--install", action="store_true", help="only make the environments")
    parser.add_argument("--write", action="store_true", help="keep the tables for the documentation")
    return parser.parse_args()


def main() -> None:
    options = _options()
    cases = [case for case in CASES if options.case is None or case.name in options.case]
    tools = [tool for tool in TOOLS if options.tool is None or tool.key in options.tool]
    with tempfile.TemporaryDirectory(prefix="rlsim-peers-") as temporary:
        bench = Bench((options.keep or Path(temporary)).resolve(), options.limit)
        bench.folder.mkdir(parents=True, exist_ok=True)
        prepare(bench, cases, tools)
        if options.install:
            return
        for _ in range(options.repeats):
            for case in cases:
                for tool in tools:
                    measure(bench, tool, case)
        made = report(bench, cases, tools, options.repeats)
    print(made)
    if options.write:
        save("benchmarks", parsed(made))


if __name__ == "__main__":
    main()
