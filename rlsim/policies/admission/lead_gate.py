"""Generation may lead the trainer by so many batches: prime-rl's dispatch gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class LeadGate:
    """Keep ``max_inflight`` samples in flight while batches shipped less the version served are ``target_lag`` at most.

    A batch is shipped once it is full and the version served is at most ``target_lag`` steps behind the one before it
    (prime-rl ``orchestrator.py``: the gate is closed when ``(step - 1) - version > TARGET_LAG``). Nothing else bounds
    the age of samples.
    """

    target_lag: int = 1
    """Batches that may be shipped beyond the version served."""
    max_inflight: int = 1024
    """Samples generating, in tools or being scored."""
    unit: ClassVar[Unit] = "sample"

    def start(self, shape: Shape) -> LeadGate:
        """Refuse numbers that admit nothing."""
        at_least("target_lag", self.target_lag, 0)
        at_least("max_inflight", self.max_inflight, 1)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """Free places, while the gate is open."""
        full = view.steps_begun + len(view.ready) // view.shape.prompts_per_step
        shipped = min(full, view.version + 1 + self.target_lag)
        if shipped - view.version > self.target_lag:
            return 0, "staleness"
        return self.max_inflight - view.running_samples, "concurrency"
