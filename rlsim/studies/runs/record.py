"""One run of a study: the request for it, and the record that is kept of it.

A record holds everything that a study prints or saves of a run, as numbers and text, so that a study whose records are
all there runs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.core.errors import DeadlockError, RlsimError, unknown
from rlsim.studies.runs.identity import ALL_MEASURES, METRICS_ALONE, Measures, identity

if TYPE_CHECKING:
    from rlsim.resolve import ResolvedScenario
    from rlsim.results.allocation import Allotted
    from rlsim.results.columns import Columns
    from rlsim.results.latency import Latency
    from rlsim.results.metrics import Metrics
    from rlsim.scenario.schema import Scenario

__all__ = ["ALL_MEASURES", "METRICS_ALONE", "Number", "RunKey", "RunRecord", "RunRequest", "number", "requests_of"]

RunKey = tuple[str, int]
"""Hash of everything that the run is made from, and its replication."""
Number = int | float | bool | str


class UnfinishedRunError(RlsimError, ValueError):
    """A run that could not come to its end; the message is that of the error that ended it."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One replication of a scenario that a study needs."""

    label: str
    """Name of the variant, for people; no part of the key."""
    scenario: Scenario
    replication: int
    identity: str
    measures: Measures = METRICS_ALONE
    """What is read off the run beside its metrics."""
    out: Path | None = None
    """Directory for its tables, log, trace and figures; None: they are not written."""
    resolved: ResolvedScenario | None = field(default=None, repr=False, compare=False)
    """The scenario as the study has resolved it; it stays in the process that did."""

    @property
    def key(self) -> RunKey:
        """The key of its record."""
        return self.identity, self.replication


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Results of one run, or the error that ended it."""

    label: str
    """Name of the variant that requested it first."""
    replication: int
    identity: str = ""
    code: str = ""
    """Version and digest of the code that made it."""
    measured: Metrics | None = None
    """None where an error ended the run."""
    verdict: str = ""
    latency: Latency | None = None
    progress: Columns | None = None
    """What was used up and reached after every step (``rlsim.results.progress``); None without a learning model."""
    allotted: Allotted | None = None
    """Which prompts got what (``rlsim.results.allocation``); None without a learning model."""
    error: str = ""
    """Why it did not come to its end; empty where it did."""
    error_kind: str = ""
    """Name of the error's class."""
    cpu_seconds: float = 0.0

    @property
    def key(self) -> RunKey:
        """The key under which it is stored."""
        return self.identity, self.replication

    @property
    def metrics(self) -> Metrics:
        """Metrics of a run that ended; raises ``failure()`` where it did not."""
        if self.measured is None:
            raise self.failure()
        return self.measured

    @property
    def is_stuck(self) -> bool:
        """Whether the run ended in a deadlock."""
        return self.error_kind == DeadlockError.__name__

    def failure(self) -> RlsimError:
        """The error with the variant's name: ``DeadlockError`` for a stuck run, else ``UnfinishedRunError``."""
        kind = DeadlockError if self.is_stuck else UnfinishedRunError
        return kind(f"{self.label}, replication {self.replication}: {self.error}")

    def flat(self) -> dict[str, Number]:
        """Metrics by flat name without the replication, and the way to success as JSON; empty without metrics."""
        if self.measured is None:
            return {}
        flat = self.measured.as_dict()
        del flat["replication"]
        if self.progress is not None:
            columns = {name: self.progress[name].tolist() for name in ("success", "seconds", "usd")}
            flat["progress"] = json.dumps(columns)
        return flat


def number(record: RunRecord, metric: str) -> float:
    """A metric by its flat name; ``ParameterError``, with the nearest name, for one that is no number."""
    value = getattr(record.metrics, metric, None)
    if not isinstance(value, int | float):
        value = record.flat().get(metric)
    if isinstance(value, str | bool) or value is None:
        names = [name for name, flat_value in record.flat().items() if not isinstance(flat_value, str | bool)]
        raise unknown("--metric", metric, names)
    return float(value)


def requests_of(
    label: str,
    scenario: Scenario,
    replications: Iterable[int],
    measures: Measures = METRICS_ALONE,
    *,
    out: Path | None = None,
    resolved: ResolvedScenario | None = None,
) -> list[RunRequest]:
    """Requests for some replications of one scenario; with ``out``, each is to leave its files in a folder there."""
    hashed = identity(scenario, measures)
    return [
        RunRequest(label, scenario, replication, hashed, measures, out and out / f"replication-{replication}", resolved)
        for replication in replications
    ]
