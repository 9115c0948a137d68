"""What becomes of a group whose members have ended: another wave, the buffer, or nothing."""

from __future__ import annotations

from rlsim.controller.admission import Entrance
from rlsim.controller.branching import Branching
from rlsim.controller.prompts import Loader
from rlsim.controller.rollouts import Rollouts
from rlsim.core.view import Group, View
from rlsim.policies.hooks import Extends, NeedsRewards, Rejects, SelectsSamples
from rlsim.policies.protocols import Allocation


class Allotment:
    """Asks the allocation part; without hooks every group that rests is complete."""

    def __init__(
        self,
        allocation: Allocation,
        view: View,
        rollouts: Rollouts,
        entrance: Entrance,
        loader: Loader,
        branching: Branching,
    ) -> None:
        self._branching = branching
        self._view, self._rollouts, self._entrance, self._loader = view, rollouts, entrance, loader
        self._extends = allocation if isinstance(allocation, Extends) else None
        self._observes = allocation if isinstance(allocation, NeedsRewards) else None
        self._rejects = allocation if isinstance(allocation, Rejects) else None
        self._selects = allocation if isinstance(allocation, SelectsSamples) else None

    def settle(self) -> None:
        """Groups came to rest."""
        resting = self._view.resting
        for group in list(resting.values()):
            if group.members and self._branching.at_rest(group):
                del resting[group.group]
        if self._extends is None:
            further = [(number, 0) for number in resting]
        else:
            further = list(self._extends.extend(self._view))
        for number, samples in further:
            group = resting.pop(number)
            if samples and group.members:
                self._entrance.enlarge(group, samples)
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
            self._leave_out(group, self._selects)
        view.ready[group.group] = group

    def _reject(self, group: Group) -> None:
        """Throw a group away; its prompt comes again when the loader comes to it."""
        view = self._view
        view.dropped_groups += 1
        view.filtered_groups += 1
        view.round_groups = max(0, view.round_groups - 1)
        self._loader.vacate(group.target)
        for sample in group.members:
            self._rollouts.settle(sample, "filtered")

    def _leave_out(self, group: Group, selects: SelectsSamples) -> None:
        for sample in selects.unselected(self._view, group):
            group.members.remove(sample)
            self._rollouts.settle(sample, "unselected")
