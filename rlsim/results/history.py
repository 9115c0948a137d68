"""The decisions of a run, read once: the lives of its samples, their segments, its training commands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rlsim.core.commands import Command, Score, Submit, Train
from rlsim.core.errors import ParameterError
from rlsim.core.events import Aborted, Cut, Event, Finished, ReplicaLost, Scored, Segments, Synced, ToolReturned
from rlsim.core.log import RunLog
from rlsim.core.ticks import Ticks

NEVER: Ticks = -1
"""A tick that did not come."""


class Life:
    """One sample, as its commands and replies tell it."""

    __slots__ = (
        "calls",
        "context_tokens",
        "cut",
        "draw",
        "ended_tokens",
        "finish_reason",
        "finished",
        "first_token",
        "group",
        "inherited_tokens",
        "member",
        "prompt_tokens",
        "replica",
        "reused_tokens",
        "reward",
        "sample",
        "segments",
        "submitted",
        "tool_since",
        "turns",
        "version_first",
        "version_last",
        "version_tokens",
    )

    def __init__(self, command: Submit, group: int, now: Ticks) -> None:
        self.sample, self.group, self.draw, self.member = command.sample, group, command.draw, command.member
        fork = command.fork
        self.inherited_tokens = 0 if fork is None else fork.inherited_tokens
        """Response tokens that it began with: its parent's, or accepted ones of a draft."""
        self.prompt_tokens = command.context_tokens - self.inherited_tokens
        """With the tool outputs that a parent had read."""
        self.submitted = now
        self.first_token = self.finished = self.tool_since = NEVER
        self.cut = NEVER
        """When its last call was cut, unless another followed."""
        self.finish_reason = ""
        self.version_first = self.version_last = -1
        self.calls = self.turns = self.segments = 0
        self.ended_tokens = 0
        """Response tokens of calls that have ended."""
        self.version_tokens = self.reused_tokens = 0
        """Sum over those tokens, and those of a draft, of the version that made or accepted them; the draft's."""
        self.context_tokens = 0
        """Of the last call, without what it makes."""
        self.replica = -1
        self.reward = math.nan
        """What the policy was told; NaN where it was not."""

    @property
    def tool_tokens(self) -> int:
        """Tokens that tools appended and a later call read."""
        return max(0, self.context_tokens - self.prompt_tokens - self.inherited_tokens - self.ended_tokens)


@dataclass(frozen=True, slots=True)
class Training:
    """One ``Train`` command and the version that the replicas served when it was given."""

    step: int
    now: Ticks
    version: int
    samples: tuple[int, ...]
    updates: int | None
    """Optimizer updates made on them; None for those of the step."""


@dataclass(slots=True)
class History:
    """What the decisions say; samples in order of their numbers once read."""

    lives: dict[int, Life] = field(default_factory=dict)
    segments: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(sample, number within the sample, replica, version, tokens)."""
    trainings: list[Training] = field(default_factory=list)
    call_starts: list[Ticks] = field(default_factory=list)
    call_ends: list[Ticks] = field(default_factory=list)
    tool_waits: list[tuple[int, Ticks, Ticks]] = field(default_factory=list)
    """(replica that made the turn, asked, returned); the end of the run for calls under way."""
    running: dict[int, int] = field(default_factory=dict)
    """Calls still under way at the end of the run, by replica."""


def read_history(log: RunLog) -> History:
    """One pass over the decisions; ``ParameterError`` when the run did not keep them."""
    if log.final and not log.decisions:
        raise ParameterError("log.decisions", 0, "those of the whole run: tables and metrics are derived from them")
    reader = _Reader()
    last = len(log.decisions) - 1 if log.last_commands_idle else -1
    for number, (now, event, commands) in enumerate(log.decisions):
        reader.take_event(now, event)
        if number != last:
            reader.take_commands(now, commands)
    return reader.closed(log.end)


class _Reader:
    def __init__(self) -> None:
        self.history = History()
        self._groups: dict[tuple[int, int], int] = {}
        self._version = 0
        self._handlers: dict[type, Any] = {
            Finished: self._finished,
            Aborted: self._cut,
            ReplicaLost: self._cut,
            ToolReturned: self._tool_returned,
            Scored: self._scored,
            Synced: self._synced,
        }

    def take_event(self, now: Ticks, event: Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(now, event)

    def take_commands(self, now: Ticks, commands: Iterable[Command]) -> None:
        for command in commands:
            if type(command) is Submit:
                self._submit(now, command)
            elif type(command) is Score:
                self._is_over([command.sample])
            elif type(command) is Train:
                self._is_over(command.samples)
                training = Training(command.step, now, self._version, command.samples, command.updates)
                self.history.trainings.append(training)

    def closed(self, end: Ticks) -> History:
        history = self.history
        history.lives = dict(sorted(history.lives.items()))
        history.segments.sort()
        waiting = [life for life in history.lives.values() if life.tool_since != NEVER]
        history.tool_waits += [(life.replica, life.tool_since, end) for life in waiting]
        return history

    def _is_over(self, samples: Iterable[int]) -> None:
        """What was cut last is all there will be of a response that is scored or trained on."""
        for sample in samples:
            life = self.history.lives[sample]
            if life.cut != NEVER:
                life.finished, life.finish_reason = life.cut, "cut"

    def _submit(self, now: Ticks, command: Submit) -> None:
        history = self.history
        life = history.lives.get(command.sample)
        if life is None:
            group = self._groups.setdefault((command.draw, command.recycle), len(self._groups))
            life = history.lives[command.sample] = Life(command, group, now)
        life.calls += 1
        life.cut = NEVER
        life.turns = command.turn + 1
        life.replica, life.context_tokens = command.replica, command.context_tokens
        history.call_starts.append(now)
        history.running[command.replica] = history.running.get(command.replica, 0) + 1

    def _finished(self, now: Ticks, event: Finished) -> None:
        life = self.history.lives[event.sample]
        self._first_token(event)
        self._call_ended(now, life, event.replica, event.segments)
        for version, tokens in event.reused:
            life.version_first = life.version_last = version
            life.version_tokens += version * tokens
            life.inherited_tokens += tokens
            life.reused_tokens += tokens
            life.context_tokens += tokens
        if event.reason == "tool":
            life.tool_since = now
        else:
            life.finished, life.finish_reason = now, event.reason

    def _cut(self, now: Ticks, event: Aborted | ReplicaLost) -> None:
        for cut in event.cuts:
            self._first_token(cut)
            life = self.history.lives[cut.sample]
            life.cut = now
            self._call_ended(now, life, cut.replica, cut.segments)

    def _first_token(self, ended: Finished | Cut) -> None:
        life = self.history.lives[ended.sample]
        if not life.ended_tokens:
            life.first_token = ended.first_token_at

    def _call_ended(self, now: Ticks, life: Life, replica: int, segments: Segments) -> None:
        history = self.history
        history.call_ends.append(now)
        history.running[replica] -= 1
        for version, tokens in segments:
            if life.version_first < 0:
                life.version_first = version
            life.version_last = version
            life.version_tokens += version * tokens
            life.ended_tokens += tokens
            history.segments.append((life.sample, life.segments, replica, version, tokens))
            life.segments += 1
        life.context_tokens += sum(tokens for _, tokens in segments)

    def _tool_returned(self, now: Ticks, event: ToolReturned) -> None:
        life = self.history.lives[event.sample]
        self.history.tool_waits.append((life.replica, life.tool_since, now))
        life.tool_since = NEVER

    def _scored(self, now: Ticks, event: Scored) -> None:
        if event.reward is not None:
            self.history.lives[event.sample].reward = event.reward

    def _synced(self, now: Ticks, event: Synced) -> None:
        if event.accepted:
            self._version = event.version
