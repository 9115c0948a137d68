"""A sweep: every variant under the same luck, replication by replication, against a baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rlsim.core.errors import ParameterError, unknown
from rlsim.planning.sweep.orders import Makers, made_all
from rlsim.planning.sweep.store import Made, RunStore
from rlsim.planning.sweep.variants import Variant
from rlsim.results.statistics import Estimate, interval, paired_ratio

METRICS = ("step_seconds", "tokens_per_second_per_gpu", "usd_per_million_trained_tokens", "start_lag_max")
"""Columns of the table where nobody asks for others; the first is compared with the baseline's."""


@dataclass(frozen=True, slots=True)
class Result:
    """A variant and its runs, in order of replications."""

    variant: Variant
    runs: tuple[Made, ...]

    @property
    def fault(self) -> str:
        """Why it has no numbers: the first of its runs that did not come to its end."""
        return next((made.fault for made in self.runs if made.fault), "")

    def values(self, metric: str) -> list[float]:
        """Of every replication; ParameterError for what is no number of a run."""
        return [number(made, metric) for made in self.runs]

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
    reused: int
    """Runs that were there already."""
    made: int


def number(made: Made, metric: str) -> float:
    """A metric of a run; ParameterError, with the nearest name, for what is no number of it."""
    value = made.metrics.get(metric)
    if isinstance(value, str | bool) or value is None:
        names = [name for name, found in made.metrics.items() if not isinstance(found, str | bool)]
        raise unknown("--metric", metric, names)
    return float(value)


def sweep(
    variants: Sequence[Variant],
    baseline: Variant,
    replications: int,
    store: RunStore,
    makers: Makers,
    metrics: Sequence[str] = METRICS,
    done: Callable[[int], None] = lambda runs: None,
) -> Sweep:
    """Make the runs that the store lacks, ``done`` being told how many more have ended, and put all together."""
    _check_metrics(metrics)
    orders = {order.key: order for variant in variants for order in variant.orders(replications)}
    there = sum(store.find(*key) is not None for key in orders)
    done(there)
    made = made_all(list(orders.values()), store.find, makers, partial(_keep, store, done))
    results = {
        index: Result(variant, tuple(made[variant.run, replication] for replication in range(replications)))
        for index, variant in enumerate(variants)
    }
    against = results[[id(variant) for variant in variants].index(id(baseline))]
    name = variants[0].scenario.name
    return Sweep(name, tuple(metrics), tuple(results.values()), against, there, len(orders) - there)


def _keep(store: RunStore, done: Callable[[int], None], made: Made) -> None:
    store.add(made)
    done(1)


def _check_metrics(metrics: Sequence[str]) -> None:
    """What is surely no metric is refused before anything runs; parts of nested ones are known by their first name."""
    from dataclasses import fields

    from rlsim.results.metrics import Metrics

    names = [field.name for field in fields(Metrics)]
    for metric in metrics:
        if metric.split(".")[0] not in names:
            raise unknown("--metric", metric, names)
    if not metrics:
        raise ParameterError("--metric", "none", ", ".join(names))
