"""What is compared of a run, simulated or live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rlsim.core.commands import Submit
from rlsim.core.ticks import to_seconds
from rlsim.executor.run import FinishedRun
from rlsim.results.history import NEVER, History
from rlsim.results.metrics import ledger_tokens, measured, metrics_of
from rlsim.results.tables import Digest, digest
from rlsim.sim.recorded import Key

Shares = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class RunObservation:
    """One run. Rates, shares and lags are over its measured steps; makespan, ledger and ends over the whole of it."""

    step_seconds: float
    samples_per_second: float
    tokens_per_second_per_gpu: float
    """Trained tokens a second and GPU in use."""
    makespan_seconds: float
    """From the start to the end of the last training iteration."""
    start_lag_mean: float
    """In weights versions."""
    start_lags: Shares
    """Share of the trained samples by start lag."""
    utilisation: Mapping[str, float]
    """Shares of the GPU time in use, by use."""
    ledger_tokens: Mapping[str, int]
    generated_tokens: int
    ends_seconds: Mapping[Key, float]
    """When the policy heard of each sample's end."""


def observation_of(run: FinishedRun) -> RunObservation:
    """Read a run; ``ParameterError`` when no iteration ended after the warm-up."""
    run_digest = digest(run)
    run_metrics = metrics_of(run_digest)
    return RunObservation(
        run_metrics.step_seconds,
        run_metrics.samples_per_second,
        run_metrics.tokens_per_second_per_gpu,
        to_seconds(run.log.iterations[-1].end),
        run_metrics.start_lag_mean,
        _start_lags(run_digest),
        run_metrics.utilisation.all,
        ledger_tokens(run.log),
        run.log.generated_tokens,
        _ends(run_digest.history, run),
    )


def distance(a: Shares, b: Shares) -> float:
    """Total variation of two histograms of shares: 0 for equal ones, 1 for disjoint ones."""
    return sum(abs(a.get(lag, 0.0) - b.get(lag, 0.0)) for lag in {*a, *b}) / 2


def _start_lags(run_digest: Digest) -> dict[int, float]:
    window = measured(run_digest.run.log, run_digest.run.plan.scenario.run.warmup_steps)
    trained = run_digest.samples["trained_step"]
    lags = run_digest.samples["start_lag"][(trained >= window.first) & (trained < window.last)]
    counts = Counter(lags.astype(int).tolist())
    return {lag: count / len(lags) for lag, count in sorted(counts.items())}


def _ends(history: History, run: FinishedRun) -> dict[Key, float]:
    recycles = _recycles(run)
    return {
        (life.draw, recycles[life.sample], life.member): to_seconds(life.finished)
        for life in history.lives.values()
        if life.finished != NEVER
    }


def _recycles(run: FinishedRun) -> dict[int, int]:
    commands = (command for decision in run.log.decisions for command in decision.commands)
    return {command.sample: command.recycle for command in commands if type(command) is Submit}
