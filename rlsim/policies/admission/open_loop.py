"""Open-loop admission: requests arrive by themselves, as from the users of a service, and nothing holds them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.checks import at_least
from rlsim.core.hashing import exponential, gamma
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.core.view import RunSizes, View
from rlsim.policies.protocols import Unit
from rlsim.policies.registry import part


class Arrivals:
    """The next arrival, and how many there were."""

    unit: ClassVar[Unit] = "group"
    open_loop: ClassVar[bool] = True

    def __init__(self, part: OpenArrivals, run_seed: int) -> None:
        self._part, self._run_seed = part, run_seed
        self._arrived = 0
        self._next: Ticks = self._gap()

    def capacity(self, view: View) -> tuple[int, str]:
        """Requests that have come and did not enter, and those that were cut and resume."""
        self._advance(view)
        cut = {sample.group.group for sample in view.paused.values()}
        return self._arrived - view.started_groups + len(cut), "arrivals"

    def wake_at(self, view: View) -> Ticks:
        """The next arrival."""
        self._advance(view)
        return self._next

    def _advance(self, view: View) -> None:
        while self._next <= view.now:
            self._arrived += 1
            self._next += self._gap()

    def _gap(self) -> Ticks:
        part, key = self._part, ("arrival", self._part.seed, self._run_seed, self._arrived)
        shape = part.burstiness
        mean_gaps = exponential(*key) if shape == 1 else gamma(shape, *key) / shape
        return to_ticks(mean_gaps / part.requests_per_second)


@part("admission", "open-arrivals")
@dataclass(frozen=True, slots=True)
class OpenArrivals:
    """Requests arrive in a random process of its own, whatever the engines and the trainer do.

    A request is a prompt, with all its samples. The gaps are independent: exponential, so that arrivals are a Poisson
    process, or gamma with shape ``burstiness``, as vLLM's serving benchmark has them. Every replication has its own
    arrivals, the same under all policies.
    """

    requests_per_second: float
    burstiness: float = 1.0
    """Shape of the gamma law of gaps, 1 / (their coefficient of variation squared): below 1 for bursts, large for a
    steady beat."""
    seed: int = 0
    """Another draw of all arrivals."""

    def start(self, shape: RunSizes) -> Arrivals:
        """Refuse arrivals that never come."""
        for name in ("requests_per_second", "burstiness"):
            at_least(name, getattr(self, name), 1e-9)
        return Arrivals(self, shape.seed)
