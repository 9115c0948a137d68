"""Which training step a group is generated for, counting groups in order of admission."""

from __future__ import annotations

from collections import deque


class Targets:
    """A full batch for every step; a group that takes the place of a failed one has that one's step."""

    def __init__(self, prompts_per_step: int) -> None:
        self._batch, self._replacing = prompts_per_step, 0
        self._vacant: deque[int] = deque()

    def vacate(self, target: int) -> None:
        """A group of that step has failed: the next group takes its place."""
        self._vacant.append(target)

    def of(self, number: int) -> int:
        """The step of the next group, which is the ``number``-th of the run."""
        if self._vacant:
            self._replacing += 1
            return self._vacant.popleft()
        return (number - self._replacing) // self._batch
