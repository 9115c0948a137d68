"""Several batches a step, each with optimizer updates of its own: verl's local updates between publications."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Literal

from rlsim.core.errors import ParameterError
from rlsim.core.view import Shape, View
from rlsim.policies.bounds import at_least, divides
from rlsim.policies.protocols import Batch


class Local:
    """How many local batches of the step under way have been taken."""

    def __init__(self, spec: LocalBatches, groups: int) -> None:
        self.spec, self._groups, self._taken = spec, groups, 0
        self.poll_seconds = spec.poll_seconds

    def select(self, view: View) -> Batch | None:
        """The next local batch, once there are enough groups and none that it has to wait for."""
        if len(view.ready) < self._groups or self._waits(view):
            return None
        self._taken = (self._taken + 1) % self.spec.batches_per_step
        return Batch(self._chosen(view), not self._taken, self.spec.mini_batches)

    def _waits(self, view: View) -> bool:
        """Whether a group under way is as old as the threshold; groups are open in order of version."""
        if self.spec.max_off_policy_strategy == "drop" or not view.open:
            return False
        oldest = next(iter(view.open.values())).version
        return view.version - oldest + 1 >= self.spec.max_off_policy_threshold

    def _chosen(self, view: View) -> tuple[int, ...]:
        if self.spec.order == "first_finished":
            return tuple(islice(view.ready, self._groups))
        return tuple(sorted(view.ready, key=lambda group: view.ready[group].version)[: self._groups])


@dataclass(frozen=True, slots=True)
class LocalBatches:
    """A step is ``batches_per_step`` batches of ``mini_batches x mini_batch_groups`` groups.

    verl's fully asynchronous trainer takes ``required_samples`` prompts from a FIFO queue and makes as many updates
    as they hold mini-batches; its V1 trainer takes a mini-batch, the oldest version first.
    """

    batches_per_step: int = 1
    mini_batches: int | None = 1
    """Optimizer updates on a local batch; None for those of a step, which is then one batch."""
    mini_batch_groups: int | None = None
    """None for an equal share of the step."""
    order: Literal["first_finished", "oldest_version"] = "first_finished"
    max_off_policy_threshold: int = 1
    """With ``wait``: age in versions, 1 for those served, at which a group under way is waited for."""
    max_off_policy_strategy: Literal["drop", "wait"] = "drop"
    """Whether ``wait`` holds a batch back until groups under way that reached the threshold are complete."""
    poll_seconds: float = 0.0
    """Interval at which the trainer looks for complete groups; 0: it is told."""

    def start(self, shape: Shape) -> Local:
        """Refuse batches that do not add up to the step."""
        at_least("batches_per_step", self.batches_per_step, 1)
        at_least("mini_batches", 1 if self.mini_batches is None else self.mini_batches, 1)
        at_least("poll_seconds", self.poll_seconds, 0)
        at_least("max_off_policy_threshold", self.max_off_policy_threshold, 1)
        if self.mini_batches is None and self.batches_per_step > 1:
            raise ParameterError("mini_batches", None, "a number where a step has several batches")
        self._add_up(shape.prompts_per_step)
        return Local(self, shape.prompts_per_step // self.batches_per_step)

    def _add_up(self, step_groups: int) -> None:
        divides("batches_per_step", self.batches_per_step, step_groups)
        updates = self.batches_per_step * (self.mini_batches or 1)
        divides("mini_batches", self.mini_batches or 1, step_groups // self.batches_per_step)
        groups = self.mini_batch_groups
        if groups is not None and groups * updates != step_groups:
            allowed = f"{step_groups // updates}: {updates} mini-batches make prompts_per_step = {step_groups}"
            raise ParameterError("mini_batch_groups", groups, allowed)
