"""Fit an arm's open parameters so that its published numbers come out."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

from rlsim.core.errors import ParameterError
from rlsim.scenario.document import Document
from rlsim.scenario.published import Published
from rlsim.scenario.schema import Scenario
from rlsim.studies.assumed import varied
from rlsim.studies.compare import plans
from rlsim.studies.measures import measure
from rlsim.studies.runs.executor import local_executor
from rlsim.studies.runs.record import requests_of

TOLERANCE = 0.001
"""Relative, of the number."""
MOST_ROUNDS = 8
MOST_SWEEPS = 4
"""Over the rows: what fits one may move another."""


def fit_published(document: Document, arm: str | None) -> Iterator[str]:
    """Solve the parameter of each row that fits one, by secants, row after row until all hold; a line a round.

    ``ParameterError`` when the arm has no published row that fits exactly one parameter, or the parameter does not
    move the number.
    """
    plans(document)
    scenario = document.resolve(arm)
    rows = _fitted(scenario)
    for _ in range(MOST_SWEEPS if len(rows) > 1 else 1):
        before = scenario
        for row in rows:
            scenario = yield from _solved(scenario, row)
        if scenario == before:
            return


def predicted(scenario: Scenario, quantity: str = "step_seconds") -> float:
    """Mean of a quantity over the scenario's replications."""
    requests = requests_of(scenario.name, scenario, range(scenario.run.replications))
    with local_executor(workers=None) as runs:
        records = runs.run_all(requests, must_end=True)
    return sum(measure(records[request.key], quantity) for request in requests) / len(requests)


def _solved(scenario: Scenario, row: Published) -> Generator[str, None, Scenario]:
    """The scenario in which the row's parameter makes its number come out, as the generator's value."""
    key, target = row.fitted[0], row.measured
    value = _value(scenario, key)
    found = predicted(scenario, row.of)
    slope: float | None = None
    for _ in range(MOST_ROUNDS):
        yield f"{key} = {value:.5g}: predicted {found:.4g}, published {target:g} ({found / target - 1:+.2%}, {row.of})"
        if abs(found / target - 1) <= TOLERANCE:
            break
        moved = max(0.0, value + (target - found) / slope) if slope else _first_move(value, found, target)
        changed = varied(scenario, key, moved)
        again = predicted(changed, row.of)
        if moved == value or again == found:
            raise ParameterError(f"published.fitted: {key}", value, f"a parameter that moves {row.of}")
        slope = (again - found) / (moved - value)
        scenario, value, found = changed, moved, again
    return scenario


def _first_move(value: float, found: float, target: float) -> float:
    """A fiftieth more of what has a size; of an overhead that is 0, what is missing."""
    return value * 1.02 if value else max(0.0, target - found)


def _fitted(scenario: Scenario) -> list[Published]:
    rows = [row for row in scenario.published if row.calibrated and len(row.fitted) == 1 and row.over is None]
    if not rows:
        raise ParameterError("published", None, "a row with calibrated: true that names the one key it fits")
    return rows


def _value(scenario: Scenario, key: str) -> float:
    node: Mapping[str, object] | object = scenario.model_dump(mode="json")
    for place in key.split("."):
        node = node.get(place) if isinstance(node, dict) else None
    return float(node) if isinstance(node, int | float) else 0.0
