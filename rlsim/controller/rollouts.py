"""Samples from admission to their outcome: the rollout side of the controller.

It keeps the ledger: which samples are where, with how many tokens. A sample that is no longer wanted while its
call, tool or score is under way is *cancelled*: its outcome is booked when that returns. What may enter, where a call
goes, in which order it runs and what is given up is asked of the parts.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from rlsim.controller.prompts import PromptQueue
from rlsim.controller.submission import Submission
from rlsim.core.commands import Abort, CallTool, Command, Score
from rlsim.core.events import Aborted, Cut, Finished, Noticed, ReplicaLost, Scored, Segments, ToolReturned
from rlsim.core.view import AFRESH, ANYWHERE, Group, Sample, View
from rlsim.policies.hooks import Watches
from rlsim.policies.protocols import Confined, Learns, Policy

Outcome = Literal["trained", "dropped_stale", "dropped_surplus", "filtered", "pruned", "failed"]
MAX_LOSSES = 1
"""Calls of a sample that may be lost with their replica; at the next one its group is given up."""


class Rollouts:
    """All samples that are not yet trained on or dropped, and what became of the others."""

    def __init__(
        self,
        policy: Policy,
        view: View,
        prompt_queue: PromptQueue,
        scores: bool,
        out: list[Command],
    ) -> None:
        self.policy, self.view, self.out = policy, view, out
        self.samples: dict[int, Sample] = {}
        self.outcomes: dict[int, tuple[str, int]] = {}
        """Outcome and response tokens of samples that are done with."""
        self.in_tools = self.ended_samples = 0
        self.completed = False
        """Whether the parts are to be asked what to drop or move: a sample or a group ended, or a timer rang."""
        self._waiting: dict[int, Callable[[Sample], None]] = {}
        """What samples do next that wait for the others of their turn."""
        self._prompt_queue, self._scores = prompt_queue, scores
        self.entering: deque[Sample] = deque()
        """Members of open groups that wait to be let in one by one."""
        self._learner = policy.ordering if isinstance(policy.ordering, Learns) else None
        self._needs = policy.dispatch.needs if isinstance(policy.dispatch, Confined) else ()
        allocation = policy.allocation
        self._watches = allocation if isinstance(allocation, Watches) else None
        self._submission = Submission(policy, view)
        self.places: list[tuple[Sample, int, float | None]] = []
        """Where samples may fork now: (sample, tokens of its turn, what was noticed), for allocation to say."""

    # -- replies --------------------------------------------------------------------------------------

    def finished(self, event: Finished) -> None:
        """A call ended by itself."""
        sample = self._call_ended(event.sample, event.replica, event.tokens, event.segments)
        if event.reused:
            # A check accepted tokens of a draft: the sample has them, under the version that checked them.
            sample.inherited_tokens = sample.made_tokens = sum(count for _, count in event.reused)
            sample.segments += event.reused
        if self._learner is not None and event.reason not in ("chunk", "checked"):
            self._learner.learn(self.view, sample, sample.made_tokens + event.tokens)
        if sample.cancelled:
            self._give_up(sample)
        elif event.reason == "chunk":
            sample.made_tokens += event.tokens
            sample.truncated |= 0 < sample.cap_tokens <= sample.made_tokens
            (self._respond if sample.truncated else self._go_on)(sample)
        elif event.reason == "checked":
            sample.checked, sample.destination = True, event.replica
            self._go_on(sample)
        elif event.reason == "tool" and not sample.truncated:
            sample.made_tokens = 0
            self._next(sample, self._call_tool)
        else:
            sample.truncated &= event.reason == "tool"  # Others came to their own end before they could be cut.
            self._respond(sample)

    def _respond(self, sample: Sample) -> None:
        """A response is there, whole or truncated."""
        if self._scores:
            group = sample.group
            sample.state = "scoring"
            self.out.append(Score(sample.sample, group.draw, group.recycle, sample.member))
        else:
            self._end(sample)

    def on_watch(self, event: Noticed) -> None:
        """A watched call came to a mark."""
        sample = self.view.generating_samples.get(event.sample)
        if self._watches is not None and sample is not None and not sample.cancelled and not sample.aborting:
            verdict = self._watches.on_watch(self.view, sample, event.tokens, event.value)
            self.prune(verdict.pruned)
            self.truncate(verdict.truncated)
            if not sample.aborting:
                self.places.append((sample, event.tokens, event.value))

    def aborted(self, event: Aborted) -> None:
        """Calls were cut."""
        for cut in event.cuts:
            sample = self._call_ended(cut.sample, cut.replica, cut.tokens, cut.segments)
            sample.made_tokens += cut.tokens
            if sample.cancelled:
                self._give_up(sample)
            elif self._ends_here(sample):
                self._respond(sample)
            elif sample.destination != -1 and self.accepts_calls:
                self._submit(sample)
            else:
                self.pause(sample)

    def replica_lost(self, event: ReplicaLost) -> None:
        """A replica is gone: its calls go on elsewhere, each once; groups that lose one twice are given up."""
        self.view.loads.lose(event.replica)
        cut = [self._call_lost(lost_call) for lost_call in event.cuts]
        for group in {sample.group.group: sample.group for sample in cut if sample.losses > MAX_LOSSES}.values():
            if group.group in self.view.open:
                self._prompt_queue.vacate(group.target)
                self.abandon(group, "failed")
        for sample in cut:
            if sample.sample in self.view.paused and self.accepts_calls:
                self.start(self.view.paused.pop(sample.sample))

    def _call_lost(self, cut: Cut) -> Sample:
        """Book a call that ended with its replica; its sample is paused, unless nobody wants it."""
        sample = self._call_ended(cut.sample, cut.replica, cut.tokens, cut.segments)
        sample.made_tokens += cut.tokens
        if sample.cancelled:
            self._give_up(sample)
        else:
            sample.losses += 1
            self.pause(sample)
        return sample

    def _ends_here(self, sample: Sample) -> bool:
        """Whether a call that was cut is the end of its response; not of one that made nothing."""
        sample.truncated &= sample.response_tokens > 0
        return sample.truncated

    def tool_returned(self, event: ToolReturned) -> None:
        """A tool call ended."""
        sample = self.samples[event.sample]
        self.in_tools -= 1
        self.view.loads.add_between_calls(sample.replica, -1)
        sample.tool_tokens += event.output_tokens
        sample.turn += 1
        if sample.cancelled:
            self._give_up(sample)
        else:
            sample.turn_starts.append((sample.inherited_tokens + sample.response_tokens, sample.tool_tokens))
            self.places.append((sample, 0, None))
            self._next(sample, self._go_on)

    def scored(self, event: Scored) -> None:
        """A reward was computed."""
        sample = self.samples[event.sample]
        sample.reward = event.reward
        if sample.cancelled:
            self._give_up(sample)
        else:
            self._end(sample)

    def _call_ended(self, number: int, replica: int, tokens: int, segments: Segments) -> Sample:
        sample = self.view.generating_samples.pop(number)
        sample.aborting = False
        self.view.loads.add(replica, -1, sample.context_tokens)
        sample.response_tokens += tokens
        if segments:
            self.view.replica_versions[replica] = segments[-1][0]
        for version, count in segments:
            if sample.segments and sample.segments[-1][0] == version:
                count += sample.segments.pop()[1]
            sample.segments.append((version, count))
        return sample

    def _next(self, sample: Sample, action: Callable[[Sample], None]) -> None:
        """Go on, now or with the others."""
        if self.policy.turns.together:
            sample.state = "waiting"
            self.view.loads.add_between_calls(sample.replica, 1)
            self._waiting[sample.sample] = action
        else:
            action(sample)

    def go_on_together(self) -> None:
        """Let those that wait for each other go on, if nothing is left to wait for."""
        if self._waiting and not self.view.generating_samples and not self.in_tools:
            waiting, self._waiting = self._waiting, {}
            for number, action in waiting.items():
                self.view.loads.add_between_calls(self.samples[number].replica, -1)
                action(self.samples[number])

    def _call_tool(self, sample: Sample) -> None:
        group = sample.group
        sample.state = "tool"
        self.in_tools += 1
        self.view.loads.add_between_calls(sample.replica, 1)
        self.out.append(CallTool(sample.sample, group.draw, group.recycle, sample.member, sample.turn))

    def _go_on(self, sample: Sample) -> None:
        if self.accepts_calls:
            self._submit(sample)
        else:
            self.pause(sample)

    def pause(self, sample: Sample) -> None:
        """Let a sample that runs wait until it is let in again."""
        sample.state, sample.destination = "paused", -1
        self.view.running_samples -= 1
        self.view.paused[sample.sample] = sample

    # -- ends -----------------------------------------------------------------------------------------

    def _end(self, sample: Sample) -> None:
        group = sample.group
        sample.state = "ended"
        self.ended_samples += 1
        self.view.running_samples -= 1
        group.ended += 1
        self.completed = True
        if group.ended == group.needed:
            self._wait_for_wave(group)

    def _wait_for_wave(self, group: Group) -> None:
        """All of a group that is needed has ended: allocation says what follows."""
        self.view.waiting_for_wave[group.group] = group
        if len(group.members) > group.ended:
            # The members that a complete group does not need are given up.
            surplus = [sample for sample in group.members if sample.state != "ended"]
            group.members = [sample for sample in group.members if sample.state == "ended"]
            self._cancel(surplus, "dropped_surplus", abort=self.policy.allocation.aborts_surplus)

    def prune(self, samples: Sequence[Sample]) -> None:
        """Give up members that have not ended; their group needs no others in their place."""
        for group in {sample.group.group: sample.group for sample in samples}.values():
            pruned = [sample for sample in samples if sample.group is group and sample.state != "ended"]
            group.members = [sample for sample in group.members if sample not in pruned]
            group.needed = min(group.needed, len(group.members))
            self._cancel(pruned, "pruned", abort=True)
            if group.ended == group.needed and group.group not in self.view.waiting_for_wave:
                self._wait_for_wave(group)

    def truncate(self, samples: Sequence[Sample]) -> None:
        """Cut calls that are under way; what they have made is the response."""
        cut = [sample for sample in samples if sample.state == "running" and not sample.cancelled]
        for sample in cut:
            sample.truncated = True
        self.abort(cut)

    def abandon(self, group: Group, outcome: Outcome) -> None:
        """Give up an open group, wherever its members are."""
        del self.view.open[group.group]
        self.view.waiting_for_wave.pop(group.group, None)
        self.view.dropped_groups += 1
        self._recycle(group)
        self._cancel(group.members, outcome, abort=True)

    def drop(self, group: Group, outcome: Outcome) -> None:
        """Give up a complete group that the caller has taken out of the buffer."""
        self.view.dropped_groups += 1
        if group.replays:
            self.view.kept[group.group] = group
            return
        self._recycle(group)
        for sample in group.members:
            self.settle(sample, outcome)

    def settle(self, sample: Sample, outcome: str) -> None:
        """Book what became of a sample."""
        self.outcomes[sample.sample] = (outcome, sample.response_tokens)
        del self.samples[sample.sample]

    def _recycle(self, group: Group) -> None:
        if self.policy.leftovers.recycles:
            self.view.recycled.append((group.draw, group.recycle + 1))

    def _cancel(self, samples: Iterable[Sample], outcome: Outcome, abort: bool) -> None:
        calls = []
        for sample in samples:
            if sample.state in ("running", "tool", "scoring"):
                sample.cancelled = outcome
                if abort and sample.state == "running":
                    calls.append(sample)
            else:
                self.view.paused.pop(sample.sample, None)
                if self._waiting.pop(sample.sample, None):
                    self.view.running_samples -= 1
                    self.view.loads.add_between_calls(sample.replica, -1)
                if sample.state == "new" and sample in self.entering:
                    self.entering.remove(sample)
                self.settle(sample, outcome)
        self.abort(calls)

    def _give_up(self, sample: Sample) -> None:
        self.view.running_samples -= 1
        self.settle(sample, sample.cancelled)

    def abort(self, samples: Iterable[Sample]) -> None:
        """Cut the calls of samples that are not being cut already."""
        calls = [sample for sample in samples if not sample.aborting]
        for sample in calls:
            sample.aborting = True
        if calls:
            self.out.append(Abort(tuple(sample.sample for sample in calls)))

    # -- rounds and ages ------------------------------------------------------------------------------

    def settle_round(self) -> None:
        """A batch was taken and nothing runs: settle what it left."""
        view, leftovers = self.view, self.policy.leftovers
        if not leftovers.keeps_surplus:
            for group in view.ready.values():
                self.drop(group, "dropped_surplus")
            view.ready.clear()
        if not leftovers.keeps_unfinished:
            for group in list(view.open.values()):
                self.abandon(group, "dropped_surplus")
        view.paused = OrderedDict(sorted(view.paused.items()))

    def drop_expired(self) -> None:
        """Complete groups that the leftovers part no longer wants."""
        for number in self.policy.leftovers.expired(self.view):
            self.drop(self.view.ready.pop(number), "dropped_stale")

    def abandon_old(self) -> None:
        """Open groups that it no longer wants."""
        for number in self.policy.leftovers.abandoned(self.view):
            self.abandon(self.view.open[number], "dropped_stale")

    def migrate(self) -> None:
        """Cut the calls that are to move; they are submitted where they go once they have been cut."""
        moves = self.policy.migration.moves(self.view)
        for sample, replica in moves:
            sample.destination = replica
        self.abort(sample for sample, _ in moves)

    def clear(self, replicas: range) -> None:
        """Cut the calls on some replicas; they go on elsewhere."""
        calls = [sample for sample in self.view.generating_samples.values() if sample.replica in replicas]
        for sample in calls:
            sample.destination = ANYWHERE
        self.abort(calls)

    def spread(self) -> None:
        """Cut all calls; they go on where dispatch puts them, which is not told where they were."""
        calls = list(self.view.generating_samples.values())
        for sample in calls:
            sample.destination = AFRESH
        self.abort(calls)

    # -- calls ----------------------------------------------------------------------------------------

    @property
    def accepts_calls(self) -> bool:
        """Whether calls may be submitted now."""
        view = self.view
        return view.generating and view.trainer not in ("clearing", "lost") and self.reachable

    @property
    def reachable(self) -> bool:
        """Whether there is a replica for every leg of a call."""
        loads = self.view.loads
        return loads.all_open or (loads.open_count > 0 and all(loads.any_open(needed) for needed in self._needs))

    def start(self, sample: Sample) -> None:
        """Submit a sample that does not run yet, or not any more."""
        self.view.running_samples += 1
        self._submit(sample)

    def _submit(self, sample: Sample) -> None:
        self.out.append(self._submission.submit(sample))
