"""What becomes of a group whose members have ended: another wave, the buffer, or nothing."""

from __future__ import annotations

from rlsim.controller.admission import AdmissionControl
from rlsim.controller.branching import Branching
from rlsim.controller.prompts import PromptQueue
from rlsim.controller.rollouts import Rollouts
from rlsim.core.view import Group, View
from rlsim.policies.hooks import Extends, NeedsRewards, Rejects, SelectsSamples
from rlsim.policies.protocols import Allocation


class GroupCompletion:
    """Asks the allocation part; without hooks every group whose members have ended is complete."""

    def __init__(
        self,
        allocation: Allocation,
        view: View,
        rollouts: Rollouts,
        admission: AdmissionControl,
        prompt_queue: PromptQueue,
        branching: Branching,
    ) -> None:
        self._branching = branching
        self._view, self._rollouts, self._admission, self._prompt_queue = view, rollouts, admission, prompt_queue
        self._extends = allocation if isinstance(allocation, Extends) else None
        self._observes = allocation if isinstance(allocation, NeedsRewards) else None
        self._rejects = allocation if isinstance(allocation, Rejects) else None
        self._selects = allocation if isinstance(allocation, SelectsSamples) else None

    def settle(self) -> None:
        """Say what follows for groups whose members have all ended."""
        waiting_for_wave = self._view.waiting_for_wave
        for group in list(waiting_for_wave.values()):
            if group.members and self._branching.regrow(group):
                del waiting_for_wave[group.group]
        if self._extends is None:
            further = [(number, 0) for number in waiting_for_wave]
        else:
            further = list(self._extends.extend(self._view))
        for number, samples in further:
            group = waiting_for_wave.pop(number)
            if samples and group.members:
                self._admission.enlarge(group, samples)
            else:
                self._complete(group)

    def _complete(self, group: Group) -> None:
        view = self._view
        del view.open[group.group]
        if self._observes is not None:
            self._observes.observe(view, group)
        if not group.members or (self._rejects is not None and self._rejects.rejects(view, group)):
            self._reject(group)
            return
        if self._selects is not None:
            for sample in self._selects.unselected(view, group):
                group.members.remove(sample)
                self._rollouts.settle(sample, "unselected")
        view.ready[group.group] = group

    def _reject(self, group: Group) -> None:
        """Throw a group away; its prompt comes again when the loader comes to it."""
        view = self._view
        view.dropped_groups += 1
        view.filtered_groups += 1
        view.round_groups = max(0, view.round_groups - 1)
        self._prompt_queue.vacate(group.target)
        for sample in group.members:
            self._rollouts.settle(sample, "filtered")
