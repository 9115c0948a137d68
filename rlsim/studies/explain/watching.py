"""Runs whose end may be that they are stuck."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.core.errors import DeadlockError
from rlsim.studies.measures import measure
from rlsim.studies.runs.record import Outcome, Task, perform


@dataclass(frozen=True, slots=True)
class Watched:
    """A run, or the report of why it cannot go on."""

    name: str
    outcome: Outcome | None
    report: str = ""

    @property
    def told(self) -> Outcome:
        """The outcome; the deadlock is raised where there is none."""
        if self.outcome is None:
            raise DeadlockError(self.report)
        return self.outcome


def watch(task: Task) -> Watched:
    """Make a run; one that is stuck is an answer."""
    try:
        return Watched(task.name, perform(task))
    except DeadlockError as stuck:
        return Watched(task.name, None, str(stuck))


def measured(seen: Watched, name: str) -> float:
    """The case's measure in a run; ``DeadlockError`` for a stuck one of which more is asked than that."""
    if name == "stuck":
        return float(seen.outcome is None)
    if name.startswith("idle_"):
        return seen.told.metrics.utilisation.rollout[f"idle:{name.removeprefix('idle_').removesuffix('_share')}"]
    if name == "generated_over_trained":
        return seen.told.metrics.generated_tokens / seen.told.metrics.ledger_tokens["trained"]
    return measure(seen.told, name)
