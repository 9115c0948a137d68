"""A step law kept by the clock: when the steps of an engine are due, and by how much it misses them.

While an engine has work its steps run back to back, each from the moment at which the one before was due. So neither
the sleep's overshoot nor a single slow step moves the later ones; an engine that falls behind catches up, and every
step that was late is counted.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rlsim.core.ticks import Ticks
from rlsim.engine.steptime import StepTime
from rlsim.live.vllm.batch import StepBatch

GRACE_TICKS = 10**9
"""A millisecond after its time a step is not late yet: a sleep overshoots by a tenth of it, and the next step begins
on time all the same."""


def lateness(behind: Ticks) -> Ticks:
    """Lateness of a step that ended ``behind`` its time, in ticks; 0 within the grace."""
    return behind if behind > GRACE_TICKS else 0


def write_law(law: StepTime, path: Path) -> None:
    """Write the law's integers, for the engine's process."""
    path.write_text(json.dumps(asdict(law)), encoding="ascii")


def read_law(path: Path) -> StepTime:
    """Read the law of :func:`write_law`."""
    return StepTime(**json.loads(path.read_text(encoding="ascii")))


class StepPace:
    """Times at which steps begin and are due, in ticks of any clock."""

    def __init__(self, law: StepTime) -> None:
        self._law = law
        self._began: Ticks = 0
        self._due: Ticks | None = None
        """When the last step was due, while there has been work ever since."""

    def begin(self, now: Ticks) -> None:
        """A step is decided: it began when the last one was due, or now where the engine was idle."""
        self._began = now if self._due is None else self._due

    def due(self, batch: StepBatch) -> tuple[Ticks, Ticks]:
        """Start and end of the step, by the law."""
        self._due = self._began + batch.ticks(self._law)
        return self._began, self._due

    def idle(self) -> None:
        """Nothing is left to run, or nothing may: the next step begins when it is decided."""
        self._due = None
