"""What enters generation: new groups, what was cut before, and the next waves of groups that rest."""

from __future__ import annotations

from rlsim.controller.prompts import Loader
from rlsim.controller.replay_buffer import Archive
from rlsim.controller.rollouts import Rollouts
from rlsim.core.commands import Fork
from rlsim.core.view import Group, Sample, View
from rlsim.policies.protocols import Policy


class Entrance:
    """Asks the admission part how many may enter, and opens groups as large as allocation says."""

    def __init__(self, policy: Policy, view: View, rollouts: Rollouts, loader: Loader, archive: Archive) -> None:
        self._policy, self._view, self._rollouts, self._loader = policy, view, rollouts, loader
        self._archive, self._next_sample = archive, 0
        self.readmitted = False
        """Whether a group entered that is complete already."""

    def admit(self) -> None:
        """Let in what the admission part has capacity for."""
        view, admission = self._view, self._policy.admission
        if not self._rollouts.accepts_calls:
            view.gate = "train" if self._rollouts.reachable and view.trainer != "lost" else "lost"
            return
        if self._policy.update.mode == "drain" and view.trainer in ("trained", "syncing"):
            view.gate = "drain"
            return
        enter = self._enter_group if admission.unit == "group" else self._enter_sample
        capacity, gate = admission.capacity(view)
        while capacity > 0:
            entered = [sample for _ in range(capacity) for sample in enter()]
            for sample in entered:  # All are in before the first is placed: dispatch sees the whole batch.
                self._rollouts.start(sample)
            capacity, gate = admission.capacity(view)
        view.gate = gate

    def _enter_group(self) -> list[Sample]:
        """The parked members of the oldest parked group, or those of a new one."""
        view = self._view
        view.round_groups += 1
        if not view.parked:
            return [] if self._readmit() else self._new_group().members
        first = next(iter(view.parked.values())).group
        return [view.parked.pop(member.sample) for member in first.members if member.sample in view.parked]

    def _enter_sample(self) -> list[Sample]:
        """The oldest parked sample, or the next one of the newest group."""
        view = self._view
        if view.parked:
            return [view.parked.popitem(last=False)[1]]
        if not self._rollouts.entering:
            view.round_groups += 1
            while self._readmit():
                view.round_groups += 1
            self._rollouts.entering.extend(self._new_group().members)
        return [self._rollouts.entering.popleft()]

    def _readmit(self) -> bool:
        """Put a group up for training again in the place of a new one, if allocation says so."""
        group = self._archive.again()
        if group is None:
            return False
        self._loader.readmit(group)
        self._view.ready[group.group] = group
        self.readmitted = True
        return True

    def _new_group(self) -> Group:
        group = self._loader.next_group()
        self._view.open[group.group] = group
        size = self._policy.allocation.members(self._view, group)
        group.needed = size.needed
        self._add_members(group, size.launched)
        return group

    def _add_members(self, group: Group, count: int) -> list[Sample]:
        added = [Sample(self._next_sample + more, group, group.launched + more) for more in range(count)]
        self._next_sample += count
        group.launched += count
        group.members += added
        self._rollouts.samples.update((sample.sample, sample) for sample in added)
        return added

    def enlarge(self, group: Group, count: int) -> None:
        """Open another wave of a group that rests: its samples go before those of new groups."""
        group.needed += count
        self._launch(self._add_members(group, count))

    def fork(self, parent: Sample, fork: Fork, tool_tokens: int, count: int) -> None:
        """Members of an open group that begin where one of it is or was."""
        group = parent.group
        group.needed += count
        added = self._add_members(group, count)
        for sample in added:
            sample.fork, sample.turn, sample.made_tokens = fork, fork.turn, fork.tokens
            sample.inherited_tokens, sample.tool_tokens = fork.inherited_tokens, tool_tokens
            sample.turn_starts = parent.turn_starts[: fork.turn + 1]
        self._launch(added)

    def _launch(self, added: list[Sample]) -> None:
        if self._policy.admission.unit == "sample":
            self._rollouts.entering.extendleft(reversed(added))
            return
        for sample in added:
            if self._rollouts.accepts_calls:
                self._rollouts.start(sample)
            else:
                self._view.running_samples += 1
                self._rollouts.park(sample)
