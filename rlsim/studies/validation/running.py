"""Every arm of every entry, run in processes; one that fails is a row that says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlsim.resolve import ResolveError, resolve
from rlsim.results.statistics import Estimate, interval, paired_ratio
from rlsim.scenario.published import Published, PublishedEntry
from rlsim.studies.measures import engine_step_seconds, is_of_engine, is_rate, measure
from rlsim.studies.runs.executor import RunExecutor
from rlsim.studies.runs.record import RunKey, RunRecord, RunRequest, requests_of
from rlsim.studies.validation.entries import EntryFile

ArmKey = tuple[str, str]
"""File and arm."""


@dataclass(frozen=True, slots=True)
class ValidationRow:
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


@dataclass(frozen=True, slots=True)
class PlannedRuns:
    """The runs that a validation needs, by file and arm, and the refusals of arms that cannot be run."""

    requests: Mapping[ArmKey, list[RunRequest]]
    refusals: Mapping[ArmKey, str]

    @property
    def run_count(self) -> int:
        """Number of runs."""
        return sum(map(len, self.requests.values()))


def planned_runs(entry_files: Sequence[EntryFile], replications: int | None = None) -> PlannedRuns:
    """Replications of the arms whose rows, or those over them, need a run; an arm that is refused says so.

    ``replications`` stand in for the entries' own.
    """
    requests: dict[ArmKey, list[RunRequest]] = {}
    refusals: dict[ArmKey, str] = {}
    for entry_file in entry_files:
        for arm, scenario in entry_file.scenarios.items():
            rows = list(entry_file.rows())
            own = any(name == arm and not is_of_engine(row) for name, row in rows)
            if not own and not any(row.over == arm for _, row in rows):
                continue
            try:
                resolved = resolve(scenario)
            except ResolveError as refused:
                refusals[entry_file.document.file, arm] = "; ".join(map(str, refused.errors))
                continue
            requests[entry_file.document.file, arm] = requests_of(
                f"{entry_file.entry.id}, {arm}",
                scenario,
                range(replications or scenario.run.replications),
                resolved=resolved,
            )
    return PlannedRuns(requests, refusals)


def run_entries(entry_files: Sequence[EntryFile], planned: PlannedRuns, runs: RunExecutor) -> list[ValidationRow]:
    """Simulate what the rows ask for; a run that fails is a row that says so."""
    records = runs.run_all([request for arm_requests in planned.requests.values() for request in arm_requests])
    return [row for entry_file in entry_files for row in _rows(entry_file, planned, records)]


def _rows(entry_file: EntryFile, planned: PlannedRuns, records: Mapping[RunKey, RunRecord]) -> Iterator[ValidationRow]:
    for arm, published in entry_file.rows():
        scenario = entry_file.scenarios[arm]
        predicted, failure = _predicted(entry_file, arm, published, planned, records)
        framework = scenario.framework or "none"
        yield ValidationRow(entry_file.entry, entry_file.document.file, framework, arm, published, predicted, failure)


def _predicted(
    entry_file: EntryFile, arm: str, row: Published, planned: PlannedRuns, records: Mapping[RunKey, RunRecord]
) -> tuple[Estimate | None, str]:
    """The number that the simulation has for a row, or why there is none."""
    scenario, file = entry_file.scenarios[arm], entry_file.document.file
    if is_of_engine(row):
        try:
            return interval([engine_step_seconds(row, resolve(scenario))]), ""
        except ResolveError as refused:
            return None, "; ".join(map(str, refused.errors))
    keys = [(file, arm), (file, row.over or arm)]
    refusals = [planned.refusals[key] for key in keys if key in planned.refusals]
    own, base = ([records[request.key] for request in planned.requests.get(key, ())] for key in keys)
    failures = refusals + [record.error.splitlines()[0] for record in (*own, *base) if record.error]
    if failures:
        return None, failures[0]
    ours, theirs = ([measure(record, row.of) for record in arm_records] for arm_records in (own, base))
    if row.over is None:
        return interval(ours, scenario.run.confidence), ""
    pairs = list(zip(ours, theirs, strict=False))
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    better = (ours, theirs) if is_rate(row.of) else (theirs, ours)
    return paired_ratio(*better, scenario.run.confidence), ""
