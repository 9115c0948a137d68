"""A sweep as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rlsim.resolve import ResolvedScenario
from rlsim.results.statistics import Estimate
from rlsim.studies.sweep import Result, Sweep
from rlsim.studies.text.table import new_table, plus_minus, rendered

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
    percent = f"{sweep.results[0].variant.scenario.run.confidence:.0%}"
    head, *rest = (_TITLES.get(metric, metric.replace("_", " ")) for metric in sweep.metrics)
    columns = [*(short(name, names) for name in names), f"{head} ± {percent}", f"over baseline ± {percent}", *rest]
    rows = [[*(result.variant.levels[name] for name in names), *_cells(sweep, result)] for result in sweep.results]
    table = new_table(sweep.name, columns, rows, texts=len(names), no_wrap=False)
    return rendered([table]) + "".join(f"{line}\n" for line in _notes(sweep, names))


def varying(levels: Sequence[Mapping[str, str]]) -> list[str]:
    """The factors that are not the same in all."""
    return [name for name in levels[0] if len({variant_levels.get(name) for variant_levels in levels}) > 1]


def label(levels: Mapping[str, str], names: Sequence[str]) -> str:
    """The levels of some factors in one line."""
    return ", ".join(f"{short(name, names)}={levels[name]}" for name in names) or "the only one"


def short(name: str, among: Sequence[str]) -> str:
    """The end of a key path where that is enough to know it."""
    keys = name.split(":")
    last = keys[0].rsplit(".", 1)[-1] if len(keys) == 1 else ":".join(key.removesuffix(".gpus") for key in keys)
    others = [other.rsplit(".", 1)[-1] for other in among if other != name]
    return name if last in others else last


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
    if not form:
        return plus_minus(estimate, shown_mean)
    return plus_minus(estimate, f"{{:{form}}}".format, f"{{:{form.removeprefix('+')}}}".format)


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
        f"{len(sweep.results)} variants, {count} replication(s) each with common random numbers; "
        f"ratios of {sweep.metrics[0]} are paired, against {label(sweep.baseline.variant.levels, names)}."
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
