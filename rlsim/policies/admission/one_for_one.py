"""A pool of prompts, each replaced when its result is collected for a batch: open-instruct."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Unit


@dataclass(frozen=True, slots=True)
class OneForOne:
    """``async_steps`` batches of prompts at the start, then one more for each result collected.

    Results are collected for at most ``async_steps`` batches that the trainer has not begun (open-instruct
    ``data_loader.py``: the preparation waits while ``training_step - last_consumed > async_steps``, counted from 0
    and -1). A result that is dropped is replaced.
    """

    async_steps: int = 8
    """Batches that generation and preparation may each be ahead."""
    unit: ClassVar[Unit] = "group"

    def start(self, shape: Shape) -> OneForOne:
        """Refuse a pool without prompts."""
        at_least("async_steps", self.async_steps, 1)
        return self

    def room(self, view: View) -> tuple[int, str]:
        """Results collected and not yet replaced."""
        batch, kept = view.shape.prompts_per_step, view.started_groups - view.dropped_groups
        ahead = self.async_steps * batch
        collected = view.steps_begun * batch + min(len(view.ready), ahead)
        return ahead + collected - kept, "staleness" if len(view.ready) > ahead else "concurrency"
