"""Every arm of every entry, run in processes; one that fails is a row that says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlsim.core.errors import RlsimError
from rlsim.resolve import ResolveError, resolve
from rlsim.results.statistics import Estimate, interval, paired_ratio
from rlsim.scenario.published import Published, PublishedEntry
from rlsim.scenario.schema import Scenario
from rlsim.studies.measures import engine_step_seconds, is_of_engine, is_rate, measure
from rlsim.studies.runs.record import Outcome, Task, perform, perform_each
from rlsim.studies.validation.entries import Source


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run gave no number."""

    name: str
    text: str


Attempt = Outcome | Failure
Attempts = Mapping[tuple[str, str], Sequence[Attempt]]
"""Replications by file and arm."""


@dataclass(frozen=True, slots=True)
class Row:
    """A published number and what is predicted for it."""

    entry: PublishedEntry
    file: str
    framework: str
    arm: str
    published: Published
    predicted: Estimate | None
    failure: str = ""

    @property
    def error(self) -> float | None:
        """Relative, of the prediction."""
        return None if self.predicted is None else self.predicted.mean / self.published.measured - 1


def run_entries(
    sources: Sequence[Source],
    done: Callable[[Attempt], None] = lambda one: None,
    workers: int | None = None,
    replications: int | None = None,
) -> list[Row]:
    """Simulate what the rows ask for, ``done`` being told of each run; ``replications`` instead of the entries' own."""
    asked = tasks(sources, replications)
    found: dict[tuple[str, str], list[Attempt]] = {}
    attempts = perform_each(attempt, [task for _, task in asked], workers)
    for (place, _), one in zip(asked, attempts, strict=True):
        done(one)
        found.setdefault(place, []).append(one)
    return [row for source in sources for row in _rows(source, found)]


def tasks(sources: Sequence[Source], replications: int | None = None) -> list[tuple[tuple[str, str], Task]]:
    """Replications of the arms whose rows, or those over them, need a run."""
    return [
        ((source.document.file, arm), Task(f"{source.entry.id}, {arm}", scenario, replication))
        for source in sources
        for arm, scenario in source.scenarios.items()
        if _needs_run(source, arm)
        for replication in range(replications or scenario.run.replications)
    ]


def attempt(task: Task) -> Attempt:
    """One run, or why there is none."""
    try:
        return perform(task)
    except ResolveError as refused:
        return Failure(task.name, "; ".join(map(str, refused.errors)))
    except RlsimError as refused:
        return Failure(task.name, str(refused).splitlines()[0])


def _needs_run(source: Source, arm: str) -> bool:
    rows = list(source.rows())
    own = any(where == arm and not is_of_engine(row) for where, row in rows)
    return own or any(row.over == arm for _, row in rows)


def _rows(source: Source, attempts: Attempts) -> Iterator[Row]:
    for arm, published in source.rows():
        scenario = source.scenarios[arm]
        predicted, failure = _predicted(source, arm, published, attempts)
        framework = scenario.framework or "none"
        yield Row(source.entry, source.document.file, framework, arm, published, predicted, failure)


def _predicted(source: Source, arm: str, row: Published, attempts: Attempts) -> tuple[Estimate | None, str]:
    scenario = source.scenarios[arm]
    if is_of_engine(row):
        return _engine_step(row, scenario)
    mine = attempts[source.document.file, arm]
    base = attempts[source.document.file, row.over] if row.over else mine
    failures = [one.text for one in (*mine, *base) if isinstance(one, Failure)]
    if failures:
        return None, failures[0]
    told, other = ([measure(one, row.of) for one in some if isinstance(one, Outcome)] for some in (mine, base))
    if row.over is None:
        return interval(told, scenario.run.confidence), ""
    pairs = list(zip(told, other, strict=False))
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    better = (ours, theirs) if is_rate(row.of) else (theirs, ours)
    return paired_ratio(*better, scenario.run.confidence), ""


def _engine_step(row: Published, scenario: Scenario) -> tuple[Estimate | None, str]:
    try:
        return interval([engine_step_seconds(row, resolve(scenario))]), ""
    except ResolveError as refused:
        return None, "; ".join(map(str, refused.errors))
