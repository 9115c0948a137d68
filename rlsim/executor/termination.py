"""How long a run goes on: its steps and its budget, counted from what executor and controller know in either world.

What is said of a run that cannot progress.

What became of every sample by the end of a run, and what a cut call had made.

Timers keep no run alive: when they are all that is left, each may ring once; what none of them moves is stuck.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from rlsim.controller import Controller
from rlsim.core.commands import Command, Submit, WakeAt
from rlsim.core.events import Aborted, Cut, Event, Noticed, ReplicaLost, Started, Woke, made_tokens
from rlsim.core.log import FinalRow, RunLog
from rlsim.core.ticks import Ticks, to_seconds
from rlsim.engine.requests import Request

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
        self._response_tokens = self._trained_tokens = self._outcomes_read = 0
        self.ended_by = ""
        """The keys by which the run is over; empty while it is not."""

    def decided(self, now: Ticks, event: Event) -> None:
        """An event that the controller has just taken."""
        if self._budget is not None:
            self._response_tokens += made_tokens(event)
        if self._controller.iterations > self._iterations:
            self._iterations = self._controller.iterations
            self.ended_by = ", ".join(self._reached(now))

    def begin(self, commands: Iterable[Command]) -> None:
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
        outcomes = self._controller.outcomes
        settled = islice(outcomes.values(), self._outcomes_read, None)
        self._trained_tokens += sum(tokens for outcome, tokens in settled if outcome == "trained")
        self._outcomes_read = len(outcomes)
        gpu_seconds = to_seconds(now) * budget.gpus
        return {
            "rollouts": len(self._begun),
            "response_tokens": self._response_tokens,
            "trained_tokens": self._trained_tokens,
            "gpu_seconds": gpu_seconds,
            "usd": gpu_seconds * budget.usd_per_gpu_second,
        }


def deadlock_report(now: Ticks, controller: Controller, log: RunLog, steps: int, calls: int, livelock: str = "") -> str:
    """Which gate is closed, since when, and what is outstanding; ``calls`` are those on replicas.

    ``livelock`` says what goes on without end, where something does.
    """
    view = controller.view
    since = log.gates[-1].now if log.gates else 0
    return (
        f"{'livelock' if livelock else 'deadlock'} at {to_seconds(now):.3f} s after {controller.iterations} of {steps} "
        f"training iterations: {livelock or 'nothing is left to happen'}.\n"
        f"  gate: {view.gate or 'open'} (since {to_seconds(since):.3f} s); trainer: {view.trainer}\n"
        f"  complete groups waiting: {len(view.ready)} of {view.shape.prompts_per_step} for a batch; "
        f"open groups: {view.open_groups}\n"
        f"  samples in flight: {view.running_samples} ({calls} calls on replicas); parked: {len(view.paused)}"
    )


def final_rows(controller: Controller, tokens_under_way: dict[int, int], begun: Container[int]) -> list[FinalRow]:
    """What became of every sample; ``tokens_under_way`` are those of calls still under way, by sample.

    Calls asked for by the very last decision were never begun: samples that had no call before, which are not in
    ``begun``, are left out, resumed ones still wait.
    """
    rows = [FinalRow(sample, outcome, tokens) for sample, (outcome, tokens) in controller.outcomes.items()]
    for sample in controller.samples.values():
        under_way = sample.sample in tokens_under_way or sample.state in ("tool", "scoring", "waiting")
        if under_way or sample.sample in begun or sample.state != "running":
            outcome = "in_flight" if under_way else "buffered"
            tokens = sample.response_tokens + tokens_under_way.get(sample.sample, 0)
            rows.append(FinalRow(sample.sample, outcome, tokens))
    return sorted(rows)


def cut_of(request: Request, replica: int) -> Cut:
    """What an aborted call had made."""
    tokens = request.tokens - request.context_tokens
    return Cut(request.sample, replica, tokens, tuple(request.segments), request.first_token)


_UNASKED = (Started, Woke, Noticed)


class Timers:
    """Replies that are owed, and timers that may still lead to something."""

    def __init__(self) -> None:
        self._owed = self._pending = 0
        self._hopeful: set[Ticks] = set()
        """Set by an event that did something, or while a reply was owed."""
        self.in_vain = False
        """Whether nothing but timers is left and the last round of them led to nothing."""

    @property
    def idle(self) -> bool:
        """Whether no reply is owed and no timer is set."""
        return not (self._owed or self._pending)

    def count(self, event: Event, commands: Sequence[Command]) -> None:
        """Take in one event and what was asked for because of it."""
        wake_times = [command.at for command in commands if isinstance(command, WakeAt)]
        moved = len(commands) > len(wake_times)
        self._owed += len(commands) - len(wake_times) - _replies(event)
        self._pending += len(wake_times)
        if isinstance(event, Woke):
            self._pending -= 1
            self._hopeful.discard(event.at)
            if moved or self._owed:
                self._hopeful.update(wake_times)
            self.in_vain = not (self._owed or self._hopeful or moved)
        else:
            self._hopeful.update(wake_times)
            self.in_vain = False


def _replies(event: Event) -> int:
    """Replies in an event: one, those of the calls that an abort ended, or with a replica, or none in a notice."""
    if isinstance(event, Aborted):
        return 1 + len(event.cuts)
    if isinstance(event, ReplicaLost):
        return len(event.cuts)
    return 0 if isinstance(event, _UNASKED) else 1
