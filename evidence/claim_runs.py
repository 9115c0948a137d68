"""Runs that a published speed-up is looked for in: which they are, and what is kept of each.

They are kept like those of a sweep (``rlsim.studies.runs.store``), as each ends, so that a command that is killed
loses those under way.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict

from rlsim.results.columns import Columns
from rlsim.results.latency import latency
from rlsim.results.tables import Digest
from rlsim.scenario.schema import Scenario, Slo
from rlsim.studies.runs.executor import PROGRESS, Order, measured
from rlsim.studies.runs.identity import LETTERS, code_version, identity
from rlsim.studies.runs.store import Made, Number


def orders(label: str, scenario: Scenario) -> tuple[Order, ...]:
    """The runs of an arm under a headline's conditions, a replication each."""
    run, version = _known_by(scenario), code_version()
    return tuple(Order(run, number, label, scenario, version) for number in range(scenario.run.replications))


def make(order: Order) -> Made:
    """Make a run in this process and read what headlines measure.

    ``DeadlockError`` or ``ParameterError`` for one that cannot come to its end: a ratio needs every run.
    """
    from rlsim.sim.collector import collector_paused

    started = time.process_time()
    with collector_paused():
        read, found = measured(order)
        found |= _waits(read, _objectives(order.scenario)) | _progress(read)
    spent = time.process_time() - started
    return Made(order.run, order.replication, order.label, order.version, "", spent, found)


def progress_of(made: Made) -> Columns | None:
    """What a run had used up and reached after every step; None of one that does not learn."""
    import numpy as np

    told = made.metrics.get(PROGRESS)
    return None if told is None else {name: np.array(column) for name, column in json.loads(str(told)).items()}


def _known_by(scenario: Scenario) -> str:
    """Hash of what the figures depend on: the run, and the objectives that its requests are held to."""
    slo = _objectives(scenario)
    text = json.dumps([identity(scenario), "headline", None if slo is None else slo.model_dump(mode="json")])
    return hashlib.sha256(text.encode()).hexdigest()[:LETTERS]


def _objectives(scenario: Scenario) -> Slo | None:
    return None if scenario.headline is None else scenario.headline.slo


def _waits(read: Digest, slo: Slo | None) -> dict[str, Number]:
    return {name: value for name, value in asdict(latency(read.run, slo)).items() if value is not None}


def _progress(read: Digest) -> dict[str, Number]:
    if read.run.plan.learning is None:
        return {}
    from rlsim.results.progress import progress_columns

    return {PROGRESS: json.dumps({name: column.tolist() for name, column in progress_columns(read).items()})}
