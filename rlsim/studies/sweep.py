"""A sweep: every variant with common random numbers, replication by replication, against a baseline.

Variants of a scenario: each checked as a scenario of its own before any of them runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from rlsim import __version__
from rlsim.core.errors import ParameterError, ScenarioError, unknown
from rlsim.resolve import ResolvedScenario, ResolveError, resolve
from rlsim.results.statistics import Estimate, interval, paired_ratio
from rlsim.scenario.document import Document
from rlsim.scenario.schema import Scenario
from rlsim.scenario.variation import Choice, arm_of, parted, settings_of
from rlsim.studies.runs.executor import RunExecutor
from rlsim.studies.runs.record import RunRecord, RunRequest, number, requests_of

WITH_PROGRESS = frozenset({"progress"})
"""What a sweep and a search keep of a run beside its metrics."""
MOST_FAULTS = 20
"""Faults that a refusal lists; a wrong value can be in hundreds of variants."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One choice of levels, resolved."""

    levels: dict[str, str]
    """As written, by factor."""
    scenario: Scenario
    resolved: ResolvedScenario

    @property
    def label(self) -> str:
        """Its levels in one line."""
        return ", ".join(f"{name}={text}" for name, text in self.levels.items()) or self.scenario.name

    def requests(self, replications: int) -> list[RunRequest]:
        """Requests for its first replications, by replication."""
        return requests_of(self.label, self.scenario, range(replications), WITH_PROGRESS, resolved=self.resolved)


def variants(document: Document, choices: Iterable[Choice]) -> list[Variant]:
    """All of them; ScenarioError with the faults of every one that is refused, before anything runs."""
    choices = list(choices)
    document.resolve_all({arm for arm in map(arm_of, choices) if arm is not None})
    checked: list[Variant] = []
    faults: dict[str, None] = {}
    for choice in choices:
        try:
            checked.append(variant(document, choice))
        except ScenarioError as error:
            faults |= dict.fromkeys(error.faults)
    if faults:
        more = len(faults) - MOST_FAULTS
        first = list(faults)[:MOST_FAULTS]
        raise ScenarioError(first if more <= 0 else [*first, f"... and {more} more faults like these"])
    if not checked:
        raise ParameterError("--set", "no variant", "at least one")
    return checked


def variant(document: Document, choice: Choice) -> Variant:
    """One of them; ScenarioError, with file, line and key, when it is refused."""
    laid, arm = document.with_settings(settings_of(choice)), arm_of(choice)
    scenario = laid.resolve(arm)
    try:
        resolved = resolve(scenario)
    except ResolveError as error:
        raise laid.scenario_error(error.errors, arm) from None
    return Variant({name: axis_level.text for name, axis_level in choice.items()}, scenario, resolved)


def baseline_of(variants: Sequence[Variant], texts: Sequence[str]) -> Variant:
    """The one variant that has all ``factor=level`` of the texts; the first where there is no text."""
    if not texts:
        return variants[0]
    wanted = {}
    for text in texts:
        pieces = parted(text, ",")
        is_list = all(piece.partition("=")[0].strip() in variants[0].levels for piece in pieces)
        for pair in pieces if is_list else [text]:
            name, equals, value = pair.partition("=")
            if not equals:
                raise ParameterError("--baseline", pair, "factor=level, the levels of one variant")
            wanted[name.strip()] = value.strip()
    for name, text in wanted.items():
        known = list(dict.fromkeys(variant.levels.get(name, "") for variant in variants))
        if text not in known:
            allowed = (
                f"one of {', '.join(known)}"
                if name in variants[0].levels
                else f"one of {', '.join(variants[0].levels)}"
            )
            raise ParameterError("--baseline", f"{name}={text}", allowed)
    matches = [variant for variant in variants if wanted.items() <= variant.levels.items()]
    if len(matches) != 1:
        raise ParameterError("--baseline", ",".join(texts), f"levels that one variant has; {len(matches)} have these")
    return matches[0]


METRICS = ("step_seconds", "tokens_per_second_per_gpu", "usd_per_million_trained_tokens", "start_lag_max")
"""Columns of the table where nobody asks for others; the first is compared with the baseline's."""


@dataclass(frozen=True, slots=True)
class Result:
    """A variant and its runs, in order of replications."""

    variant: Variant
    runs: tuple[RunRecord, ...]

    @property
    def fault(self) -> str:
        """Why it has no numbers: the first of its runs that did not come to its end."""
        return next((record.error for record in self.runs if record.error), "")

    def values(self, metric: str) -> list[float]:
        """Of every replication; ParameterError for what is no number of a run."""
        return [number(record, metric) for record in self.runs]

    def estimate(self, metric: str) -> Estimate:
        """Mean and interval over replications."""
        return interval(self.values(metric), self.variant.scenario.run.confidence)

    def ratio(self, other: Result, metric: str) -> Estimate | None:
        """This over the other, replication by replication; None where one of them is 0 or failed."""
        if self.fault or other.fault:
            return None
        own, others = self.values(metric), other.values(metric)
        if min(*own, *others) <= 0:
            return None
        return paired_ratio(own, others, self.variant.scenario.run.confidence)


@dataclass(frozen=True, slots=True)
class Sweep:
    """All variants."""

    name: str
    metrics: tuple[str, ...]
    results: tuple[Result, ...]
    baseline: Result
    runs_reused: int
    """Runs that were there already."""
    runs_made: int

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values by name."""
        variants = []
        for result in self.results:
            ratio = result.ratio(self.baseline, self.metrics[0])
            variants.append(
                {
                    "levels": result.variant.levels,
                    "run": result.runs[0].identity,
                    "fault": result.fault or None,
                    "sources": [asdict(source) for source in result.variant.resolved.sources],
                    "estimates": {} if result.fault else {name: asdict(result.estimate(name)) for name in self.metrics},
                    "ratio_to_baseline": ratio and asdict(ratio),
                    "replications": [record.flat() for record in result.runs],
                }
            )
        return {
            "name": self.name,
            "rlsim": __version__,
            "baseline": self.baseline.variant.levels,
            "metrics": self.metrics,
            "variants": variants,
            "runs_made": self.runs_made,
            "runs_reused": self.runs_reused,
        }


def sweep(
    variants: Sequence[Variant],
    baseline: Variant,
    replications: int,
    runs: RunExecutor,
    metrics: Sequence[str] = METRICS,
) -> Sweep:
    """Make the runs that are missing, and put all together; ``ParameterError`` for what is no metric, before that."""
    from rlsim.results.metrics import Metrics

    names = [field.name for field in fields(Metrics)]
    for metric in metrics:
        if metric.split(".")[0] not in names:  # Parts of nested metrics are known by their first name.
            raise unknown("--metric", metric, names)
    if not metrics:
        raise ParameterError("--metric", "none", ", ".join(names))
    results = results_of(variants, replications, runs)
    against = next(result for result in results if result.variant is baseline)
    return Sweep(variants[0].scenario.name, tuple(metrics), tuple(results), against, runs.runs_kept, runs.runs_made)


def results_of(variants: Sequence[Variant], replications: int, runs: RunExecutor) -> list[Result]:
    """Replications of each variant; runs that variants have in common are made once."""
    requests = [variant.requests(replications) for variant in variants]
    records = runs.run_all([request for variant_requests in requests for request in variant_requests])
    return [
        Result(variant, tuple(records[request.key] for request in variant_requests))
        for variant, variant_requests in zip(variants, requests, strict=True)
    ]
