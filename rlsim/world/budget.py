"""How long a run goes on: its steps and its budget, counted from what executor and controller know in either world."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from rlsim.controller import Controller
from rlsim.core.commands import Command, Submit
from rlsim.core.events import Event, made_tokens
from rlsim.core.ticks import Ticks, to_seconds

STEPS, SECONDS, BUDGET = "run.steps", "run.max_simulated_seconds", "run.budget"
"""Keys of the scenario that can end a run."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may use up, by name as in ``Horizon.used``, and what its time costs."""

    limits: dict[str, float]
    gpus: int
    """GPUs in use, all of whose time is paid for."""
    usd_per_gpu_second: float


class Horizon:
    """Counts as decisions are taken, and says at the end of a training iteration whether it was the last."""

    def __init__(self, controller: Controller, steps: int, budget: Budget | None = None) -> None:
        self._controller, self._budget, self.steps = controller, budget, steps
        self._iterations = 0
        self._begun: set[int] = set()
        self._response_tokens = self._trained_tokens = self._fates_read = 0
        self.ended_by = ""
        """The keys by which the run is over; empty while it is not."""

    def told(self, now: Ticks, event: Event) -> None:
        """An event that the controller has just taken."""
        if self._budget is not None:
            self._response_tokens += made_tokens(event)
        if self._controller.iterations > self._iterations:
            self._iterations = self._controller.iterations
            self.ended_by = ", ".join(self._reached(now))

    def asked(self, commands: Iterable[Command]) -> None:
        """Commands that are carried out."""
        if self._budget is not None:
            self._begun.update(command.sample for command in commands if type(command) is Submit)

    def _reached(self, now: Ticks) -> Iterator[str]:
        if self._iterations >= self.steps:
            yield STEPS
        if self._budget is not None:
            used = self.used(now, self._budget)
            yield from (f"{BUDGET}.{name}" for name, limit in self._budget.limits.items() if used[name] >= limit)

    def used(self, now: Ticks, budget: Budget) -> dict[str, float]:
        """What was used by ``now``; tokens are response tokens: of calls that ended, of samples trained on."""
        fates = self._controller.fates
        settled = islice(fates.values(), self._fates_read, None)
        self._trained_tokens += sum(tokens for fate, tokens in settled if fate == "trained")
        self._fates_read = len(fates)
        gpu_seconds = to_seconds(now) * budget.gpus
        return {
            "rollouts": len(self._begun),
            "response_tokens": self._response_tokens,
            "trained_tokens": self._trained_tokens,
            "gpu_seconds": gpu_seconds,
            "usd": gpu_seconds * budget.usd_per_gpu_second,
        }
