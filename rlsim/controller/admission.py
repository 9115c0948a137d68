"""What enters generation: new groups, what was cut before, and the next waves of groups that wait for one."""

from __future__ import annotations

from rlsim.controller.prompts import PromptQueue
from rlsim.controller.replay_buffer import ReplayBuffer
from rlsim.controller.rollouts import Rollouts
from rlsim.core.commands import Fork
from rlsim.core.view import Group, Sample, View
from rlsim.policies.protocols import Policy

MOST_AT_ONCE, MOST_PER_CAPACITY = 1_000_000, 100
"""Samples that may enter at one instant: so many, or so many times what replicas and a batch hold, if that is more."""


class AdmissionControl:
    """Asks the admission part how many may enter, and opens groups as large as allocation says."""

    def __init__(
        self, policy: Policy, view: View, rollouts: Rollouts, prompt_queue: PromptQueue, replay_buffer: ReplayBuffer
    ) -> None:
        self._policy, self._view, self._rollouts, self._prompt_queue = policy, view, rollouts, prompt_queue
        self._replay_buffer, self._next_sample = replay_buffer, 0
        self.readmitted = False
        """Whether a group entered that is complete already."""
        shape = view.shape
        self._most = max(MOST_AT_ONCE, MOST_PER_CAPACITY * max(shape.slots, shape.prompts_per_step * shape.group_size))
        self.is_cut_short = False
        """Whether there was still capacity for more when as many had entered at one instant."""

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
        last = self._next_sample + self._most
        while capacity > 0 and not self.is_cut_short:
            entered = []
            for _ in range(capacity):
                if self._next_sample > last:
                    self.is_cut_short = True
                    break
                entered += enter()
            for sample in entered:  # All are in before the first is placed: dispatch sees the whole batch.
                self._rollouts.start(sample)
            capacity, gate = admission.capacity(view)
        view.gate = gate

    def _enter_group(self) -> list[Sample]:
        """The paused members of the oldest paused group, or those of a new one."""
        view = self._view
        view.round_groups += 1
        if not view.paused:
            return [] if self._readmit() else self._new_group().members
        first = next(iter(view.paused.values())).group
        return [view.paused.pop(member.sample) for member in first.members if member.sample in view.paused]

    def _enter_sample(self) -> list[Sample]:
        """The oldest paused sample, or the next one of the newest group."""
        view = self._view
        if view.paused:
            return [view.paused.popitem(last=False)[1]]
        if not self._rollouts.entering:
            view.round_groups += 1
            while self._readmit():
                view.round_groups += 1
            self._rollouts.entering.extend(self._new_group().members)
        return [self._rollouts.entering.popleft()]

    def _readmit(self) -> bool:
        """Put a group up for training again in the place of a new one, if allocation says so."""
        group = self._replay_buffer.again()
        if group is None:
            return False
        self._prompt_queue.readmit(group)
        self._view.ready[group.group] = group
        self.readmitted = True
        return True

    def _new_group(self) -> Group:
        group = self._prompt_queue.next_group()
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
        """Open another wave of a group that waits for it: its samples go before those of new groups."""
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
                self._rollouts.pause(sample)
