"""The bottleneck of one arm, the evidence, and the changes that help most.

What speaks for the bottleneck: shares of time, KV, the tail, weight sync, and what staleness wastes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlsim.resolve import ResolvedScenario
from rlsim.results.metrics import Metrics
from rlsim.results.statistics import Estimate, paired_ratio
from rlsim.results.utilisation import Shares
from rlsim.scenario.schema import Scenario
from rlsim.studies.explain.candidates import NotTried, candidates, families_called_for
from rlsim.studies.explain.changes import Change
from rlsim.studies.runs.executor import RunExecutor
from rlsim.studies.runs.record import RunKey, RunRecord, RunRequest, requests_of

BEST = 3
"""Changes that are judged for their speed-up, and at most as many again because the bottleneck calls for them."""
HELPS = 1.005
"""Factor on the speed of a step from which a change is worth a second look."""
FILL_STEPS = 3
"""Warm-up steps beside the scenario's own: what a change lets begin ahead of the first step must not count as gain."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does."""

    change: Change
    speedup: Estimate
    """Step time as it is over that with the change, from paired replications that did not choose it."""

    @property
    def is_change(self) -> bool:
        """Whether the interval leaves 1 out and the mean is further from it than ``HELPS``."""
        low, high = self.speedup.low, self.speedup.high
        holds_one = low is not None and high is not None and low <= 1 <= high
        return not holds_one and not 1 / HELPS <= self.speedup.mean <= HELPS


@dataclass(frozen=True, slots=True)
class Screened:
    """A change that was tried on the first replication alone."""

    change: Change
    speedup: float | None
    """None where the change leaves the run stuck."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Of one arm."""

    arm: str
    record: RunRecord
    """Of the first replication, by which changes were screened."""
    effects: tuple[Effect, ...]
    """The best changes and those that the bottleneck calls for, in the order of their speed-up."""
    screened: tuple[Screened, ...]
    """All others that were tried, in that order."""
    not_tried: tuple[NotTried, ...]

    @property
    def tried(self) -> int:
        """Number of changes that were simulated."""
        return len(self.effects) + len(self.screened)


def explain(name: str, resolved: ResolvedScenario, runs: RunExecutor) -> Explanation:
    """Screen all changes that apply on one replication, then judge the best, and those called for, on others.

    ``DeadlockError`` when the arm as it stands is stuck; a change that makes it so is out.
    """
    scenario, listed = _filled(resolved.scenario), candidates(resolved)
    (base,) = requests_of(name, scenario, [0])
    tried = [(change, _filled(other)) for change, other in listed.tried]
    requests = [requests_of(f"{name}, {change.label}", other, [0])[0] for change, other in tried]
    records = _records([base, *requests], runs)
    before = records[base.key].metrics.step_seconds
    speedups = [
        0.0 if records[request.key].is_stuck else before / records[request.key].metrics.step_seconds
        for request in requests
    ]
    ranked = sorted(range(len(tried)), key=lambda index: speedups[index], reverse=True)
    best = [index for index in ranked[:BEST] if speedups[index] > HELPS]
    families = families_called_for(records[base.key].verdict)
    called_for = [_first(ranked, [tried[index][0].family == family for index in ranked]) for family in families]
    chosen = [*best, *[index for index in called_for if index not in (None, *best)][:BEST]]
    judged = [index for index in dict.fromkeys(chosen) if index is not None and speedups[index]]
    effects = sorted(
        _effects(name, scenario, [tried[index] for index in judged], runs),
        key=lambda effect: effect.speedup.mean,
        reverse=True,
    )
    shown = {effect.change.label for effect in effects}
    screened = [Screened(tried[index][0], speedups[index] or None) for index in ranked]
    others = tuple(one for one in screened if one.change.label not in shown)
    return Explanation(name, records[base.key], tuple(effects), others, tuple(listed.not_tried))


def _first(ranked: Sequence[int], matches: Sequence[bool]) -> int | None:
    return next((index for index, is_match in zip(ranked, matches, strict=True) if is_match), None)


def _filled(scenario: Scenario) -> Scenario:
    """The scenario with a longer warm-up."""
    run = scenario.run
    steps = {"steps": run.steps + FILL_STEPS, "warmup_steps": run.warmup_steps + FILL_STEPS}
    return scenario.model_copy(update={"run": run.model_copy(update=steps)})


def _records(requests: Sequence[RunRequest], runs: RunExecutor) -> dict[RunKey, RunRecord]:
    """Records of runs that may be stuck; any other error is raised."""
    records = runs.run_all(requests)
    for record in records.values():
        if record.error and not record.is_stuck:
            raise record.failure()
    return records


def _effects(name: str, scenario: Scenario, best: Sequence[tuple[Change, Scenario]], runs: RunExecutor) -> list[Effect]:
    """The best changes once more, on replications that did not choose them."""
    if not best:
        return []
    fresh = range(1, scenario.run.replications + 1)
    base = requests_of(name, scenario, fresh)
    changed = [requests_of(f"{name}, {change.label}", other, fresh) for change, other in best]
    records = _records([request for series in (base, *changed) for request in series], runs)
    before = [records[request.key].metrics.step_seconds for request in base]
    effects = []
    for (change, _), requests in zip(best, changed, strict=True):
        after = [records[request.key] for request in requests]
        if not any(record.is_stuck for record in after):
            steps = [record.metrics.step_seconds for record in after]
            effects.append(Effect(change, paired_ratio(before, steps, scenario.run.confidence)))
    return effects


SHOWN = 0.01
"""Share of the time from which a use is named."""


def evidence(metrics: Metrics, plan: ResolvedScenario) -> Iterator[tuple[str, str]]:
    """Kinds of evidence and what they say."""
    if plan.colocated:
        yield "GPU time", _shares(metrics.utilisation.all)
    else:
        yield "rollout GPUs", _shares(metrics.utilisation.rollout)
        yield "trainer GPUs", _shares(metrics.utilisation.trainer)
    yield "KV cache", _kv_cache(metrics)
    cached = f"{metrics.prefix_hit_share:.0%} of the tokens of calls found in prefix caches"
    yield "router", f"busiest replica {metrics.load_imbalance:.0%} above the mean; {cached}"
    for name, busy in (("rewards", metrics.reward_busy_share), ("environments", metrics.environment_busy_share)):
        if busy:
            yield name, f"busy {busy:.0%} of the time"
    yield "tail", f"{metrics.tail_share:.0%} of a step's generation passes after 90% of its samples have ended"
    yield (
        "weight sync",
        f"{metrics.sync_seconds_per_step / metrics.step_seconds:.1%} of a step of {metrics.step_seconds:.4g} s",
    )
    yield "staleness", _staleness(metrics)


def _kv_cache(metrics: Metrics) -> str:
    waits = f"requests wait for blocks in {metrics.kv_wait_share:.0%} of the engines' steps"
    again = f"{metrics.preemptions_per_sample:.2g} preemptions a sample, {metrics.recomputed_share:.0%} prefilled again"
    peak = f"peak {metrics.kv_peak_share:.0%} of the blocks (an upper estimate)"
    return f"{peak}; {waits}; {again}; {metrics.resets_per_step:,.3g} resets a step by weight updates"


def _shares(shares: Shares) -> str:
    """Uses from the largest down."""
    ordered = sorted(((share, name) for name, share in shares.items() if share >= SHOWN), reverse=True)
    return ", ".join(f"{name} {share:.0%}" for share, name in ordered)


def _staleness(metrics: Metrics) -> str:
    wasted = metrics.ledger_tokens["dropped_stale"] / max(1, metrics.generated_tokens)
    lag = f"{metrics.start_lag_mean:.2g} versions before they were trained on (at most {metrics.start_lag_max:g})"
    return f"samples began {lag}; {wasted:.1%} of the generated tokens dropped as stale"
