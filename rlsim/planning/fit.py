"""Fit one overhead so that an arm's predicted step time is the published one."""

from __future__ import annotations

from collections.abc import Iterator

from rlsim.core.errors import ParameterError
from rlsim.planning.comparison import plans, varied
from rlsim.planning.replicate import Task, perform_all
from rlsim.scenario.schema import Scenario
from rlsim.scenario.source import Document

TOLERANCE = 0.001
"""Relative, of the step time."""
MOST_ROUNDS = 8


def fit_published(document: Document, arm: str | None) -> Iterator[str]:
    """Solve the arm's one fitted parameter, by secants; a line for each round.

    ``ParameterError`` when the arm names no published row that fits exactly one parameter, or the parameter does not
    move the step time.
    """
    plans(document)
    scenario = document.resolve(arm)
    key, target = _fitted(scenario)
    value = _value(scenario, key)
    seconds = predicted(scenario, key, value)
    slope = 1.0
    for _ in range(MOST_ROUNDS):
        yield f"{key} = {value:.4g}: predicted {seconds:.2f} s, published {target:g} s ({seconds / target - 1:+.2%})"
        if abs(seconds / target - 1) <= TOLERANCE:
            return
        step = (target - seconds) / slope
        moved = max(0.0, value + step)
        again = predicted(scenario, key, moved)
        if moved == value or again == seconds:
            raise ParameterError(f"published.0.fitted: {key}", value, "a parameter that moves the step time")
        slope = (again - seconds) / (moved - value)
        value, seconds = moved, again


def predicted(scenario: Scenario, key: str, value: float) -> float:
    """Mean step time over the scenario's replications with the parameter at ``value``."""
    changed = varied(scenario, key, value)
    asked = [Task(scenario.name, changed, replication) for replication in range(scenario.run.replications)]
    outcomes = perform_all(asked)
    return sum(outcome.metrics.step_seconds for outcome in outcomes) / len(outcomes)


def _fitted(scenario: Scenario) -> tuple[str, float]:
    for row in scenario.published:
        if row.calibrated and len(row.fitted) == 1:
            return row.fitted[0], row.step_seconds
    raise ParameterError("published", None, "a row with calibrated: true that names the one key it fits")


def _value(scenario: Scenario, key: str) -> float:
    node: object = scenario.model_dump(mode="json")
    for place in key.split("."):
        node = node.get(place) if isinstance(node, dict) else None
    return float(node) if isinstance(node, int | float) else 0.0
