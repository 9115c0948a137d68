"""The bottleneck of one arm, the evidence, and the changes that help most.

What speaks for the bottleneck: shares of time, KV, the tail, weight sync, and what staleness wastes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rlsim.resolve import ResolvedScenario
from rlsim.results.metrics import Metrics
from rlsim.results.statistics import Estimate, paired_ratio
from rlsim.results.utilisation import Shares
from rlsim.scenario.schema import Scenario
from rlsim.studies.explain.candidates import Change, candidates
from rlsim.studies.explain.watching import Watched, watch
from rlsim.studies.runs.record import Outcome, Task, perform_each

BEST = 3
"""Changes that are shown."""
HELPS = 1.005
"""Factor on the speed of a step from which a change is worth a second look."""
FILL_STEPS = 3
"""Warm-up steps beside the scenario's own: what a change lets begin ahead of the first step must not count as gain."""
Done = Callable[[Watched], None]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does."""

    change: Change
    speedup: Estimate
    """Step time as it is over that with the change, from paired replications that did not choose it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Of one arm."""

    arm: str
    outcome: Outcome
    """Of the first replication, by which changes were screened."""
    tried: int
    effects: tuple[Effect, ...]
    """The best, in the order of their speed-up."""


def explain(
    name: str, found: ResolvedScenario, done: Done = lambda seen: None, workers: int | None = None
) -> Explanation:
    """Screen all changes that apply on one replication, then judge the best on others.

    ``DeadlockError`` when the arm as it stands is stuck; a change that makes it so is out.
    """
    tried = [(change, _filled(other)) for change, other in candidates(found)]
    scenario = _filled(found.scenario)
    first = [Task(name, scenario, 0), *(Task(f"{name}, {one.label}", other, 0) for one, other in tried)]
    seen = _watch(first, done, workers)
    base = seen[0].told
    ranked = sorted(range(len(tried)), key=lambda at: _speedup(base, seen[at + 1]), reverse=True)
    best = [tried[at] for at in ranked[:BEST] if _speedup(base, seen[at + 1]) > HELPS]
    effects = _effects(name, scenario, best, done, workers)
    effects = sorted(effects, key=lambda effect: effect.speedup.mean, reverse=True)
    return Explanation(name, base, len(tried), tuple(effects))


def _filled(scenario: Scenario) -> Scenario:
    """The same with a longer warm-up."""
    given = scenario.run
    steps = {"steps": given.steps + FILL_STEPS, "warmup_steps": given.warmup_steps + FILL_STEPS}
    return scenario.model_copy(update={"run": given.model_copy(update=steps)})


def _watch(tasks: Sequence[Task], done: Done, workers: int | None) -> list[Watched]:
    seen = []
    for one in perform_each(watch, tasks, workers):
        done(one)
        seen.append(one)
    return seen


def _speedup(base: Outcome, seen: Watched) -> float:
    """Step time as it is over that with the change, on the replication that screens; 0 for a stuck run."""
    return 0.0 if seen.outcome is None else base.metrics.step_seconds / seen.outcome.metrics.step_seconds


def _effects(
    name: str, scenario: Scenario, best: Sequence[tuple[Change, Scenario]], done: Done, workers: int | None
) -> list[Effect]:
    """The best once more, on luck that did not choose them."""
    fresh = range(1, scenario.run.replications + 1)
    arms = [(name, scenario), *((f"{name}, {change.label}", other) for change, other in best)] if best else []
    seen = iter(_watch([Task(label, one, number) for label, one in arms for number in fresh], done, workers))
    rows = [[next(seen) for _ in fresh] for _ in arms]
    return [
        Effect(change, paired_ratio(_steps(rows[0]), _steps(row), scenario.run.confidence))
        for (change, _), row in zip(best, rows[1:], strict=False)
        if all(one.outcome is not None for one in row)
    ]


def _steps(row: Sequence[Watched]) -> list[float]:
    return [one.told.metrics.step_seconds for one in row]


SHOWN = 0.01
"""Share of the time from which a use is named."""


def evidence(metrics: Metrics, plan: ResolvedScenario) -> Iterator[tuple[str, str]]:
    """Kinds of evidence and what they say."""
    if plan.colocated:
        yield "GPU time", _shares(metrics.utilisation.all)
    else:
        yield "rollout GPUs", _shares(metrics.utilisation.rollout)
        yield "trainer GPUs", _shares(metrics.utilisation.trainer)
    preempted = f"{metrics.preemptions_per_step:,.0f} preemptions a step"
    yield "KV cache", f"peak {metrics.kv_peak_share:.0%} of the blocks (an upper estimate), {preempted}"
    yield "tail", f"{metrics.tail_share:.0%} of a step's generation passes after 90% of its samples have ended"
    yield (
        "weight sync",
        f"{metrics.sync_seconds_per_step / metrics.step_seconds:.1%} of a step of {metrics.step_seconds:.4g} s",
    )
    yield "staleness", _staleness(metrics)


def _shares(shares: Shares) -> str:
    """Uses from the largest down."""
    ordered = sorted(((share, name) for name, share in shares.items() if share >= SHOWN), reverse=True)
    return ", ".join(f"{name} {share:.0%}" for share, name in ordered)


def _staleness(metrics: Metrics) -> str:
    wasted = metrics.ledger_tokens["dropped_stale"] / max(1, metrics.generated_tokens)
    lag = f"{metrics.start_lag_mean:.2g} versions before they were trained on (at most {metrics.start_lag_max:g})"
    return f"samples began {lag}; {wasted:.1%} of the generated tokens dropped as stale"
