"""Published speed-ups, looked for over the conditions that their sources leave open.

A scenario with a ``headline`` names two arms and a list of conditions. Under each the arms run with common random
numbers; the claim is *bracketed* when the simulated ratios reach both below and above it, and *overlaps* when they meet
a part of it. What is assumed of the conditions is printed with the verdict.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from typing import Any

from rlsim import __version__
from rlsim.core.errors import ParameterError, unknown
from rlsim.resolve import resolve
from rlsim.results.columns import Columns
from rlsim.results.progress import success_at, used_at
from rlsim.results.statistics import Estimate, paired_ratio
from rlsim.scenario.document import Document
from rlsim.scenario.override import UnsetKeyError, override
from rlsim.scenario.schema import Headline, PointConfig, Scenario
from rlsim.studies.runs.executor import RunExecutor
from rlsim.studies.runs.record import RunKey, RunRecord, RunRequest, number, requests_of

MEASURES = frozenset({"latency", "progress"})
"""What claims need of a run beside its metrics."""
WIDTH = 118
"""Columns of the printed table."""


@dataclass(frozen=True, slots=True)
class Found:
    """The ratio under one set of conditions."""

    label: str
    ratio: Estimate
    also: Estimate | None = None
    """The other measure's."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """What a headline claims and what was found."""

    headline: Headline
    found: tuple[Found, ...]

    @property
    def lowest(self) -> Found:
        """Where the ratio is smallest."""
        return min(self.found, key=lambda found: found.ratio.mean)

    @property
    def highest(self) -> Found:
        """Where the ratio is largest."""
        return max(self.found, key=lambda found: found.ratio.mean)

    @property
    def held(self) -> str:
        """Under how many of the conditions the ratio is at least the lowest claimed."""
        count = sum(found.ratio.mean >= self.headline.ratios[0] for found in self.found)
        return f"{count} of {len(self.found)}"

    @property
    def verdict(self) -> str:
        """Where the claim lies in the means that were found."""
        claimed_low, claimed_high = self.headline.ratios
        low, high = self.lowest.ratio.mean, self.highest.ratio.mean
        if low <= claimed_low and claimed_high <= high:
            return "bracketed"
        if high < claimed_low:
            return f"not reached: {high / claimed_low - 1:+.0%} at best"
        if low > claimed_high:
            return f"exceeded everywhere: {low / claimed_high - 1:+.0%} at least"
        return "overlaps"


@dataclass(frozen=True, slots=True)
class Case:
    """The runs under one set of conditions, replication by replication."""

    label: str
    baseline: tuple[RunRequest, ...]
    improved: tuple[RunRequest, ...]
    target: float | None = None
    """Success to reach."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """A headline and the runs that it asks for."""

    headline: Headline
    cases: tuple[Case, ...]

    @property
    def requests(self) -> list[RunRequest]:
        """All runs, each once, by condition, those of the baseline first."""
        requests = (request for case in self.cases for request in (*case.baseline, *case.improved))
        return list({request.key: request for request in requests}.values())


def hunt(document: Document) -> Hunt:
    """What a scenario's headline asks for.

    ``ParameterError`` when it has none, or one that names no arm or key of the scenario; ``PlanError`` for conditions
    that cannot be run.
    """
    headline, scenarios = _headline(document)
    arms = (headline.baseline, headline.improved)
    cases = []
    for point in headline.points:
        name = f"{headline.system}, {point.label}"
        baseline, improved = (_planned(name, conditioned(scenarios, arm, point)) for arm in arms)
        cases.append(Case(point.label, baseline, improved, _target(headline, baseline[0].scenario)))
    return Hunt(headline, tuple(cases))


def brackets(hunts: Sequence[Hunt], runs: RunExecutor) -> list[Bracket]:
    """Run both arms of every headline under every set of conditions.

    Runs that conditions or headlines have in common are made once. Raises the error of a run that cannot come to its
    end: a ratio needs every run.
    """
    records = runs.run_all([request for hunt in hunts for request in hunt.requests], must_end=True)
    return [_bracket(one, records) for one in hunts]


def _bracket(asked: Hunt, records: Mapping[RunKey, RunRecord]) -> Bracket:
    found = []
    for case in asked.cases:
        base, better = ([records[request.key] for request in arm] for arm in (case.baseline, case.improved))
        also = asked.headline.also
        other = None if also is None else ratio(asked.headline, base, better, also, case.target)
        found.append(Found(case.label, ratio(asked.headline, base, better, None, case.target), other))
    return Bracket(asked.headline, tuple(found))


def conditioned(scenarios: Mapping[str, Scenario], arm: str, point: PointConfig) -> Scenario:
    """An arm under a point's settings; a setting of ``arms.NAME.key.path`` is for that arm alone."""
    if arm not in scenarios:
        raise unknown("headline", arm, scenarios)
    label = f"headline.points.{point.label}"
    settings: dict[str, object] = {}
    written: dict[str, str] = {}
    for key, value in point.settings.items():
        path, of_arm = key, arm
        if key.startswith("arms."):
            of_arm, _, path = key.removeprefix("arms.").partition(".")
            if of_arm not in scenarios:
                raise unknown(f"{label}.{key}", of_arm, scenarios)
        if of_arm == arm:
            settings[path], written[path] = value, key
    try:
        return override(scenarios[arm], settings, only_set=True)
    except UnsetKeyError as error:
        allowed = "a key path of this scenario, or arms.NAME. and a key path"
        raise ParameterError(f"{label}.{written[error.path]}", error.found, allowed) from error
    except ParameterError as error:
        raise ParameterError(f"{label}: {error.path}", error.found, error.allowed) from error


def ratio(
    headline: Headline,
    base: Sequence[RunRecord],
    better: Sequence[RunRecord],
    measure: str | None = None,
    target: float | None = None,
) -> Estimate:
    """By which factor the improved arm is better in the headline's measure, or another; above 1 is better.

    From paired replications. ``ParameterError`` where a run does not reach the headline's target.
    """
    measure = measure or headline.measure
    if measure in _USED:
        return paired_ratio(_used(target, base, _USED[measure]), _used(target, better, _USED[measure]))
    if measure == "success":
        before, after = _successes(base, better)
        return paired_ratio(after, before)
    if measure in _TIMES:
        base_seconds, better_seconds = ([_figure(one, _TIMES[measure]) for one in runs] for runs in (base, better))
        return paired_ratio(base_seconds, better_seconds)
    return paired_ratio([_RATES[measure](one) for one in better], [_RATES[measure](one) for one in base])


def as_text(brackets: Sequence[Bracket]) -> str:
    """A table of all systems, then by system what was claimed, found under which conditions, and assumed."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    titles = ["system", "claimed", "simulated, lowest to highest (95 %)", "verdict", "holds in"]
    others = [_others(told) for told in brackets]
    if any(others):
        titles.append("other measure")
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="")
    for title in titles:
        table.add_column(title)
    for told, other in zip(brackets, others, strict=True):
        found = f"{_shown(told.lowest.ratio)} to {_shown(told.highest.ratio)}"
        row = (told.headline.system, _claimed(told.headline), found, told.verdict, told.held, other)
        table.add_row(*row[: len(titles)])
    out = StringIO()
    console = Console(file=out, width=WIDTH, highlight=False)
    console.print(table)
    for line in (line for told in brackets for line in _detail(told)):
        console.print(line, markup=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def as_json(brackets: Sequence[Bracket]) -> str:
    """The same for machines."""
    systems = [
        {
            **told.headline.model_dump(mode="json", exclude={"points"}),
            "points": [_point(found) for found in told.found],
            "verdict": told.verdict,
        }
        for told in brackets
    ]
    return json.dumps({"rlsim": __version__, "systems": systems}, indent=1) + "\n"


def _point(found: Found) -> dict[str, Any]:
    also = {} if found.also is None else {"also": asdict(found.also)}
    return {"label": found.label, **asdict(found.ratio), **also}


def _target(headline: Headline, scenario: Scenario) -> float | None:
    """The success that is to be reached; ``ParameterError`` in a scenario that does not learn."""
    if headline.target_share is None:
        return None
    if scenario.learning is None:
        raise ParameterError("learning", None, "a learning section: the headline is about a success to reach")
    start, end = scenario.learning.population.mean_success, scenario.learning.curve.asymptote
    return start + headline.target_share * (end - start)


def _headline(document: Document) -> tuple[Headline, dict[str, Scenario]]:
    scenarios = {arm or "": found for arm, found in document.resolve_all().items()}
    headline = next(iter(scenarios.values())).headline
    if headline is None:
        allowed = "a headline section: system, claim, ratios, arms and points"
        raise ParameterError(f"{document.file}: headline", None, allowed)
    return headline, scenarios


def _planned(name: str, scenario: Scenario) -> tuple[RunRequest, ...]:
    replications = range(scenario.run.replications)
    return tuple(requests_of(name, scenario, replications, MEASURES, resolved=resolve(scenario)))


def _figure(record: RunRecord, name: str) -> float:
    """A number of a run by name: of its latency or of its metrics."""
    value = getattr(record.latency, name, None)
    return number(record, name) if value is None else float(value)


def _throughput(record: RunRecord) -> float:
    """Trained response tokens a second."""
    return number(record, "response_tokens_per_second")


def _rollout_rate(record: RunRecord) -> float:
    """Trained response tokens a second in which any replica works."""
    return _throughput(record) * number(record, "step_seconds") / number(record, "generation_seconds_per_step")


def _collection_rate(record: RunRecord) -> float:
    """Trained response tokens a second in which the trainer waits: generation, tools and rewards in one."""
    return _throughput(record) * number(record, "step_seconds") / number(record, "wait_seconds_per_step")


def _used(target: float | None, runs: Sequence[RunRecord], used: str) -> list[float]:
    """What each run used up to the target."""
    assert target is not None, "a measure to a target has one"
    found = []
    for record in runs:
        amount = used_at(_progress(record), target, used)
        if amount is None:
            reached = f"{_progress(record)['success'][-1]:.3f} in {record.label}, replication {record.replication}"
            allowed = f"a success that every run reaches ({reached}), or more run.steps"
            raise ParameterError("headline.target_share", f"a success of {target:.3f}", allowed)
        found.append(amount)
    return found


def _successes(base: Sequence[RunRecord], better: Sequence[RunRecord]) -> tuple[list[float], list[float]]:
    """Success of both arms after as many rollouts as both have made, replication by replication."""
    pairs = []
    for one, other in zip(base, better, strict=True):
        most = min(_progress(one)["rollouts"][-1], _progress(other)["rollouts"][-1])
        pairs.append([success_at(_progress(record), "rollouts", most) or 0.0 for record in (one, other)])
    return [a for a, _ in pairs], [b for _, b in pairs]


def _progress(record: RunRecord) -> Columns:
    assert record.progress is not None, "success is measured of runs that learn"
    return record.progress


_USED = {
    "rollouts_to_target": "rollouts",
    "tokens_to_target": "generated_tokens",
    "seconds_to_target": "seconds",
}


_TIMES = {
    "step": "step_seconds",
    "generation": "generation_seconds_per_step",
    "latency_mean": "latency_mean_seconds",
    "latency_median": "latency_median_seconds",
    "latency_p99": "latency_p99_seconds",
}
"""Names among the figures of a run."""
_RATES: dict[str, Callable[[RunRecord], float]] = {
    "throughput": _throughput,
    "rollout": _rollout_rate,
    "collection": _collection_rate,
    "goodput": lambda record: _figure(record, "goodput_per_second"),
}


def _others(told: Bracket) -> str:
    """The range of the other measure; empty without one."""
    found = [one.also.mean for one in told.found if one.also is not None]
    return f"{_titled(told.headline.also)} {min(found):.2f}x to {max(found):.2f}x" if found else ""


def _titled(measure: str | None) -> str:
    return "" if measure is None else measure.replace("_to_target", "").replace("seconds", "time")


def _claimed(headline: Headline) -> str:
    low, high = headline.ratios
    return f"{low:.2f}x" if low == high else f"{low:.2f}x to {high:.2f}x"


def _shown(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return f"{found.mean:.2f}x"
    return f"{found.mean:.2f}x ({found.low:.2f}-{found.high:.2f})"


def _detail(told: Bracket) -> Iterator[str]:
    headline = told.headline
    yield ""
    yield f"{headline.system}: {headline.claim} ({headline.source})."
    low = headline.ratios[0]
    for found in told.found:
        also = "" if found.also is None else f"; {_titled(headline.also)} {_shown(found.also)}"
        holds = ", as claimed" if found.ratio.mean >= low else ""
        yield f"  found {_shown(found.ratio)}{holds}: {found.label}{also}"
    for assumed in headline.assumed:
        yield f"  assumed: {assumed}"
