"""What live execution is made of: engines that generate, a trainer, tools and rewards; one small protocol each.

An engine is one replica. It is told tokens and gives tokens back with the weights versions that made them, by its own
answer. Times are those of the run's clock, in picoseconds since its start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from rlsim.core.commands import CallTool, Score, Train
from rlsim.core.errors import RlsimError
from rlsim.core.events import Segments
from rlsim.core.log import WindowRow
from rlsim.core.ticks import Ticks
from rlsim.engine.requests import Request


class EngineLostError(RlsimError):
    """An engine is gone: its process died, its connection broke. It takes no further call."""


class TrainerLostError(RlsimError):
    """The trainer is gone."""


@dataclass(frozen=True, slots=True)
class Call:
    """One generate call as an engine gets it."""

    sample: int
    context: Sequence[int]
    """Token ids: prompt, earlier turns, tool outputs, and what aborted calls of this turn have made."""
    max_tokens: int
    """Tokens it may make."""
    ignore_eos: bool
    """Whether it makes exactly ``max_tokens``: the workload decides lengths, not the model."""
    priority: int
    request: Request
    """The same call as the simulated engine takes it; of it, real engines need the marks alone."""
    draft_tokens: int | None = None
    """Tokens at the end of ``context`` that are a draft: the call is its check. None: it checks nothing."""


@dataclass(slots=True)
class CallOutput:
    """What a call has made so far; complete when ``generate`` returns."""

    tokens: list[int] = field(default_factory=list)
    """Token ids."""
    log_probs: list[float] = field(default_factory=list)
    """Of each token, under the weights that made it; empty where an engine does not tell."""
    segments: Segments = ()
    """(weights version, tokens) of each maximal run, by the engine's own answer."""
    reason: Literal["", "stop", "length", "abort"] = ""
    """End of sequence, as many tokens as allowed, or cut; empty while it runs."""
    first_token_at: Ticks = -1
    undelivered_tokens: int = 0
    """Tokens the engine sampled after it was told to stop, which nobody got."""
    draft_log_probs: list[float] = field(default_factory=list)
    """Of the tokens of a draft, under the weights that check it; complete when ``generate`` returns."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A published state of the model."""

    version: int
    file: Path | None
    """Safetensors under Hugging Face names; None where no model is trained."""


@dataclass(frozen=True, slots=True)
class Record:
    """What an engine noted of its steps."""

    windows: Sequence[WindowRow] = ()
    """Engine steps in order; none where an engine does not tell."""
    sampled_tokens: int | None = None
    """Response tokens by its own count; None where it keeps none."""
    preemptions: int = 0
    late_steps: int = 0
    """Of a paced engine: steps that took longer than the law they stand for."""
    worst_lateness_seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)
    """What else a scheduler counts, by its name in the run's log; empty where an engine does not tell."""


class Engine(Protocol):
    """One replica."""

    async def start(self) -> None:
        """Get ready to serve, with version 0."""
        ...

    async def generate(self, call: Call, output: CallOutput) -> None:
        """Run a call to its end, filling ``output`` as tokens come; ``EngineLostError`` when the engine is gone.

        What had arrived before it was lost is in ``output``.
        """
        ...

    async def abort(self, samples: Sequence[int]) -> None:
        """Make the calls of these samples end with reason ``abort``, unless they have ended."""
        ...

    async def pause(self) -> None:
        """Let no further step begin; calls stay where they are."""
        ...

    async def resume(self) -> None:
        """Go on."""
        ...

    async def load(self, weights: Weights, reset: bool) -> int:
        """Take new weights in place, while paused; the version that the engine says it serves now.

        ``reset`` drops all KV: calls under way are prefilled again, by the new weights, when it resumes.
        """
        ...

    async def sleep(self) -> None:
        """Give the device's memory to the trainer, while paused; KV is lost."""
        ...

    async def wake(self) -> None:
        """Take it back."""
        ...

    async def close(self) -> Record:
        """Stop, calls under way ending with reason ``abort``; what the engine noted of the whole run.

        Of an engine that was lost, what can still be read.
        """
        ...


@runtime_checkable
class TellsSteps(Protocol):
    """An engine that knows when its steps end, however late others hear of it."""

    def last_step_end(self) -> Ticks:
        """When its last step ended; -1 before the first."""
        ...


Marked = Callable[[Request, int], None]
"""Told of a call that has made so many tokens, a mark of its, and goes on."""


@runtime_checkable
class TellsMarks(Protocol):
    """An engine that tells when a call comes to one of its marks."""

    def set_marked(self, marked: Marked) -> None:
        """``marked(request, output tokens)`` is called at each, once ``output`` has these tokens."""
        ...


@runtime_checkable
class TakesCallsPaused(Protocol):
    """An engine that takes calls while it is paused, and knows when it has them."""

    async def holds(self, samples: Sequence[int]) -> None:
        """Return once the engine has the calls of all these samples, or they have ended."""
        ...


@dataclass(frozen=True, slots=True)
class Experience:
    """One finished sample, as the trainer gets it."""

    sample: int
    group: int
    prompt: Sequence[int]
    """Token ids."""
    response: Sequence[int]
    """Token ids of the response, tool outputs included."""
    made_by_model: Sequence[bool]
    """For each of them, whether the model made it."""
    log_probs: Sequence[float]
    """For each of them, under the weights that made it; 0 for tool outputs, empty where engines do not tell."""
    segments: Segments
    """Of the tokens that the model made."""
    reward: float


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a training command came to."""

    phases: Sequence[tuple[str, float]]
    """(phase, seconds) in order, as the simulated trainer names them."""
    ess: float | None = None
    """Effective sample size of the importance weights, as a share."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Loss, reward, clipped share and the like, for the run's own record."""


class LiveTrainer(Protocol):
    """The trainer."""

    async def start(self) -> None:
        """Get ready to train."""
        ...

    async def train(self, command: Train, batch: Sequence[Experience]) -> Learnt:
        """Train on a batch, or on the part of it that has come; ``TrainerLostError`` when the trainer is gone."""
        ...

    async def publish(self, version: int) -> Weights:
        """Bring the weights to where engines can take them; ``TrainerLostError`` when the trainer is gone."""
        ...

    async def close(self) -> None:
        """Stop."""
        ...


class Judge(Protocol):
    """A model that says how likely it finds what others have made."""

    async def start(self) -> None:
        """Get ready."""
        ...

    async def log_probs(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Of every token but the first of each sequence of token ids."""
        ...

    async def close(self) -> None:
        """Stop."""
        ...


class Task(Protocol):
    """Prompts with verifiable rewards; lengths are the model's own."""

    @property
    def eos(self) -> int:
        """Token id that ends a response."""
        ...

    def prompt(self, number: int) -> Sequence[int]:
        """Token ids of a prompt; the same at every question."""
        ...

    def reward(self, number: int, response: Sequence[int]) -> float:
        """In [0, 1]."""
        ...


class Tools(Protocol):
    """What runs between two turns of a trajectory."""

    async def call(self, command: CallTool, turn: Sequence[int]) -> Sequence[int]:
        """The tokens that a tool answers to those of a turn; whatever it raises becomes the trajectory's answer."""
        ...


class Rewards(Protocol):
    """What scores finished samples."""

    async def score(self, command: Score, response: Sequence[int]) -> float | None:
        """The reward; None where it only takes its time and somebody else knows."""
        ...


Now = Callable[[], Ticks]
"""The run's clock."""
