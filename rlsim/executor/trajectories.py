"""The generate calls of a run: their hidden lengths, and what the engines and the policy are told of them.

How many optimizer steps lie between the trainer's weights and those that made a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from rlsim.core.commands import Fork, Submit, Sync, Train
from rlsim.core.events import Cut, Finished, Noticed, Segments
from rlsim.core.log import OddsRow, ProgressRow
from rlsim.core.ticks import Ticks
from rlsim.engine.replica import Replica
from rlsim.engine.requests import Request
from rlsim.executor.system import LearningSetup, System
from rlsim.executor.trajectory import Draft, Trajectory, forked, shared_context
from rlsim.learning.dynamics import TrainedSample


class Updates:
    """Steps behind the trainer's weights, and behind each published version."""

    def __init__(self) -> None:
        self.steps = 0
        self._published = [0]

    def trained(self) -> None:
        """A step is complete."""
        self.steps += 1

    def published(self, accepted: bool) -> None:
        """The replicas serve the trainer's weights as the next version; or the trainer goes back to theirs."""
        if accepted:
            self._published.append(self.steps)
        else:
            self.steps = self._published[-1]

    def token_steps(self, segments: Segments) -> int:
        """Sum over tokens of the steps behind the version that made them."""
        return sum(tokens * self._published[version] for version, tokens in segments)


class Calls:
    """Trajectories by sample, while they live."""

    def __init__(self, system: System, version: Callable[[int], int]) -> None:
        """``version(replica)`` is the weights version a replica serves."""
        self.system, self._version = system, version
        self.lengths_drift = system.workload.drift is not None or system.learning is not None
        """Whether lengths are decided by the weights that make the first token."""
        self._unlearnt: list[TrainedSample] = []
        self._own_updates = 0
        """Optimizer updates that the parts of the step under way made on their own."""
        self._groups: dict[tuple[int, int], int] = {}
        self._engine_checks = system.learning is None or system.learning.dynamics.engine_checks_drafts
        self._cap_tokens = system.workload.response_length.cap_tokens
        self._kv_age = 0
        self.updates = Updates()
        self.odds: list[OddsRow] = []
        """Of every sample that was begun, where there is a learning model."""
        self.check_tokens = 0
        """Made by checks of drafts, and nobody's."""
        self.trajectories: dict[int, Trajectory] = {}

    def set_lengths(self, replicas: Iterable[Replica]) -> None:
        """Let simulated engines ask here for lengths that their weights decide."""
        if self.lengths_drift:
            for replica in replicas:
                replica.set_length(self.length)

    def drop_kv(self) -> None:
        """All KV made so far, offloaded or not, is of weights that are gone."""
        self._kv_age += 1

    def note_odds(self, command: Submit, version: int) -> None:
        """Before its first call: how likely a sample is to succeed under the newest weights that its policy knows."""
        learning = self.system.learning
        if learning is not None and command.sample not in self.trajectories:
            prompt, _ = self.system.workload.prompt_at(command.draw)
            self.odds.append(OddsRow(command.sample, learning.dynamics.success(prompt, version)))

    def request(self, command: Submit, now: Ticks) -> Request:
        """The engine's request for a submitted call."""
        trajectory = self._trajectory(command)
        if command.draft >= 0:
            return self._check(command, trajectory, now)
        trajectory.turn = command.turn
        trajectory.made_tokens, trajectory.allowed_tokens = command.made_tokens, command.max_tokens
        if not command.made_tokens:
            trajectory.length_tokens = 0
        length = trajectory.length_tokens or self._turn_tokens(trajectory, self._version(command.replica))
        if not self.lengths_drift:
            trajectory.length_tokens = length
        request = Request(
            command.sample,
            trajectory.prompt,
            self.system.workload.prompt_tokens(trajectory.prompt),
            command.context_tokens,
            self._target(length - command.made_tokens, command.max_tokens, command.context_tokens),
            command.priority,
            now,
            max_tokens=self._most(command),
        )
        request.lineage = trajectory.lineage
        if command.watch is not None:
            trajectory.signal = command.watch.signal
            request.marks = tuple(mark - command.made_tokens for mark in command.watch.marks)
        if command.turn:
            self._carry_kv(request, trajectory)
        if command.kv_from_pool and trajectory.kv_age == self._kv_age:
            request.restored_tokens = command.context_tokens - 1
        return request

    def _check(self, command: Submit, trajectory: Trajectory, now: Ticks) -> Request:
        """A prefill over prompt and draft, or over the prompt alone where the trainer has checked the draft before.

        The token that ends it belongs to nobody.
        """
        old = self.trajectories[command.draft]
        room = self.system.max_model_len - 1 - command.context_tokens
        draft = trajectory.draft = Draft(old, min(old.turn_lengths[0] if old.turn_lengths else 0, room))
        tokens = self.system.workload.prompt_tokens(trajectory.prompt)
        draft_tokens = draft.tokens if self._engine_checks else 0
        context = command.context_tokens + draft_tokens
        request = Request(command.sample, trajectory.prompt, tokens, context, 1, command.priority, now, max_tokens=1)
        if self._engine_checks:
            request.content = ("draft", command.sample)
        return request

    def _most(self, command: Submit) -> int:
        """What the caller allows the engine to make: the cap of a response, or what the policy sets below it."""
        left = max(1, self._cap_tokens - command.made_tokens)
        return min(command.max_tokens or left, left)

    def _carry_kv(self, request: Request, trajectory: Trajectory) -> None:
        """What the engine still has of the earlier turns."""
        if self.system.kv_while_waiting == "drop":
            request.content, request.lineage = ("turn", request.sample, trajectory.turn), ()
        elif self.system.kv_while_waiting == "offload" and trajectory.kv_age == self._kv_age:
            request.restored_tokens = request.context_tokens - 1

    def length(self, request: Request, version: int) -> int:
        """The target of a call whose first token is made now by weights of ``version``."""
        trajectory = self.trajectories[request.sample]
        if trajectory.length_tokens or trajectory.draft is not None:
            return request.target_tokens
        trajectory.length_tokens = self._turn_tokens(trajectory, version)
        left = trajectory.length_tokens - trajectory.made_tokens
        return self._target(left, trajectory.allowed_tokens, request.context_tokens)

    def stopped(self, request: Request) -> None:
        """The model itself ended the response of a call, whatever length the workload had for it."""
        trajectory = self.trajectories[request.sample]
        trajectory.length_tokens = trajectory.made_tokens + request.tokens - request.context_tokens

    def ended(self, request: Request, replica: int, accepted_tokens: int | None = None) -> Finished:
        """What the policy is told of a call that ended by itself.

        ``accepted_tokens`` of a draft are those that real weights accept; with a learning model it says how many.
        """
        trajectory = self.trajectories[request.sample]
        if trajectory.draft is not None:
            return self._checked(request, trajectory, trajectory.draft, replica, accepted_tokens)
        made_tokens = request.tokens - request.context_tokens
        trajectory.response_tokens += made_tokens
        self._add_token_steps(trajectory, tuple(request.segments))
        trajectory.kv_age, trajectory.replica = self._kv_age, replica
        reason: Literal["stop", "length", "tool", "chunk"] = "stop"
        if request.tokens >= self.system.max_model_len:
            reason = "length"
        elif trajectory.made_tokens + made_tokens < trajectory.length_tokens:
            reason = "chunk"
        elif trajectory.turn + 1 < trajectory.turns:
            reason = "tool"
        elif trajectory.length_tokens >= self.system.workload.response_cap_tokens(trajectory.prompt):
            reason = "length"
        trajectory.complete = reason in ("stop", "length")
        if reason != "chunk":
            trajectory.turn_lengths.append(trajectory.made_tokens + made_tokens)
        return Finished(request.sample, replica, made_tokens, tuple(request.segments), reason, request.first_token)

    def _checked(
        self, request: Request, trajectory: Trajectory, draft: Draft, replica: int, accepted_tokens: int | None
    ) -> Finished:
        """Keep what the weights that checked a draft accept of it."""
        version, learning = request.segments[0][0], self.system.learning
        trajectory.draft, self.check_tokens = None, self.check_tokens + 1
        if learning is not None:
            share = learning.dynamics.accepted_share(*trajectory.key, draft.of.version, version)
            kept = draft.tokens if share >= 1.0 else int(share * draft.tokens)
        else:
            kept = draft.tokens if accepted_tokens is None else accepted_tokens
            share = kept / max(1, draft.tokens)
        checked_kv = (request.content, request.prompt_tokens) if self._engine_checks else None
        draft.accept(trajectory, kept, share, version, checked_kv)
        reused = ((version, kept),) if kept else ()
        self._add_token_steps(trajectory, reused)
        reason: Literal["stop", "tool", "checked"] = "checked"
        if trajectory.turn_lengths:
            trajectory.complete = trajectory.turns == 1
            reason = "stop" if trajectory.complete else "tool"
        return Finished(request.sample, replica, 0, (), reason, request.first_token, reused)

    def notice(self, request: Request, made_tokens: int) -> Noticed:
        """What a watched call shows once it has made so many tokens; nothing where no model says what it reads."""
        trajectory = self.trajectories[request.sample]
        turn_from = trajectory.given_tokens + trajectory.response_tokens - trajectory.made_tokens
        tokens = request.context_tokens + made_tokens - turn_from
        value, learning = 0.0, self.system.learning
        if learning is not None:
            share = min(1.0, tokens / trajectory.length_tokens)
            read_signal = learning.dynamics.signal
            value = read_signal(trajectory.signal, *trajectory.key, share, trajectory.version, trajectory.ancestors)
        return Noticed(request.sample, tokens, value)

    def reward(self, sample: int) -> float | None:
        """What a finished sample earns, nothing where the policy cut it short; None without a learning model."""
        if self.system.learning is None:
            return None
        trajectory = self.trajectories[sample]
        if trajectory.complete:
            dynamics, version = self.system.learning.dynamics, trajectory.version
            trajectory.reward = dynamics.reward(*trajectory.key, version, trajectory.ancestors)
        return trajectory.reward

    def cut(self, cut: Cut) -> None:
        """Book what an aborted call had made."""
        trajectory = self.trajectories[cut.sample]
        trajectory.response_tokens += cut.tokens
        self._add_token_steps(trajectory, cut.segments)
        trajectory.draft = None
        trajectory.kv_age, trajectory.replica = self._kv_age, cut.replica

    def _add_token_steps(self, trajectory: Trajectory, segments: Segments) -> None:
        if self.system.workload.mismatch is not None or self.system.learning is not None:
            trajectory.token_steps += self.updates.token_steps(segments)

    def ess(self, samples: Sequence[int]) -> float | None:
        """Effective sample size of samples just trained on; None without a law of it."""
        mismatch = self.system.workload.mismatch
        if mismatch is None:
            return None
        return mismatch.ess([self._lag_steps(self.trajectories[sample]) for sample in samples])

    def _lag_steps(self, trajectory: Trajectory) -> float:
        """Optimizer steps between the making of a sample, token by token, and now."""
        return self.updates.steps - trajectory.token_steps / max(1, trajectory.trained_tokens)

    def learn(self, command: Train, now: Ticks) -> ProgressRow | None:
        """What training on some samples does to the model, once the step is complete; None before, or without one."""
        learning = self.system.learning
        if learning is None:
            return None
        self._unlearnt += [self._as_trained(self.trajectories[sample], learning) for sample in command.samples]
        self._own_updates += command.updates or 0
        if not command.last or not self._unlearnt:
            return None
        batch, self._unlearnt = self._unlearnt, []
        updates, self._own_updates = self._own_updates or learning.updates_per_step, 0
        progress = learning.dynamics.trained(batch, updates, learning.epochs)
        return ProgressRow(
            step=command.step,
            now=now,
            samples=len(batch),
            success=progress.success,
            skill=progress.skill,
            information=progress.information,
            ess=progress.ess,
            staleness_factor=progress.staleness_factor,
            gain=progress.gain,
        )

    def release(self, command: Train) -> Sequence[int]:
        """Forget what has been trained on, unless it may be asked for again; those samples."""
        gone = command.releases if command.keeps else command.samples
        for sample in gone:
            del self.trajectories[sample]
        return gone

    def _as_trained(self, trajectory: Trajectory, learning: LearningSetup) -> TrainedSample:
        group = self._groups.setdefault((trajectory.prompt, trajectory.attempt), len(self._groups))
        lag = self._lag_steps(trajectory) * learning.updates_per_step * learning.epochs
        trained = TrainedSample(trajectory.prompt, group, trajectory.reward, lag, trajectory.trained_tokens)
        if not learning.dynamics.distils:
            return trained
        drift, repeats = learning.dynamics.soundness(
            trajectory.prompt, trajectory.attempt, trajectory.member, trajectory.version
        )
        return replace(
            trained, drift_tokens=drift * trajectory.length_tokens, repeats_tokens=repeats * trajectory.length_tokens
        )

    def publishing(self, command: Sync) -> None:
        """The trainer's weights are on their way: the first replica may serve them before the last has them."""
        if not command.test:
            self.updates.published(accepted=True)
        if self.system.learning is not None:
            self.system.learning.dynamics.published(command.version)

    def judged(self, command: Sync, accepted: bool) -> None:
        """The replicas that were to test new weights serve them, or refuse them."""
        if command.test:
            self.updates.published(accepted)

    def room_tokens(self, sample: int) -> int:
        """Tokens that a tool may add: frameworks cut its output, so that the next turn can still begin."""
        trajectory = self.trajectories[sample]
        return self.system.max_model_len - 1 - trajectory.given_tokens - trajectory.response_tokens

    def lengths(self, sample: int) -> tuple[int, int]:
        """(tokens not made by the model, tokens made by it) of a finished sample."""
        trajectory = self.trajectories[sample]
        return trajectory.given_tokens, trajectory.response_tokens

    def _trajectory(self, command: Submit) -> Trajectory:
        trajectory = self.trajectories.get(command.sample)
        if trajectory is None:
            workload = self.system.workload
            prompt, attempt = workload.prompt_at(command.draw)
            attempt += command.recycle
            turns = workload.turn_count(prompt, attempt, command.member) if workload.turns else 1
            trajectory = self.trajectories[command.sample] = (
                Trajectory(prompt, attempt, command.member, turns)
                if command.fork is None
                else self._fork(command, command.fork, turns)
            )
        trajectory.given_tokens = command.context_tokens - trajectory.response_tokens
        return trajectory

    def _fork(self, command: Submit, fork: Fork, turns: int) -> Trajectory:
        parent = self.trajectories[fork.parent]
        child = forked(parent, fork, command.member, turns)
        if self.system.kv_while_waiting != "drop" or not fork.turn:
            child.lineage = shared_context(parent, ("sample", fork.parent), command.context_tokens)
        return child

    def _turn_tokens(self, trajectory: Trajectory, version: int) -> int:
        """Length of the turn under way; what it begins with is a part of it."""
        key, learning, factor = trajectory.key, self.system.learning, 1.0
        first = trajectory.turn == trajectory.first_turn
        if learning is not None:
            if first and not trajectory.accepted_share:
                trajectory.version = version
            factor = learning.dynamics.length_factor(*key, trajectory.version, trajectory.ancestors)
        workload, turn = self.system.workload, trajectory.turn
        if first and trajectory.begins_amid:
            return workload.continued_tokens(key, turn, version, factor, trajectory.begins_amid)
        tokens = workload.response_tokens(*key, turn, version, factor)
        if turn or not trajectory.accepted_share:
            return tokens
        return trajectory.inherited_tokens + max(1, round((1 - trajectory.accepted_share) * tokens))

    def _target(self, tokens: int, allowed_tokens: int, context_tokens: int) -> int:
        if allowed_tokens:
            tokens = min(tokens, allowed_tokens)
        return max(1, min(tokens, self.system.max_model_len - context_tokens))
