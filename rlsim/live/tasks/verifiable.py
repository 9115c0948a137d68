"""A task by its rule: numbered prompts, and rewards that compare a response with the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rlsim.core.hashing import hashed
from rlsim.live.tasks.rules import Draw, Rule
from rlsim.live.tasks.vocabulary import BOS, EOS, Vocabulary


@dataclass(frozen=True, slots=True)
class Verifiable:
    """A prompt is a pure function of seed and number, and a reward of prompt and response."""

    rule: Rule
    seed: int = 0
    partial_credit: bool = True
    """Whether a wrong response earns the share of its tokens that are right, in place of nothing."""

    @property
    def eos(self) -> int:
        """Token id that ends a response."""
        return EOS

    @property
    def vocabulary(self) -> Vocabulary:
        """Words of the token ids."""
        return Vocabulary(self.rule.words)

    @property
    def most_response_tokens(self) -> int:
        """Tokens of the longest right response, its end included."""
        return self.rule.answer_words + 1

    def prompt(self, number: int) -> Sequence[int]:
        """Token ids of a prompt, the same at every question."""
        question, _ = self.rule.ask(self._draw(number))
        return (BOS, *self.vocabulary.ids(question))

    def prompt_tokens(self, number: int) -> int:
        """How long a prompt is."""
        return len(self.prompt(number))

    def answer(self, number: int) -> Sequence[int]:
        """Token ids of the one right response, its end included."""
        _, answer = self.rule.ask(self._draw(number))
        return (*self.vocabulary.ids(answer), EOS)

    def reward(self, number: int, response: Sequence[int]) -> float:
        """1 for the answer and its end; else nothing, or the share of places that are right.

        The share is of the longer of answer and response. What follows the first end of sequence does not count.
        """
        answer, tokens = tuple(self.answer(number)), tuple(response)
        tokens = tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
        if tokens == answer or not self.partial_credit:
            return float(tokens == answer)
        right = sum(one == other for one, other in zip(answer, tokens, strict=False))
        return right / max(len(answer), len(tokens))

    def _draw(self, number: int) -> Draw:
        return partial(_drawn, self.seed, number)


def _drawn(seed: int, number: int, index: int, count: int) -> int:
    return hashed("task", seed, number, index) % count
