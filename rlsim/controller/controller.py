"""The cycle of the trainer, and the controller as a whole.

::

    idle -> clearing -> switching -> training -> trained -> switching -> syncing -> idle
    idle -> lending -> lent -> recalling -> returning -> idle

``clearing`` only where a batch ends the round, until nothing runs: calls are cut, tools and scores are waited for.
``switching`` only on shared GPUs, whose engines always wake with the trained weights; elsewhere a step without
publication goes from ``training`` straight to ``idle``. The second cycle is that of a trainer that lends GPUs to
replicas while it waits for a batch: ``recalling`` until the calls on them have been cut.
"""

from __future__ import annotations

from collections.abc import Callable

from rlsim.controller.admission import AdmissionControl
from rlsim.controller.branching import Branching
from rlsim.controller.elastic import ElasticPlacement
from rlsim.controller.group_completion import GroupCompletion
from rlsim.controller.prompts import PromptQueue
from rlsim.controller.replay_buffer import ReplayBuffer
from rlsim.controller.rollouts import Rollouts
from rlsim.controller.timers import PolicyTimers
from rlsim.core.commands import Command, SetRole, Sync, Train
from rlsim.core.events import (
    Aborted,
    Event,
    Finished,
    Noticed,
    ReplicaLost,
    RoleSet,
    Scored,
    Started,
    Synced,
    ToolReturned,
    Trained,
    TrainerLost,
    Woke,
)
from rlsim.core.loads import Loads
from rlsim.core.ticks import Ticks
from rlsim.core.view import Group, RunSizes, Sample, View
from rlsim.policies.protocols import Batch, ElasticReplicas, Policy, Tests


class Controller:
    """One run of a policy: ``handle(now, event) -> commands``."""

    def __init__(
        self,
        policy: Policy,
        shape: RunSizes,
        prompt_tokens: Callable[[int], int],
        scores: bool = False,
        oracle_tokens: Callable[[Sample], int] | None = None,
        request_class: Callable[[int], int] | None = None,
        prompt_of: Callable[[int], int] | None = None,
    ) -> None:
        """``prompt_tokens(draw)`` is the loader's; ``scores`` says whether rewards are asked for with ``Score``.

        ``oracle_tokens`` tells lengths still to come to parts that say oracle; a live run has none.
        ``request_class(draw)`` is the place of a prompt's class in ``shape.classes``; None where there is one.
        ``prompt_of(draw)`` is its number in the data set; None where no prompt comes twice.
        """
        self.policy = policy
        self.view = View(shape, Loads(shape.replicas), oracle_tokens=oracle_tokens)
        self._out: list[Command] = []
        prompt_queue = PromptQueue(policy, self.view, prompt_tokens, prompt_of, request_class)
        self._rollouts = Rollouts(policy, self.view, prompt_queue, scores, self._out)
        allocation = policy.allocation
        self._replay_buffer = ReplayBuffer(allocation, self.view)
        self._admission = AdmissionControl(policy, self.view, self._rollouts, prompt_queue, self._replay_buffer)
        self._branching = Branching(allocation, self.view, self._rollouts, self._admission)
        self._group_completion = GroupCompletion(
            allocation, self.view, self._rollouts, self._admission, prompt_queue, self._branching
        )
        self._timers = PolicyTimers(policy, self.view, self._out)
        self._elastic: ElasticPlacement | None = None
        if isinstance(policy.placement, ElasticReplicas):
            self._elastic = ElasticPlacement(policy.placement, self.view, self._rollouts, self._out)
        self.iterations = 0
        """Training steps ended, publication included."""
        self._batch = Batch(())
        self._training: list[Group] = []
        self._handlers: dict[type, Callable[..., None]] = {
            Started: lambda event: None,
            Finished: self._rollouts.finished,
            Aborted: self._rollouts.aborted,
            Noticed: self._rollouts.on_watch,
            ToolReturned: self._rollouts.tool_returned,
            Scored: self._rollouts.scored,
            Trained: self._trained,
            Synced: self._synced,
            RoleSet: self._role_set,
            Woke: self._woke,
            ReplicaLost: self._rollouts.replica_lost,
            TrainerLost: self._trainer_lost,
        }

    @property
    def samples(self) -> dict[int, Sample]:
        """Samples not yet trained on or dropped."""
        return self._rollouts.samples

    @property
    def outcomes(self) -> dict[int, tuple[str, int]]:
        """What became of the others, and of how many response tokens."""
        return self._rollouts.outcomes

    @property
    def ended_samples(self) -> int:
        """Samples that have come to their end so far; those that were given up before are none of them."""
        return self._rollouts.ended_samples

    @property
    def admits_endlessly(self) -> bool:
        """Whether admission let in more at one instant than any run can use; it was cut short then."""
        return self._admission.is_cut_short

    def handle(self, now: Ticks, event: Event) -> list[Command]:
        """Take one event in; what is to be done about it."""
        self.view.now = now
        rollouts = self._rollouts
        self._handlers[type(event)](event)
        if rollouts.places:
            self._branching.at_places()
        if self.view.waiting_for_wave:
            self._group_completion.settle()
        rollouts.go_on_together()
        if rollouts.completed:
            rollouts.completed = False
            rollouts.drop_expired()
            rollouts.migrate()
        self._drive()
        self._admission.admit()
        while self._admission.readmitted:
            self._admission.readmitted = False
            self._drive()
            self._admission.admit()
        if self._elastic is not None:
            self._elastic.lend()
        self._timers.ask()
        commands = self._out.copy()
        self._out.clear()
        return commands

    def _drive(self) -> None:
        view = self.view
        if self._elastic is not None:
            self._elastic.look_first()
        if view.trainer == "idle" and self._timers.may_look():
            batch = self.policy.batching.select(view)
            if batch is not None:
                self._take(batch)
        elif view.trainer == "trained" and self._drained():
            update = self.policy.update
            test = isinstance(update, Tests) and update.tests_candidates
            self._out.append(Sync(view.version + 1, update.mode, update.resume_seconds, test))
            view.trainer = "syncing"
        if self._elastic is not None:
            self._elastic.take_back()
        if view.trainer == "clearing" and not view.running_samples:
            self._rollouts.settle_round()
            self._train()

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
        self._rollouts.abort(view.generating_samples.values())

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
        keeps, released = self._replay_buffer.keeps, self._replay_buffer.releases()
        self._out.append(Train(step, samples, self._batch.last, self._batch.updates, keeps, released))

    def _role_set(self, event: RoleSet) -> None:
        if self._elastic is not None:
            self._elastic.switched()
            if self.view.trainer == "idle":
                self._wait()
        elif event.role == "train":
            self._train()
        else:
            self.view.trainer = "trained"

    def _trained(self, event: Trained) -> None:
        view = self.view
        view.ess = event.ess
        if not self._batch.last:
            self._wait()
            return
        view.steps_done += 1
        for group in self._training:
            if not group.replays:
                for sample in group.members:
                    self._rollouts.settle(sample, "trained")
        self._replay_buffer.trained(self._training)
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
        return not self.view.generating_samples and not self._rollouts.in_tools

    def _synced(self, event: Synced) -> None:
        if event.accepted:
            self.view.version = event.version
        else:
            self.view.rejected += 1
        self.view.generating = True
        self._end_iteration()
        self._rollouts.drop_expired()
        self._rollouts.abandon_old()
        self._rollouts.migrate()

    def _end_iteration(self) -> None:
        self._wait()
        self.iterations += 1

    def _wait(self) -> None:
        self.view.trainer = "idle"
        self._timers.begin_to_wait()

    def _trainer_lost(self, event: TrainerLost) -> None:
        """Nothing can be trained any more: what runs may end, and nothing begins."""
        self.view.trainer = "lost"

    def _woke(self, event: Woke) -> None:
        self._timers.rang(event.at)
        self._rollouts.completed = True
