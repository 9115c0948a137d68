"""The tokens of a live run: prompts, what engines made of them, and what tools answered.

What new weights accept of a response that old ones made, token by token (SPEC-RL, arXiv 2509.23232).

Token ids as characters, where no tokenizer is read: what a tool gets to see of a turn, and how it answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlsim.core.commands import Submit
from rlsim.core.errors import RlsimError
from rlsim.core.events import Segments
from rlsim.core.hashing import uniform
from rlsim.core.streams import stream_key
from rlsim.live.pool import Served
from rlsim.live.protocols import CallOutput, Experience
from rlsim.live.running import joined
from rlsim.live.sandbox import CalculatorTool
from rlsim.workload.workload import Workload

RESERVED_IDS = 8
"""Ids below are left to special tokens."""


class Text:
    """One trajectory."""

    __slots__ = (
        "context",
        "draft",
        "group",
        "log_probs",
        "made_by_model",
        "number",
        "prompt_tokens",
        "reward",
        "segments",
        "turn_from",
    )

    def __init__(self, number: int, group: int, prompt: Sequence[int]) -> None:
        self.number, self.group = number, group
        self.context = list(prompt)
        """Prompt and response so far."""
        self.prompt_tokens = self.turn_from = len(prompt)
        self.made_by_model: list[bool] = []
        """For each response token, whether the model made it."""
        self.log_probs: list[float] = []
        self.segments: Segments = ()
        self.reward: float | None = None
        self.draft = -1
        """The sample that its first call checks."""

    def take_over(self, parent: Text, under_way: Sequence[int], context_tokens: int, is_scored: bool) -> None:
        """Begin with the first tokens of another one, which is trained on them: here they count as given.

        ``under_way`` are those of its call that runs; ``is_scored``: engines tell log-probabilities.
        """
        self.context = [*parent.context, *under_way][:context_tokens]
        inherited_tokens = len(self.context) - self.prompt_tokens
        self.made_by_model = [False] * inherited_tokens
        self.log_probs = [0.0] * inherited_tokens if is_scored else []
        self.turn_from = len(self.context)

    def begin_with(self, draft: Text, log_probs: Sequence[float], reused: Segments) -> None:
        """Begin with the first tokens of an earlier one, which are this one's own from now on."""
        kept = sum(tokens for _, tokens in reused)
        self.context += draft.context[self.prompt_tokens : self.prompt_tokens + kept]
        self.made_by_model += [True] * kept
        self.log_probs += log_probs[:kept]
        self.segments = reused


@dataclass(frozen=True, slots=True)
class PartialResponse:
    """A sample as far as it has come."""

    context: tuple[int, ...]
    """Token ids of prompt and response."""
    places: tuple[int, ...]
    """In it, of the tokens that the model made."""
    log_probs: tuple[float, ...]
    """Of these; none where engines do not tell."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """Those that the model made."""
        return tuple(self.context[place] for place in self.places)


class Texts:
    """Trajectories by sample, while they live."""

    def __init__(
        self,
        prompt: Callable[[int], Sequence[int]],
        so_far: Callable[[int], tuple[Sequence[int], Sequence[float]]] = lambda sample: ((), ()),
    ) -> None:
        """``prompt(number)`` gives the token ids of a prompt.

        ``so_far(sample)`` those that its call under way has made, and their log-probabilities.
        """
        self._prompt, self.so_far = prompt, so_far
        self._texts: dict[int, Text] = {}
        self._groups: dict[tuple[int, int], int] = {}

    def __getitem__(self, sample: int) -> Text:
        return self._texts[sample]

    def context(self, command: Submit, number: int) -> Sequence[int]:
        """What a call starts from; ``RlsimError`` when that is not what the policy believes."""
        text = self._texts.get(command.sample)
        if text is None:
            group = self._groups.setdefault((command.draw, command.recycle), len(self._groups))
            text = self._texts[command.sample] = Text(number, group, self._prompt(number))
            if command.fork is not None:
                self._fork(text, command.fork.parent, command.context_tokens)
        if not command.made_tokens:
            text.turn_from = len(text.context)
        if len(text.context) != command.context_tokens:
            raise RlsimError(
                f"sample {command.sample}: the policy counts {command.context_tokens} tokens of context, "
                f"the run has {len(text.context)}"
            )
        return tuple(text.context)

    def _fork(self, text: Text, sample: int, context_tokens: int) -> None:
        parent, (tokens, log_probs) = self._texts[sample], self.so_far(sample)
        text.take_over(parent, tokens, context_tokens, bool(parent.log_probs or log_probs))

    def check(self, command: Submit, number: int, context_tokens: int) -> Sequence[int]:
        """What the check of a draft starts from: so many tokens of prompt and draft."""
        self.context(command, number)
        self._texts[command.sample].draft = command.draft
        return tuple(self._texts[command.draft].context[:context_tokens])

    def draft_log_probs(self, sample: int, tokens: int) -> Sequence[float]:
        """Of the first tokens of a sample's draft, under the weights that made them."""
        return self._texts[self._texts[sample].draft].log_probs[:tokens]

    def accept(self, sample: int, log_probs: Sequence[float], reused: Segments) -> None:
        """Let a sample begin with what the weights that checked its draft accept of it."""
        text = self._texts[sample]
        text.begin_with(self._texts[text.draft], log_probs, reused)

    def partial_response(self, sample: int, context_tokens: int) -> PartialResponse:
        """A sample up to a length of its context, what its call under way has made by now included."""
        text, (tokens, log_probs) = self._texts[sample], self.so_far(sample)
        more = context_tokens - len(text.context)
        own = [index for index, is_own in enumerate(text.made_by_model) if is_own]
        before = [text.log_probs[index] for index in own] if text.log_probs else []
        places = (*(text.prompt_tokens + index for index in own), *range(len(text.context), context_tokens))
        return PartialResponse((*text.context, *tokens[:more]), places, (*before, *log_probs[:more]))

    def add(self, sample: int, output: CallOutput) -> None:
        """Append what a call has made."""
        text = self._texts[sample]
        text.context += output.tokens
        text.made_by_model += [True] * len(output.tokens)
        text.log_probs += output.log_probs
        text.segments = joined(text.segments, output.segments)

    def add_given(self, sample: int, tokens: Sequence[int]) -> None:
        """Append what a tool has answered."""
        text = self._texts[sample]
        text.context += tokens
        text.made_by_model += [False] * len(tokens)
        if text.log_probs:
            text.log_probs += [0.0] * len(tokens)

    def turn(self, sample: int) -> Sequence[int]:
        """The tokens of the turn that has ended."""
        text = self._texts[sample]
        return text.context[text.turn_from :]

    def response(self, sample: int) -> Sequence[int]:
        """The tokens behind the prompt."""
        text = self._texts[sample]
        return text.context[text.prompt_tokens :]

    def experience(self, sample: int, reward: float) -> Experience:
        """A finished sample for the trainer."""
        text = self._texts[sample]
        prompt, response = text.context[: text.prompt_tokens], text.context[text.prompt_tokens :]
        return Experience(
            sample=sample,
            group=text.group,
            prompt=prompt,
            response=response,
            made_by_model=text.made_by_model,
            log_probs=text.log_probs,
            segments=text.segments,
            reward=reward,
        )

    def forget(self, sample: int) -> None:
        """It has been trained on."""
        del self._texts[sample]


def random_prompts(workload: Workload, vocabulary: int) -> Callable[[int], Sequence[int]]:
    """Prompts of the workload's lengths, by number."""

    def prompt(number: int) -> Sequence[int]:
        return random_ids(stream_key(workload.seed, "text", number)[0], workload.prompt_tokens(number), vocabulary)

    return prompt


def random_ids(seed: int, count: int, vocabulary: int) -> list[int]:
    """Token ids that stand for a text of which only the length is known: the same for the same seed."""
    drawn = np.random.Generator(np.random.Philox(seed)).integers(min(RESERVED_IDS, vocabulary - 1), vocabulary, count)
    ids: list[int] = drawn.tolist()
    return ids


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A token stands with probability ``min(1, lenience * new / old)`` of its probabilities."""

    seed: int = 0
    lenience: float = 1.0
    """At least 1, which accepts what speculative sampling would (arXiv 2211.17192)."""

    def tokens(self, sample: int, new: Sequence[float], old: Sequence[float]) -> int:
        """How many stand before the first that does not, from log-probabilities under both weights."""
        if len(new) != len(old):
            raise RlsimError(f"the draft of sample {sample} has {len(old)} tokens, the engine scored {len(new)}")
        for at, (now, then) in enumerate(zip(new, old, strict=True)):
            gain = math.log(self.lenience) + now - then
            if gain < 0 and uniform(self.seed, "draft", sample, at) >= math.exp(gain):
                return at
        return len(new)


ALPHABET = "0123456789+-*/%() abcdefghijklmnopqrstuvwxyz:.?"


class Spelling:
    """Every id stands for a character, by its remainder; a character for the lowest id that stands for it."""

    def __init__(self, vocabulary: int) -> None:
        """``vocabulary`` is the number of token ids; a small one has only the first characters."""
        self._letters = ALPHABET[: max(1, vocabulary - RESERVED_IDS)]
        self._first = min(RESERVED_IDS, vocabulary - 1)

    def read(self, ids: Sequence[int]) -> str:
        """The characters of token ids."""
        return "".join(self._letters[(number - self._first) % len(self._letters)] for number in ids)

    def write(self, text: str) -> Sequence[int]:
        """The token ids of characters; those that there are not are left out."""
        return [self._first + self._letters.index(letter) for letter in text.lower() if letter in self._letters]

    def fault(self, served: Served[Sequence[int]]) -> Sequence[int]:
        """What a trajectory is told of a tool that has not answered."""
        return self.write(f"error: {served.outcome}")

    def calculator(self) -> CalculatorTool:
        """A calculator for trajectories of such ids."""
        return CalculatorTool(self.read, self.write)
