"""The sans-IO state machine that the parts of a policy make together: ``handle(now, event) -> commands``.

It owns the ledger (which samples are where, with how many tokens) and the cycle of the trainer::

    idle -> clearing -> switching -> training -> trained -> switching -> syncing -> idle

``clearing`` only where a batch ends the round, until nothing runs: calls are cut, tools and scores are waited for.
``switching`` only on shared GPUs, whose engines always wake with the trained weights; elsewhere a step without
publication goes from ``training`` straight to ``idle``. Everything else is asked of the parts. The same object runs in
simulation and live: it sees events and its own ledger, never a clock or a length still to come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from rlsim.core.commands import Abort, CallTool, Command, Score, SetRole, Submit, Sync, Train
from rlsim.core.events import (
    Aborted,
    Event,
    Finished,
    RoleSet,
    Scored,
    Segments,
    Started,
    Synced,
    ToolReturned,
    Trained,
)
from rlsim.core.ticks import Ticks
from rlsim.core.view import Group, Loads, Sample, Shape, View
from rlsim.policies.protocols import Batch, Policy

Fate = Literal["trained", "dropped_stale", "dropped_surplus"]


class Controller:
    """One run of a policy."""

    def __init__(self, policy: Policy, shape: Shape, prompt_tokens: Callable[[int], int], scores: bool = False) -> None:
        """``prompt_tokens(draw)`` is the loader's; ``scores`` says whether rewards are asked for with ``Score``."""
        self.policy, self.view = policy, View(shape, Loads(shape.replicas))
        self.samples: dict[int, Sample] = {}
        """Samples not yet trained on or dropped."""
        self.fates: dict[int, tuple[Fate, int]] = {}
        """What became of the others, and of how many response tokens."""
        self.iterations = 0
        """Training steps ended, publication included."""
        self._prompt_tokens, self._scores = prompt_tokens, scores
        self._out: list[Command] = []
        self._generating: dict[int, Sample] = {}
        self._in_tools = 0
        self._entering: list[Sample] = []
        self._batch = Batch(())
        self._training: list[Group] = []
        self._handlers: dict[type, Callable[..., None]] = {
            Started: lambda event: None,
            Finished: self._finished,
            Aborted: self._aborted,
            ToolReturned: self._tool_returned,
            Scored: self._scored,
            Trained: self._trained,
            Synced: self._synced,
            RoleSet: self._role_set,
        }
        self._next_sample = 0

    def handle(self, now: Ticks, event: Event) -> list[Command]:
        """Take one event in; what is to be done about it."""
        self.view.now = now
        self._out = []
        self._handlers[type(event)](event)
        self._drop_expired()
        self._drive_trainer()
        self._admit()
        return self._out

    # -- samples --------------------------------------------------------------------------------------

    def _finished(self, event: Finished) -> None:
        sample = self._call_ended(event.sample, event.replica, event.tokens, event.segments)
        sample.made_tokens = 0
        group = sample.group
        if event.reason == "tool":
            sample.state = "tool"
            self._in_tools += 1
            self._out.append(CallTool(sample.sample, group.draw, group.recycle, sample.member, sample.turn))
        elif self._scores:
            sample.state = "scoring"
            self._out.append(Score(sample.sample, group.draw, group.recycle, sample.member))
        else:
            self._end_sample(sample)

    def _aborted(self, event: Aborted) -> None:
        for cut in event.cuts:
            sample = self._call_ended(cut.sample, cut.replica, cut.tokens, cut.segments)
            sample.made_tokens += cut.tokens
            self._park(sample)

    def _tool_returned(self, event: ToolReturned) -> None:
        sample = self.samples[event.sample]
        self._in_tools -= 1
        sample.tool_tokens += event.output_tokens
        sample.turn += 1
        if self._accepts_calls():
            self._submit(sample)
        else:
            self._park(sample)

    def _scored(self, event: Scored) -> None:
        self._end_sample(self.samples[event.sample])

    def _call_ended(self, number: int, replica: int, tokens: int, segments: Segments) -> Sample:
        sample = self._generating.pop(number)
        self.view.loads.add(replica, -1)
        sample.response_tokens += tokens
        for version, made in segments:
            if sample.segments and sample.segments[-1][0] == version:
                made += sample.segments.pop()[1]
            sample.segments.append((version, made))
        return sample

    def _end_sample(self, sample: Sample) -> None:
        group, view = sample.group, self.view
        sample.state = "ended"
        view.running_samples -= 1
        group.ended += 1
        if group.ended == view.shape.group_size:
            view.open_groups -= 1
            view.ready[group.group] = group

    def _park(self, sample: Sample) -> None:
        sample.state = "parked"
        self.view.running_samples -= 1
        self.view.parked[sample.sample] = sample

    def _drop(self, group: Group, fate: Fate) -> None:
        self.view.dropped_groups += 1
        for sample in group.members:
            self._settle(sample, fate)

    def _settle(self, sample: Sample, fate: Fate) -> None:
        self.fates[sample.sample] = (fate, sample.response_tokens)
        del self.samples[sample.sample]

    # -- admission ------------------------------------------------------------------------------------

    def _accepts_calls(self) -> bool:
        return self.view.generating and self.view.trainer != "clearing"

    def _admit(self) -> None:
        view, admission = self.view, self.policy.admission
        if not self._accepts_calls():
            view.gate = "train"
            return
        if self.policy.update.mode == "drain" and view.trainer in ("trained", "syncing"):
            view.gate = "drain"
            return
        enter = self._enter_group if admission.unit == "group" else self._enter_sample
        room, gate = admission.room(view)
        while room > 0:
            for _ in range(room):
                enter()
            room, gate = admission.room(view)
        view.gate = gate

    def _enter_group(self) -> None:
        """Resume the oldest parked group, or start a new one."""
        view = self.view
        view.round_groups += 1
        if view.parked:
            first = next(iter(view.parked.values())).group
            for sample in [s for s in first.members if s.sample in view.parked]:
                self._resume(sample)
            return
        for sample in self._new_group().members:
            self._start(sample)

    def _enter_sample(self) -> None:
        """Resume the oldest parked sample, or start the next one of the newest group."""
        view = self.view
        if view.parked:
            self._resume(next(iter(view.parked.values())))
            return
        if not self._entering:
            view.round_groups += 1
            self._entering = list(reversed(self._new_group().members))
        self._start(self._entering.pop())

    def _new_group(self) -> Group:
        view, size = self.view, self.view.shape.group_size
        number = view.started_groups
        view.started_groups += 1
        view.open_groups += 1
        target = number // view.shape.prompts_per_step
        group = Group(number, number, 0, self._prompt_tokens(number), view.version, target)
        for member in range(size):
            sample = Sample(self._next_sample, group, member)
            self._next_sample += 1
            group.members.append(sample)
            self.samples[sample.sample] = sample
        return group

    def _start(self, sample: Sample) -> None:
        self.view.running_samples += 1
        self._submit(sample)

    def _resume(self, sample: Sample) -> None:
        del self.view.parked[sample.sample]
        self._start(sample)

    def _submit(self, sample: Sample) -> None:
        view, group = self.view, sample.group
        replica = self.policy.dispatch.replica(view, sample)
        view.loads.add(replica, 1)
        sample.replica, sample.state = replica, "running"
        self._generating[sample.sample] = sample
        self._out.append(
            Submit(
                sample.sample,
                replica,
                group.draw,
                group.recycle,
                sample.member,
                sample.turn,
                sample.made_tokens,
                sample.context_tokens,
            )
        )

    # -- trainer --------------------------------------------------------------------------------------

    def _drive_trainer(self) -> None:
        view = self.view
        if view.trainer == "idle":
            batch = self.policy.batching.select(view)
            if batch is not None:
                self._take(batch)
        elif view.trainer == "trained" and self._drained():
            self._out.append(Sync(view.version + 1, self.policy.update.mode, self.policy.update.resume_seconds))
            view.trainer = "syncing"
        if view.trainer == "clearing" and not view.running_samples:
            self._end_round()

    def _take(self, batch: Batch) -> None:
        view = self.view
        self._batch = batch
        self._training += [view.ready.pop(group) for group in batch.groups]
        if batch.last:
            view.steps_begun += 1
            view.round_groups = 0
        if not (self.policy.leftovers.ends_round and batch.last):
            self._train()
            return
        view.trainer = "clearing"
        if self._generating:
            self._out.append(Abort(tuple(self._generating)))

    def _end_round(self) -> None:
        """The batch is taken and nothing runs: settle what it left, then train."""
        view, leftovers = self.view, self.policy.leftovers
        if not leftovers.keeps_surplus:
            for group in view.ready.values():
                self._drop(group, "dropped_surplus")
            view.ready.clear()
        if not leftovers.keeps_unfinished:
            self._drop_unfinished()
        view.parked = type(view.parked)(sorted(view.parked.items()))
        self._train()

    def _drop_unfinished(self) -> None:
        """Give up the groups that are not complete, finished members included."""
        unfinished = [*self.view.parked.values(), *self._entering]
        for group in {sample.group.group: sample.group for sample in unfinished}.values():
            self.view.open_groups -= 1
            self._drop(group, "dropped_surplus")
        self.view.parked.clear()
        self._entering.clear()

    def _train(self) -> None:
        if self.policy.placement.shared and self.view.generating:
            self.view.generating = False
            self.view.trainer = "switching"
            self._out.append(SetRole("train"))
            return
        self.view.trainer = "training"
        step = self.view.steps_begun - (1 if self._batch.last else 0)
        fresh = self._training[len(self._training) - len(self._batch.groups) :]
        samples = tuple(sample.sample for group in fresh for sample in group.members)
        self._out.append(Train(step, samples, self._batch.last))

    def _role_set(self, event: RoleSet) -> None:
        if event.role == "train":
            self._train()
            return
        self.view.trainer = "trained"

    def _trained(self, event: Trained) -> None:
        view = self.view
        if not self._batch.last:
            view.trainer = "idle"
            return
        view.steps_done += 1
        for group in self._training:
            for sample in group.members:
                self._settle(sample, "trained")
        self._training = []
        if self.policy.placement.shared:
            view.trainer = "switching"
            self._out.append(SetRole("rollout"))
        elif self.policy.update.due(view):
            view.trainer = "trained"
        else:
            self._end_iteration()

    def _drained(self) -> bool:
        """Whether the update mode allows to publish now."""
        if self.policy.update.mode != "drain":
            return True
        return not self._generating and not self._in_tools

    def _synced(self, event: Synced) -> None:
        self.view.version = event.version
        self.view.generating = True
        self._end_iteration()

    def _end_iteration(self) -> None:
        self.view.trainer = "idle"
        self.iterations += 1

    def _drop_expired(self) -> None:
        for number in self.policy.leftovers.expired(self.view):
            self._drop(self.view.ready.pop(number), "dropped_stale")
