"""Train on groups as they complete, a micro-batch at a time, and step the optimizer at the end of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from rlsim.core.errors import ParameterError
from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.protocols import Batch


class Stream:
    """How far the batch under way has come."""

    def __init__(self, groups: int, takes_all: bool) -> None:
        self._groups, self._takes_all, self._taken = groups, takes_all, 0

    def select(self, view: View) -> Batch | None:
        """The next micro-batch, once its groups are complete; a smaller one where the batch ends."""
        left = view.shape.prompts_per_step - self._taken
        size = min(self._groups, left)
        if len(view.ready) < size:
            return None
        if self._takes_all:
            size = min(len(view.ready), left)
        self._taken = 0 if size == left else self._taken + size
        return Batch(tuple(islice(view.ready, size)), last=size == left)


@dataclass(frozen=True, slots=True)
class MicroBatchStream:
    """Forward and backward on every ``min_groups`` complete groups; gradients accumulate over the batch."""

    min_groups: int = 1
    takes_all: bool = False
    """Take everything that is complete, at least ``min_groups`` (StreamRL, arXiv 2504.15930)."""

    def start(self, shape: Shape) -> Stream:
        """Refuse more groups than a batch holds."""
        at_least("min_groups", self.min_groups, 1)
        if self.min_groups > shape.prompts_per_step:
            raise ParameterError("min_groups", self.min_groups, f"at most prompts_per_step = {shape.prompts_per_step}")
        return Stream(self.min_groups, self.takes_all)
