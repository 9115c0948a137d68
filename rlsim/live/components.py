"""Who carries out the commands of a live run: engines, trainer, tools, rewards, and the tokens between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlsim.core.commands import CallTool, Score, Submit
from rlsim.core.errors import RlsimError
from rlsim.core.events import Noticed, Segments
from rlsim.core.ticks import Ticks
from rlsim.engine.requests import Request
from rlsim.executor.trajectories import Calls
from rlsim.live.pool import Served
from rlsim.live.protocols import Call, Engine, Experience, Judge, Learnt, LiveTrainer, Rewards, Tools
from rlsim.live.running import Running
from rlsim.live.signals import Readings
from rlsim.live.texts import Acceptance, PartialResponse, Texts

NO_REWARD = 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take at least that nothing real does: all 0 where they are real."""

    sync_ticks: Ticks = 0
    to_training_ticks: Ticks = 0
    to_rollout_ticks: Ticks = 0
    pull_time: Callable[[int], Ticks] = lambda replica: 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on user code: real seconds of an attempt (None: none), and how often it is tried again."""

    tool_timeout_seconds: float | None = None
    tool_retries: int = 0
    reward_timeout_seconds: float | None = None
    reward_retries: int = 0


@dataclass(frozen=True, slots=True)
class LiveComponents:
    """Everything that is real in a live run."""

    engines: Sequence[Engine]
    trainer: LiveTrainer
    calls: Calls
    """Trajectories by sample; it reads ``versions``."""
    versions: list[int]
    """Weights version that each replica serves, by its own answer."""
    tools: Tools
    rewards: Rewards
    texts: Texts | None = None
    """None where nobody reads tokens."""
    ignore_eos: bool = True
    """Whether the workload decides lengths, not the model."""
    pace: Pace = Pace()
    limits: Limits = Limits()
    tool_fault: Callable[[Served[Sequence[int]]], Sequence[int]] = lambda served: range(1)
    """What a trajectory is told where a tool has not answered."""
    score_now: Callable[[int, Sequence[int]], float] | None = None
    """The reward of (prompt, response) where no reward service is asked; None: nobody reads it."""
    acceptance: Acceptance = field(default_factory=Acceptance)
    """Of drafts, where no learning model says how much of them stands."""
    readings: Readings = field(default_factory=Readings)
    """Of responses under way, where no learning model says what is read."""
    judge: Judge | None = None
    """The teacher, where there is one, to be asked of responses under way."""
    learnt: list[tuple[int, Learnt]] = field(default_factory=list)
    """What came of each training command, by step."""

    @property
    def learning_is_modelled(self) -> bool:
        """Whether a model says what samples earn, what stands of drafts and what signals show, not their tokens."""
        return self.calls.system.learning is not None

    @property
    def trainers(self) -> Sequence[LiveTrainer | Judge]:
        """Who is started and closed beside the engines."""
        return [self.trainer] if self.judge is None else [self.trainer, self.judge]

    async def close(self) -> list[Exception]:
        """Close the trainer, and its teacher; what went wrong in it."""
        results = await asyncio.gather(*(one.close() for one in self.trainers), return_exceptions=True)
        return [fault for fault in results if isinstance(fault, Exception)]

    def call(self, command: Submit, request: Request) -> Call:
        """The engine's call for a submitted one."""
        most = request.target_tokens if self.ignore_eos else request.max_tokens
        context: Sequence[int] = ()
        draft_tokens = None
        if self.texts is not None and command.draft < 0:
            context = self.texts.context(command, request.prompt)
        elif self.texts is not None:
            context = self.texts.check(command, request.prompt, request.context_tokens)
            draft_tokens = len(context) - command.context_tokens
        return Call(command.sample, context, most, self.ignore_eos, command.priority, request, draft_tokens)

    def took(self, running: Running) -> None:
        """Keep what a call has made; the token that ends a check is nobody's."""
        if self.texts is not None and running.call.draft_tokens is None:
            self.texts.add(running.call.sample, running.output)

    def accepted_tokens(self, running: Running) -> int | None:
        """Of the draft that a call has checked; None where it has checked none that anybody can read."""
        draft_tokens, sample = running.call.draft_tokens, running.call.sample
        if self.texts is None or draft_tokens is None or self.learning_is_modelled:
            return None
        old = self.texts.draft_log_probs(sample, draft_tokens)
        return self.acceptance.tokens(sample, running.output.draft_log_probs, old)

    def reuse(self, running: Running, reused: Segments) -> None:
        """Let a sample begin with what stands of its draft."""
        if self.texts is not None and running.call.draft_tokens is not None:
            self.texts.accept(running.call.sample, running.output.draft_log_probs, reused)

    def partial_response(self, sample: int, context_tokens: int) -> PartialResponse | None:
        """A sample up to a length of its context; None where nobody reads tokens, or they mean nothing."""
        if self.texts is None or self.learning_is_modelled:
            return None
        return self.texts.partial_response(sample, context_tokens)

    def read(self, signal: str, noticed: Noticed, response: PartialResponse) -> Noticed:
        """What a signal shows of a call under way, at the mark that it has come to."""
        return noticed._replace(value=self.readings.read(signal, noticed.sample, noticed.tokens, response))

    async def judged(self, noticed: Noticed, response: PartialResponse) -> Noticed:
        """How far the teacher agrees with a call under way."""
        if self.judge is None:
            raise RlsimError("a part watches teacher-overlap, and there is no teacher")
        (said,) = await self.judge.log_probs([response.context])
        judged = [said[place - 1] for place in response.places]
        return noticed._replace(value=self.readings.overlap(noticed.sample, noticed.tokens, response, judged))

    def experiences(self, samples: Sequence[int]) -> list[Experience]:
        """Finished samples for the trainer; none where nobody reads tokens."""
        if self.texts is None:
            return []
        return [self.texts.experience(sample, self._reward(sample)) for sample in samples]

    def _reward(self, sample: int) -> float:
        assert self.texts is not None
        text = self.texts[sample]
        if text.reward is None:
            text.reward = NO_REWARD
            if self.score_now is not None:
                text.reward = self.score_now(text.number, self.texts.response(sample))
        return text.reward

    def forget(self, sample: int) -> None:
        """A sample has been trained on."""
        if self.texts is not None:
            self.texts.forget(sample)

    async def tool(self, command: CallTool) -> Sequence[int]:
        """What the tool answers."""
        return await self.tools.call(command, () if self.texts is None else self.texts.turn(command.sample))

    def tool_said(self, command: CallTool, served: Served[Sequence[int]]) -> Sequence[int]:
        """What a trajectory is told, whatever became of the tool."""
        return self.tool_fault(served) if served.value is None else served.value

    def add_given(self, sample: int, tokens: Sequence[int]) -> None:
        """Append a tool's answer to its trajectory."""
        if self.texts is not None:
            self.texts.add_given(sample, tokens)

    async def score(self, command: Score) -> float | None:
        """Have a finished sample scored; None where nobody reads tokens or the service tells no reward."""
        return await self.rewards.score(command, () if self.texts is None else self.texts.response(command.sample))

    def rewarded(self, sample: int, score: float | None, earned: float | None) -> float | None:
        """The reward of a finished sample: what its scoring told, or what its tokens are worth, or its ``earned``.

        ``earned`` is the learning model's, of a sample whose tokens mean nothing; None: there is none.
        """
        if self.texts is None:
            return earned if score is None else score
        text = self.texts[sample]
        text.reward = score if score is not None else earned
        return self._reward(sample)
