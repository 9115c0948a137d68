"""Runs that go on for ever without a training step, found by counts and never by time: a slow run is none.

The counts begin anew whenever the trainer takes groups or works. Their bounds grow with the sizes of the run.
"""

from __future__ import annotations

from rlsim.controller import Controller
from rlsim.core.commands import Command, WakeAt
from rlsim.core.events import Aborted, Event, Finished, Noticed, Scored, Synced, ToolReturned, Trained, Woke
from rlsim.core.ticks import Ticks, to_ticks
from rlsim.core.view import View

LOOK_EVERY = 64
"""Decisions between two looks at the counts."""
LEAST_GROUPS = 10_000
"""Groups that must have left generation, whatever the sizes, before none of them counts as of use."""
LEAST_GENERATIONS = 20
"""Times that all groups under way must have been replaced by others."""
LEAST_SAMPLES = 20_000
"""Samples that must have begun, or ended, whatever the sizes."""
LEAST_GROWTH = 0.1
"""Of the samples begun, those by which the unfinished ones must have grown."""
LEAST_BEGINNINGS = 20
"""Looks at which further samples had begun: one admission of many samples is none of these."""
LEAST_DECISIONS = 10_000
"""Decisions within one millisecond of the run, whatever the number of samples."""
LEAST_VAIN_DECISIONS = 10_000
"""Decisions in a row, whatever the number of samples, during which no token was made and nothing has ended."""
MOST_PER_CAPACITY = 50
"""Samples begun while the trainer waits, by what replicas and a batch hold; groups that end, 20 times as many."""

_USEFUL = (Finished, Noticed, ToolReturned, Scored, Trained, Synced)
_MILLISECOND = to_ticks(1e-3)
_BUSY = ("switching", "training", "syncing")


class LivelockWatch:
    """Counts since the trainer took groups last; says what goes on without end."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        shape = controller.view.shape
        self._capacity = max(shape.slots, shape.prompts_per_step * shape.group_size)
        self._decisions = self._vain = 0
        self._millisecond: Ticks = -1
        self._before_it = 0
        """Decisions taken before this millisecond began."""
        self._trainer: tuple[int, int, bool] = (-1, 0, False)
        self._begin()

    def decided(self, now: Ticks, event: Event, commands: list[Command]) -> str:
        """Take in one decision; what goes on without end, or nothing."""
        if type(event) in _USEFUL or (type(event) is Aborted and any(cut.tokens for cut in event.cuts)):
            self._vain = 0
        elif type(event) is not Woke or any(type(command) is not WakeAt for command in commands):
            self._vain += 1
        self._decisions += 1
        if self._controller.admits_endlessly:
            return "admission lets samples in without end, at one instant"
        return "" if self._decisions % LOOK_EVERY else self._look(now)

    def _look(self, now: Ticks) -> str:
        controller, view = self._controller, self._controller.view
        taken = view.left_groups - view.dropped_groups - len(view.ready)
        trainer = (view.steps_begun, taken, view.trainer in _BUSY)
        if now // _MILLISECOND != self._millisecond:
            self._millisecond, self._before_it = now // _MILLISECOND, self._decisions
        if trainer != self._trainer:
            self._trainer = trainer
            self._begin()
            return ""
        alive = len(controller.samples)
        if self._decisions - self._before_it > LEAST_DECISIONS + 100 * alive:
            return f"{self._decisions - self._before_it:,} decisions were taken within one millisecond"
        if self._vain > LEAST_VAIN_DECISIONS + 100 * alive:
            return f"{self._vain:,} decisions in a row were taken, and no token was made meanwhile"
        return self._of_groups() or ("" if trainer[2] else self._of_samples())

    def _begin(self) -> None:
        """The trainer has taken groups, or begins or ends to work: count from here."""
        view = self._controller.view
        self._before_it, self._most_ready = self._decisions, len(view.ready)
        self._generations, self._mark, self._left = 0, view.started_groups, view.left_groups
        self._last_left, self._ended_at_last_left = view.left_groups, self._controller.ended_samples
        self._beginnings, self._unfinished_before = 0, _unfinished(view)
        self._begun_before = self._begun = self._count_begun()

    def _count_begun(self) -> int:
        return len(self._controller.samples) + len(self._controller.outcomes)

    def _of_groups(self) -> str:
        """Groups leave generation, and none of them is of use."""
        view = self._controller.view
        size = view.shape.prompts_per_step
        left, is_busy = view.left_groups - self._left, self._trainer[2]
        many = max(10 * LEAST_GROUPS, 20 * MOST_PER_CAPACITY * self._capacity)
        if left > many and is_busy:
            return f"{left:,} groups have ended while the trainer worked on one batch: generation outruns training"
        if self._most_ready < min(len(view.ready), size):
            self._most_ready, self._generations, self._left = len(view.ready), 0, view.left_groups
        if next(iter(view.open), view.started_groups) >= self._mark:
            self._generations, self._mark = self._generations + 1, view.started_groups
        replaced = left > LEAST_GROUPS and self._generations >= LEAST_GENERATIONS
        if is_busy or not (replaced or left > many):
            return ""
        if len(view.ready) < size:
            return f"{left:,} groups in a row have ended, and none was accepted for training"
        return f"{left:,} groups have ended, and the trainer still waits for others than these"

    def _of_samples(self) -> str:
        """Samples end and no group does, or many begin and few end."""
        view, ended = self._controller.view, self._controller.ended_samples
        if view.left_groups != self._last_left:
            self._last_left, self._ended_at_last_left = view.left_groups, ended
        needed = view.shape.group_size * max(len(view.open), view.shape.prompts_per_step)
        if ended - self._ended_at_last_left > max(LEAST_SAMPLES, MOST_PER_CAPACITY * needed):
            return f"{ended - self._ended_at_last_left:,} samples have ended, and no group was complete with them"
        begun, before = self._count_begun(), self._begun
        self._beginnings += begun > before
        self._begun, new = begun, begun - self._begun_before
        grown = _unfinished(view) - self._unfinished_before
        is_many = self._beginnings >= LEAST_BEGINNINGS and new > max(LEAST_SAMPLES, MOST_PER_CAPACITY * self._capacity)
        if not is_many or grown < LEAST_GROWTH * new:
            return ""
        return (
            f"{new:,} samples were admitted while the trainer waited for a batch, and {grown:,} of them have not ended"
        )


def _unfinished(view: View) -> int:
    return view.running_samples + len(view.paused)
