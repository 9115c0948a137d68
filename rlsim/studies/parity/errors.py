"""The error of a prediction, quantity by quantity, and its parts.

::

    error      = predicted against live                 (median of the live runs)
    schedule   = simulated with recorded durations against the run they were recorded in
    cost model = error - schedule
    noise      = live against live: the median over all pairs of live runs
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from rlsim.executor.run import FinishedRun
from rlsim.resolve import ResolvedScenario
from rlsim.results.utilisation import USES
from rlsim.studies.parity.end_order import Order, order_of
from rlsim.studies.parity.observed import RunObservation, distance
from rlsim.studies.parity.trial import Trial, tie_seconds

Kind = Literal["relative", "difference"]
LEAST_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class ParityRow:
    """One quantity. Errors are relative to live, or differences in the quantity's unit."""

    name: str
    unit: str
    kind: Kind
    live: float
    """Median over the live runs."""
    low: float
    high: float
    predicted: float
    error: float
    schedule: float | None
    """None where the engines do not tell their steps."""
    cost: float | None
    noise: float | None
    """None with one live run."""


@dataclass(frozen=True, slots=True)
class ArmParity:
    """One policy: its prediction and its live runs."""

    name: str
    plan: ResolvedScenario
    """What the prediction is made from; live runs of a calibrated one had the costs of the file."""
    run: FinishedRun
    """The simulated one."""
    predicted: RunObservation
    trials: tuple[Trial, ...]
    discarded: tuple[float, ...] = ()
    """Late shares of the runs that did not count."""

    @property
    def step(self) -> ParityRow:
        """The step time."""
        return row_of(self, "step time", "s", "relative", lambda observed: observed.step_seconds)

    @property
    def policy_errors(self) -> list[str]:
        """Of all live runs; none is what must be."""
        return [trial.policy_error for trial in self.trials if trial.policy_error]

    @property
    def recorded_order(self) -> Order | None:
        """Of the run with most inversions, against its own simulation with recorded durations."""
        orders = [trial.rerun.order for trial in self.trials if trial.rerun is not None]
        return max(orders, key=lambda order: (order.inversions, order.median_seconds), default=None)

    @property
    def recorded_batches(self) -> tuple[int, int]:
        """Engine steps of all live runs, and those that hold another batch when simulated with recorded durations."""
        reruns = [trial.rerun for trial in self.trials if trial.rerun is not None]
        return sum(rerun.steps for rerun in reruns), sum(rerun.other_steps for rerun in reruns)

    @property
    def predicted_order(self) -> Order:
        """Of the run of median step time, against the prediction."""
        trial = median_trial(self)
        return order_of(trial.observed.ends_seconds, self.predicted.ends_seconds, tie_seconds(trial.run.log))

    @property
    def lag_distance(self) -> float:
        """Of the start-lag histograms of prediction and live runs: the median total variation."""
        return float(
            np.median([distance(self.predicted.start_lags, trial.observed.start_lags) for trial in self.trials])
        )

    @property
    def lag_noise(self) -> float | None:
        """The same of two live runs, at most."""
        pairs = combinations((trial.observed.start_lags for trial in self.trials), 2)
        return max((distance(a, b) for a, b in pairs), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values by name."""
        order = self.recorded_order
        return {
            "rows": [asdict(row) for row in rows_of(self)],
            "policy_errors": self.policy_errors,
            "steps_and_other_batches_recorded": list(self.recorded_batches),
            "order_recorded": None if order is None else asdict(order),
            "order_predicted": asdict(self.predicted_order),
            "start_lag_distance": self.lag_distance,
            "start_lag_distance_of_live_runs": self.lag_noise,
            "discarded_late_shares": list(self.discarded),
            "predicted": self.predicted.to_dict(),
            "live": [trial.observed.to_dict() | {"late_share": trial.late_share} for trial in self.trials],
            "recorded": [trial.rerun and trial.rerun.observed.to_dict() for trial in self.trials],
            "sources": [asdict(source) for source in self.plan.sources],
        }


def median_trial(arm: ArmParity) -> Trial:
    """The live run of median step time; of an even number the faster of the middle two."""
    ordered = sorted(arm.trials, key=lambda trial: trial.observed.step_seconds)
    return ordered[(len(ordered) - 1) // 2]


def rows_of(arm: ArmParity) -> list[ParityRow]:
    """All scalar quantities."""
    rows = [
        arm.step,
        row_of(arm, "makespan", "s", "relative", lambda observed: observed.makespan_seconds),
        row_of(arm, "samples", "1/s", "relative", lambda observed: observed.samples_per_second),
        row_of(arm, "trained tokens", "1/s/GPU", "relative", lambda observed: observed.tokens_per_second_per_gpu),
        row_of(arm, "start lag, mean", "versions", "difference", lambda observed: observed.start_lag_mean),
        *(row_of(arm, f"GPU time, {use}", "share", "difference", _entry("utilisation", use)) for use in _uses(arm)),
        row_of(arm, "tokens generated", "tokens", "relative", lambda observed: observed.generated_tokens),
        *(
            row_of(arm, f"tokens {outcome}", "tokens", "difference", _entry("ledger_tokens", outcome))
            for outcome in arm.predicted.ledger_tokens
            if any(run.ledger_tokens.get(outcome) for run in (arm.predicted, *(trial.observed for trial in arm.trials)))
        ),
    ]
    return rows


def row_of(arm: ArmParity, name: str, unit: str, kind: Kind, value: Callable[[RunObservation], float]) -> ParityRow:
    """One quantity of an arm."""
    live = [float(value(trial.observed)) for trial in arm.trials]
    middle, predicted = float(np.median(live)), float(value(arm.predicted))
    reruns = [(trial.rerun.observed, trial.observed) for trial in arm.trials if trial.rerun is not None]
    error = _off(kind, predicted, middle)
    schedule = (
        float(np.median([_off(kind, value(mine), value(observed)) for mine, observed in reruns])) if reruns else None
    )
    return ParityRow(
        name,
        unit,
        kind,
        live=middle,
        low=min(live),
        high=max(live),
        predicted=predicted,
        error=error,
        schedule=schedule,
        cost=None if schedule is None else error - schedule,
        noise=noise_of(kind, live),
    )


def noise_of(kind: Kind, live: Sequence[float]) -> float | None:
    """How far two live runs are apart, in the median over all pairs."""
    pairs = [abs(_off(kind, max(a, b), min(a, b))) for a, b in combinations(live, 2)]
    return float(np.median(pairs)) if pairs else None


def _off(kind: Kind, value: float, reference: float) -> float:
    if kind == "difference":
        return value - reference
    if not reference:
        return 0.0 if value == reference else float("inf")
    return value / reference - 1


def _entry(field: str, key: str) -> Callable[[RunObservation], float]:
    return lambda observed: getattr(observed, field).get(key, 0)


def _uses(arm: ArmParity) -> list[str]:
    """Uses that matter in any run, in the order of every output."""
    runs = [arm.predicted, *(trial.observed for trial in arm.trials)]
    known = {*USES}
    names = [*USES, *sorted({use for observed in runs for use in observed.utilisation} - known)]
    return [use for use in names if max(observed.utilisation.get(use, 0.0) for observed in runs) >= LEAST_SHARE]
