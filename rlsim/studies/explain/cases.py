"""Users' questions as scenarios: the observation beside what is simulated, and whether they agree.

The direction agrees when the whole interval over replications is on the side that was seen, and is *unsure* when the
mean alone is; the size agrees within 25 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlsim.core.errors import ParameterError, unknown
from rlsim.results.statistics import Estimate, interval, paired_ratio
from rlsim.scenario.case import Case
from rlsim.scenario.document import Document, load
from rlsim.scenario.schema import Scenario
from rlsim.studies.measures import case_measure
from rlsim.studies.runs.executor import RunExecutor
from rlsim.studies.runs.record import RunRequest, requests_of

SIZE_WITHIN = 0.25
"""Relative error up to which a size agrees."""
Side = Literal["yes", "unsure", "no"]


@dataclass(frozen=True, slots=True)
class CaseStudy:
    """A case and the scenarios of the arms that it needs."""

    file: str
    case: Case
    arms: dict[str, Scenario]

    def requests(self) -> dict[str, list[RunRequest]]:
        """Every replication of every arm."""
        return {
            name: requests_of(f"{self.case.id}, {name}", scenario, range(scenario.run.replications))
            for name, scenario in self.arms.items()
        }


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What was simulated beside what was observed."""

    file: str
    case: Case
    simulated: Estimate

    @property
    def direction(self) -> Side:
        """Whether the simulated number is on the side that was seen."""
        ends = [end for end in (self.simulated.low, self.simulated.high) if end is not None]
        if not self.case.is_seen(self.simulated.mean):
            return "no"
        return "yes" if all(map(self.case.is_seen, ends)) else "unsure"

    @property
    def error(self) -> float | None:
        """Relative error of the size; None where the source gives none."""
        return None if self.case.size is None else self.simulated.mean / self.case.size - 1

    @property
    def size(self) -> Side | None:
        """Whether the size is within 25 %; None where the source gives none."""
        if self.error is None:
            return None
        return "yes" if abs(self.error) <= SIZE_WITHIN else "no"

    @property
    def agrees(self) -> bool:
        """Direction and, where there is one, size."""
        return self.direction == "yes" and self.size != "no"


def case_files(folder: Path) -> list[Path]:
    """The scenario files of a folder, in order; ``ParameterError`` without any."""
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ParameterError("--cases", str(folder), "a directory with scenario files")
    return files


def read_case(file: Path) -> CaseStudy:
    """The case of a file; ``ParameterError`` without one."""
    case_study = case_study_of(load(str(file)))
    if case_study is None:
        raise ParameterError(f"{file}: case", None, "a section with id, question, source, observed, measure, ...")
    return case_study


def case_study_of(document: Document) -> CaseStudy | None:
    """The case of a scenario, if it has one; ``ParameterError`` when it names an arm that is none."""
    scenarios = {name or scenario.name: scenario for name, scenario in document.resolve_all().items()}
    case = next(iter(scenarios.values())).case
    if case is None:
        return None
    names = [name for name in (case.arm, case.over) if name is not None]
    for name in names:
        if name not in scenarios:
            raise unknown(f"{document.file}: case", name, scenarios)
    return CaseStudy(document.file, case, {name: scenarios[name] for name in names})


def run_cases(case_studies: Sequence[CaseStudy], runs: RunExecutor) -> list[CaseResult]:
    """Run all cases; ``RlsimError`` where a run ended in another error than a deadlock."""
    requests = [case_study.requests() for case_study in case_studies]
    records = runs.run_all([request for arms in requests for arm in arms.values() for request in arm])
    for record in records.values():
        if record.error and not record.is_stuck:
            raise record.failure()
    results = []
    for case_study, arms in zip(case_studies, requests, strict=True):
        case = case_study.case
        values = {
            name: [case_measure(records[request.key], case.measure) for request in arm_requests]
            for name, arm_requests in arms.items()
        }
        confidence = case_study.arms[case.arm].run.confidence
        if case.over is None:
            simulated = interval(values[case.arm], confidence)
        else:
            simulated = paired_ratio(values[case.arm], values[case.over], confidence)
        results.append(CaseResult(case_study.file, case, simulated))
    return results
