"""What is compared of a run, simulated or live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rlsim.core.commands import Submit
from rlsim.core.ticks import to_seconds
from rlsim.executor.run import FinishedRun
from rlsim.results.history import NEVER
from rlsim.results.metrics import ledger_tokens, measured, metrics_of
from rlsim.results.tables import digest
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

    def to_dict(self) -> dict[str, Any]:
        """All but the ends, as plain values by name."""
        tree = asdict(self)
        del tree["ends_seconds"]
        return tree


def observation_of(run: FinishedRun) -> RunObservation:
    """Read a run; ``ParameterError`` when no iteration ended after the warm-up."""
    run_digest = digest(run)
    run_metrics = metrics_of(run_digest)
    window = measured(run.log, run.plan.scenario.run.warmup_steps)
    trained = run_digest.samples["trained_step"]
    lags = run_digest.samples["start_lag"][(trained >= window.first) & (trained < window.last)]
    counts = sorted(Counter(lags.astype(int).tolist()).items())
    commands = (command for decision in run.log.decisions for command in decision.commands)
    recycles = {command.sample: command.recycle for command in commands if type(command) is Submit}
    return RunObservation(
        step_seconds=run_metrics.step_seconds,
        samples_per_second=run_metrics.samples_per_second,
        tokens_per_second_per_gpu=run_metrics.tokens_per_second_per_gpu,
        makespan_seconds=to_seconds(run.log.iterations[-1].end),
        start_lag_mean=run_metrics.start_lag_mean,
        start_lags={lag: count / len(lags) for lag, count in counts},
        utilisation=run_metrics.utilisation.all,
        ledger_tokens=ledger_tokens(run.log),
        generated_tokens=run.log.generated_tokens,
        ends_seconds={
            (life.draw, recycles[life.sample], life.member): to_seconds(life.finished)
            for life in run_digest.history.lives.values()
            if life.finished != NEVER
        },
    )


def distance(a: Shares, b: Shares) -> float:
    """Total variation of two histograms of shares: 0 for equal ones, 1 for disjoint ones."""
    return sum(abs(a.get(lag, 0.0) - b.get(lag, 0.0)) for lag in {*a, *b}) / 2
