"""What was measured, as Markdown: a table of all runs, the ratios to the fastest compiled peer, and prices of steps."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evidence.benchmarks.peers_cases import Case
from evidence.benchmarks.peers_steps import STATES, Share
from evidence.benchmarks.peers_tools import Process, Told

COMPILED = "AISimulate"
"""The peer with a compiled engine; Vidur's loop is Python."""
OURS = "rlsim"
"""As it is; other builds have names that begin with it."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a tool on a case, beside what the bare imports cost in a process of their own."""

    told: Told
    process: Process
    imports: Process


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of several runs of one tool on one case; with a ``reason`` instead where it gave none."""

    tool: str
    case: Case
    output_tokens: int
    record: str
    runs: tuple[Ran, ...] = ()
    reason: str = ""

    @property
    def makespan_seconds(self) -> float:
        """Predicted, from the first request to the last token."""
        return statistics.median(ran.told.makespan_seconds for ran in self.runs)

    @property
    def preemptions(self) -> str:
        """Of the last run, where it is told."""
        told = self.runs[-1].told.preemptions
        return "" if told is None else f"{told:,}"

    @property
    def engine_seconds(self) -> float:
        """Of the simulation alone, as the tool measures itself."""
        return statistics.median(ran.told.engine_seconds for ran in self.runs)

    @property
    def process_seconds(self) -> float:
        """CPU of the process and its children."""
        return statistics.median(ran.process.cpu_seconds for ran in self.runs)

    @property
    def run_seconds(self) -> float:
        """CPU of the process beyond its imports: reading, simulating, writing."""
        return statistics.median(ran.process.cpu_seconds - ran.imports.cpu_seconds for ran in self.runs)

    @property
    def wall_seconds(self) -> float:
        """From start to end of the process."""
        return statistics.median(ran.process.wall_seconds for ran in self.runs)

    @property
    def peak_mib(self) -> float:
        """Of the largest process."""
        return statistics.median(ran.process.peak_mib for ran in self.runs)

    @property
    def imports_mib(self) -> float:
        """Of a process that only imports."""
        return statistics.median(ran.imports.peak_mib for ran in self.runs)


HEADINGS = (
    "tool",
    "makespan, s",
    "preemptions",
    "engine, s",
    "run, CPU s",
    "process, CPU s",
    "wall, s",
    "M tokens/engine s",
    "M tokens/CPU-s of the process",
    "memory, MiB",
    "bare imports, MiB",
    "leaves",
)


def table(rows: Sequence[Row]) -> str:
    """One table a case."""
    cases = list(dict.fromkeys(row.case.name for row in rows))
    return "\n\n".join(_case_table([row for row in rows if row.case.name == name]) for name in cases)


def _case_table(rows: Sequence[Row]) -> str:
    case, tokens = rows[0].case, rows[0].output_tokens
    title = f"**{case.title}**: {tokens:,} response tokens; {_scatter(rows)}{_busy(rows)}"
    return "\n".join([title, "", *markdown(HEADINGS, [_cells(row) for row in rows])])


def _scatter(rows: Sequence[Row]) -> str:
    most = max(len(row.runs) for row in rows)
    spreads = [_spread([ran.told.engine_seconds for ran in row.runs]) for row in rows if len(row.runs) > 1]
    return f"medians of {most} runs, engine times at most {max(spreads):.0%} apart" if spreads else f"{most} run"


def _busy(rows: Sequence[Row]) -> str:
    """A warning where processes waited for a core: an engine time that is wall time is then too long."""
    waited = any(row.wall_seconds > 1.25 * row.process_seconds for row in rows if row.runs)
    return f"; **the machine was busy**, {COMPILED}'s engine time is too long" if waited else ""


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


def _cells(row: Row) -> list[str]:
    if not row.runs:
        return [row.tool, f"none: {row.reason}", *[""] * (len(HEADINGS) - 2)]
    million = row.output_tokens / 1e6
    return [
        row.tool,
        f"{row.makespan_seconds:.1f}",
        row.preemptions,
        f"{row.engine_seconds:.2f}",
        f"{row.run_seconds:.2f}",
        f"{row.process_seconds:.2f}",
        f"{row.wall_seconds:.1f}",
        f"{million / row.engine_seconds:.2f}",
        f"{million / row.process_seconds:.2f}",
        f"{row.peak_mib:.0f}",
        f"{row.imports_mib:.0f}",
        row.record,
    ]


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [_line(headings), "|" + "---|" * len(headings), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


# -- against the fastest compiled peer --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times the peer's tokens a second rlsim makes: engine alone, beyond the imports, the whole process."""

    tool: str
    case: Case
    engine: float
    run: float
    process: float


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """One a case that both ran."""
    ran = {(row.tool, row.case.name): row for row in rows if row.runs}
    peers = {case: row for (tool, case), row in ran.items() if tool.startswith(COMPILED)}
    pairs = [(row, peers[case]) for (tool, case), row in ran.items() if tool.startswith(OURS) and case in peers]
    return [_ratio(own, peer) for own, peer in pairs]


def _ratio(own: Row, peer: Row) -> Ratio:
    return Ratio(
        own.tool,
        own.case,
        peer.engine_seconds / own.engine_seconds,
        peer.run_seconds / own.run_seconds,
        peer.process_seconds / own.process_seconds,
    )


def ratio_table(found: Iterable[Ratio]) -> str:
    """The ratios with their bars, each met or missed."""
    headings = ("workload", "build", "aim", "engine alone", "beyond the imports", "whole process")
    return "\n".join(markdown(headings, map(_ratio_cells, found)))


def _ratio_cells(ratio: Ratio) -> list[str]:
    bar = ratio.case.bar
    told = [_verdict(value, bar) for value in (ratio.engine, ratio.run, ratio.process)]
    return [ratio.case.title, ratio.tool, "none" if bar is None else f"{bar:.0f}x", *told]


def _verdict(value: float, bar: float | None) -> str:
    if bar is None:
        return f"{value:.1f}x"
    return f"{value:.1f}x, {'met' if value >= bar else 'missed'}"


# -- prices -----------------------------------------------------------------------------------------------


def state_table(own: Sequence[float], peer: Sequence[float]) -> str:
    """Milliseconds of one engine step in both, by state."""
    rows = [
        [*(f"{count:,}" for count in state), f"{1e3 * ours:.2f}", f"{1e3 * theirs:.2f}", f"{theirs / ours:.3f}"]
        for state, ours, theirs in zip(STATES, own, peer, strict=True)
    ]
    headings = ("decodes", "KV tokens", "prefills", "prefill tokens", "rlsim, ms", f"{COMPILED}, ms", "ratio")
    return "\n".join(markdown(headings, rows))


def share_table(case: Case, found: Sequence[Share], own_makespan: float, peer_makespan: float) -> str:
    """The schedule of the replica that ends last, at three prices, beside both makespans."""
    total = Share(
        "all",
        sum(share.steps for share in found),
        sum(share.rlsim_seconds for share in found),
        sum(share.whole_seconds for share in found),
        sum(share.phases_seconds for share in found),
    )
    left = total.phases_seconds / peer_makespan - 1
    apart = peer_makespan / own_makespan - 1
    title = f"**{case.title}**: rlsim {own_makespan:.2f} s, {COMPILED} {peer_makespan:.2f} s, {apart:+.1%}"
    closing = f"rlsim's schedule at {COMPILED}'s prices by phases against {COMPILED}'s own makespan: {left:+.3%}."
    headings = ("steps with", "steps", "rlsim's law, s", f"{COMPILED}'s model, s", "the same, by phases, s")
    lines = markdown(headings, [_share_cells(share) for share in (*found, total)])
    return "\n".join([title, "", *lines, "", closing])


def _share_cells(share: Share) -> list[str]:
    prices = (share.rlsim_seconds, share.whole_seconds, share.phases_seconds)
    return [share.kind, f"{share.steps:,}", *(f"{price:.2f}" for price in prices)]
