"""A sweep as a table and for machines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from rlsim import __version__
from rlsim.resolve import ResolvedScenario
from rlsim.results.statistics import Estimate
from rlsim.studies.sweep import Result, Sweep
from rlsim.studies.text.table import rendered

MOST_SOURCES = 12
_TITLES = {
    "step_seconds": "step, s",
    "tokens_per_second_per_gpu": "tokens/s /GPU",
    "usd_per_million_trained_tokens": "USD /M tokens",
    "start_lag_max": "start lag, max",
}


def as_text(sweep: Sweep) -> str:
    """A row a variant, then what could not be run and what was compared with what."""
    names = varying([result.variant.levels for result in sweep.results])
    table = new_table(sweep.name, [short(name, names) for name in names], _titles(sweep))
    for result in sweep.results:
        table.add_row(*(result.variant.levels[name] for name in names), *_cells(sweep, result))
    return rendered([table]) + "".join(f"{line}\n" for line in _notes(sweep, names))


def new_table(title: str, names: Sequence[str], numbers: Sequence[str]) -> Table:
    """An empty table: columns of names, then columns of numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="", box=SIMPLE_HEAD)
    table.show_edge, table.pad_edge, table.collapse_padding = False, False, True
    for name in names:
        table.add_column(name)
    for number in numbers:
        table.add_column(number, justify="right")
    return table


def varying(levels: Sequence[Mapping[str, str]]) -> list[str]:
    """The factors that are not the same in all."""
    return [name for name in levels[0] if len({variant_levels.get(name) for variant_levels in levels}) > 1]


def label(levels: Mapping[str, str], names: Sequence[str]) -> str:
    """The levels of some factors in one line."""
    return ", ".join(f"{short(name, names)}={levels[name]}" for name in names) or "the only one"


def as_json(sweep: Sweep) -> str:
    """Everything, for machines."""
    rows = [
        {
            "levels": result.variant.levels,
            "run": result.runs[0].identity,
            "fault": result.fault or None,
            "sources": [asdict(source) for source in result.variant.resolved.sources],
            "estimates": {} if result.fault else {name: asdict(result.estimate(name)) for name in sweep.metrics},
            "ratio_to_baseline": _as_dict(result.ratio(sweep.baseline, sweep.metrics[0])),
            "replications": [record.flat() for record in result.runs],
        }
        for result in sweep.results
    ]
    whole = {
        "name": sweep.name,
        "rlsim": __version__,
        "baseline": sweep.baseline.variant.levels,
        "metrics": sweep.metrics,
        "variants": rows,
        "runs_made": sweep.runs_made,
        "runs_reused": sweep.runs_reused,
    }
    return json.dumps(whole, indent=1) + "\n"


def _as_dict(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else asdict(estimate)


def short(name: str, among: Sequence[str]) -> str:
    """The end of a key path where that is enough to know it."""
    keys = name.split(":")
    last = keys[0].rsplit(".", 1)[-1] if len(keys) == 1 else ":".join(key.removesuffix(".gpus") for key in keys)
    others = [other.rsplit(".", 1)[-1] for other in among if other != name]
    return name if last in others else last


def _titles(sweep: Sweep) -> list[str]:
    first = sweep.results[0].variant.scenario.run
    percent = f"{first.confidence:.0%}"
    head, *rest = sweep.metrics
    return [f"{_title(head)} ± {percent}", f"over baseline ± {percent}", *map(_title, rest)]


def _title(metric: str) -> str:
    return _TITLES.get(metric, metric.replace("_", " "))


def _cells(sweep: Sweep, result: Result) -> list[str]:
    if result.fault:
        return ["did not end", *[""] * len(sweep.metrics)]
    head, *rest = sweep.metrics
    ratio = "" if result is sweep.baseline else shown(result.ratio(sweep.baseline, head), ".3f")
    return [shown(result.estimate(head)), ratio, *(shown_mean(result.estimate(name).mean) for name in rest)]


def shown(estimate: Estimate | None, form: str = "") -> str:
    """A mean and the half width of its interval, to as many digits as the size needs."""
    if estimate is None:
        return ""
    mean = format(estimate.mean, form) if form else shown_mean(estimate.mean)
    if estimate.low is None or estimate.high is None:
        return mean
    half = (estimate.high - estimate.low) / 2
    return f"{mean} ± {format(half, form.removeprefix('+')) if form else shown_mean(half)}"


def shown_mean(value: float) -> str:
    """Four digits or so."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _notes(sweep: Sweep, names: Sequence[str]) -> Iterator[str]:
    for result in sweep.results:
        if result.fault:
            yield f"did not end: {label(result.variant.levels, names)}: {result.fault.splitlines()[0]}"
    count = len(sweep.results[0].runs)
    yield (
        f"{len(sweep.results)} variants, {count} replication(s) each on the same luck; ratios of {sweep.metrics[0]} "
        f"are paired, against {label(sweep.baseline.variant.levels, names)}."
    )
    yield from source_lines([result.variant.resolved for result in sweep.results])


def source_lines(plans: Sequence[ResolvedScenario]) -> Iterator[str]:
    """Where every cost comes from, what is an estimate said so; those of some plans alone with how many."""
    known = Counter((source.what, source.text, source.estimate) for plan in plans for source in plan.sources)
    shown = known.most_common(MOST_SOURCES)
    for (subject, text, estimate), count in shown:
        only = "" if count == len(plans) else f" ({count} of {len(plans)})"
        yield f"{'ESTIMATE' if estimate else 'Source'}, {subject}: {text}{only}."
    if len(known) > len(shown):
        yield f"... and {len(known) - len(shown)} more sources."
