"""What a run leaves behind: one log, written by simulation and live alike, from which everything else is derived."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rlsim.core.commands import Command
from rlsim.core.events import Event
from rlsim.core.ticks import Ticks


class Decision(NamedTuple):
    """One event as the controller took it, and what it answered."""

    now: Ticks
    event: Event
    commands: tuple[Command, ...]


class WindowRow(NamedTuple):
    """A run of engine steps of one replica with an unchanging batch."""

    replica: int
    start: Ticks
    end: Ticks
    steps: int
    decodes: int
    """In each step, over all ranks."""
    chunks: int
    prefill_tokens: int
    kv_tokens: int
    """At the start, over all ranks."""


class SpanRow(NamedTuple):
    """An interval in which the trainer (``who`` = -1) or a replica did one thing that is not an engine step."""

    who: int
    what: str
    start: Ticks
    end: Ticks
    step: int


ENGINE_COUNTS = ("resets", "recomputed_tokens", "prompt_tokens", "cached_tokens", "blocked_steps")
"""What the scheduler of a rank counts and the log of a run sums, beside preemptions."""


class ServiceRow(NamedTuple):
    """A tool call or a scoring: when it was asked for, when a worker took it, when it was done."""

    sample: int
    what: str
    requested: Ticks
    start: Ticks
    end: Ticks


class GateRow(NamedTuple):
    """From ``now`` on admission is held by ``gate`` (empty: it is not)."""

    now: Ticks
    gate: str


class IterationRow(NamedTuple):
    """The end of a training iteration, publication included."""

    step: int
    end: Ticks
    version: int


class ProgressRow(NamedTuple):
    """What a training step did to the model; hidden from the policy, and an estimate of a statistical model."""

    step: int
    now: Ticks
    samples: int
    success: float
    """Expected success of a fresh sample over all prompts, after the step."""
    skill: float
    information: float
    ess: float
    staleness_factor: float
    gain: float


class OddsRow(NamedTuple):
    """How likely a fresh sample of its prompt was to succeed when a sample was submitted; hidden from the policy."""

    sample: int
    success: float
    """Under the newest weights that the policy knew to be published then."""


class FinalRow(NamedTuple):
    """What became of a sample by the end of the run."""

    sample: int
    outcome: str
    tokens: int


@dataclass(slots=True)
class RunLog:
    """Rows in the order in which they were written; no I/O."""

    decisions: list[Decision] = field(default_factory=list)
    last_commands_idle: bool = False
    """Whether the run ended with its last decision, whose commands nobody carried out."""
    windows: list[WindowRow] = field(default_factory=list)
    spans: list[SpanRow] = field(default_factory=list)
    services: list[ServiceRow] = field(default_factory=list)
    gates: list[GateRow] = field(default_factory=list)
    iterations: list[IterationRow] = field(default_factory=list)
    progress: list[ProgressRow] = field(default_factory=list)
    """Empty without a learning model."""
    odds: list[OddsRow] = field(default_factory=list)
    """Of every sample that was begun; empty without a learning model."""
    final: list[FinalRow] = field(default_factory=list)
    generated_tokens: int = 0
    """Response tokens that the engines sampled, by their own count."""
    undelivered_tokens: int = 0
    """Of these, what a live engine sampled after it was told to stop, or took with it when it was lost."""
    check_tokens: int = 0
    """Of these, the token that ends each check of a draft, which nobody keeps."""
    prefill_tokens: int = 0
    preemptions: int = 0
    """For want of KV blocks."""
    resets: int = 0
    """Requests that weight updates made begin anew."""
    recomputed_tokens: int = 0
    """Of the prefilled tokens, those that had been computed before."""
    prompt_tokens: int = 0
    """Tokens that calls brought to the engines."""
    cached_tokens: int = 0
    """Of these, those that a prefix cache held."""
    blocked_steps: int = 0
    """Steps of ranks in which a request waited for KV blocks."""
    rank_steps: int = 0
    engine_steps: int = 0
    events: int = 0
    """Events that the executor processed."""
    end: Ticks = 0
    ended_by: str = ""
    """The keys of the scenario that ended the run (``run.steps``, ...); empty where something stopped it."""
