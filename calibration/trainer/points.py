"""What of the trainer is timed: one pass over one micro-batch, an optimizer update, or a whole step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rlsim.core.errors import ParameterError
from rlsim.costs.architecture import Architecture
from rlsim.costs.trainer import Packing

Work = Literal["logprob", "train", "update", "step"]
"""Forward alone with log-probabilities; forward and backward; optimizer update; all of them, as in a training step."""

UPDATES = 3
"""Updates in a pass: one coefficient rests on them alone, and they are short."""
LEAST_TOKENS = 256
"""Fewest tokens of the largest micro-batch, and of the longest sample that a model takes."""


@dataclass(frozen=True, slots=True)
class TrainerPoint:
    """One timed piece of work on every data-parallel rank."""

    work: Work
    lengths: tuple[int, ...] = ()
    """Tokens of each sample of a rank."""
    packing: Packing = "packed"
    micro_batches: int = 1
    """Into which the samples are cut; more than one only in a ``step``."""

    @property
    def computed(self) -> tuple[int, ...]:
        """Tokens of each sample, padding included."""
        return self.lengths if self.packing == "packed" else (max(self.lengths),) * len(self.lengths)

    @property
    def tokens(self) -> int:
        """Tokens that are computed, padding included."""
        return sum(self.computed) if self.lengths else 0

    @property
    def pairs(self) -> float:
        """(query, key) pairs that causal attention computes."""
        return sum(length * (length + 1) / 2 for length in self.computed) if self.lengths else 0.0

    def flops(self, architecture: Architecture) -> float:
        """Tokens of one forward pass."""
        return architecture.token_flops() * self.tokens + architecture.pair_flops() * self.pairs

    def __str__(self) -> str:
        if not self.lengths:
            return self.work
        shape = f"{len(self.lengths)} samples, {self.tokens} tokens {self.packing}, longest {max(self.lengths)}"
        return f"{self.work}: {shape}" + (f", {self.micro_batches} micro-batches" if self.work == "step" else "")


@dataclass(frozen=True, slots=True)
class TrainerDesign:
    """The points to fit and, of other shapes, the ones to judge the fit by."""

    fitted: tuple[TrainerPoint, ...]
    held_out: tuple[TrainerPoint, ...]

    @property
    def points(self) -> tuple[TrainerPoint, ...]:
        """All of them, in the order of a pass before it is shuffled."""
        return self.fitted + self.held_out


def design(most_tokens: int, longest: int) -> TrainerDesign:
    """Micro-batches of up to ``most_tokens`` tokens and samples of up to ``longest``; every third shape is held out.

    The held-out shapes are spread over sizes and packings, and a whole training step of mixed lengths is always
    among them. Micro-batches shrink by halves, so that the overhead of one can be told from its tokens. Raises
    ``ParameterError`` at ``most_tokens`` or ``model`` where there is no room for shapes.
    """
    if most_tokens < LEAST_TOKENS:
        raise ParameterError("most_tokens", most_tokens, f"at least {LEAST_TOKENS}")
    if longest < LEAST_TOKENS:
        raise ParameterError("model", f"{longest} positions", f"at least {LEAST_TOKENS}")
    fitted, held_out = [TrainerPoint("update")] * UPDATES, [_step(most_tokens, longest)]
    for number, (lengths, packing) in enumerate(dict.fromkeys(_shapes(most_tokens, longest))):
        for work, third in _HELD_OUT.items():
            to = held_out if number % 3 == third else fitted
            to.append(TrainerPoint(work, lengths, packing))
    return TrainerDesign(tuple(fitted), tuple(held_out))


_HELD_OUT: dict[Work, int] = {"logprob": 1, "train": 2}
"""Which of every three shapes is held out of either pass: not the same, so that every shape is fitted in one."""


def _shapes(most_tokens: int, longest: int) -> Iterator[tuple[tuple[int, ...], Packing]]:
    """(sample lengths, packing): one long sample, four equal ones, ragged ones packed or padded; then half of it.

    The order turns with every halving, so that every third shape is of every kind.
    """
    for halvings in range(5):
        tokens = most_tokens >> halvings
        equal = dict.fromkeys((min(tokens, longest), min(tokens // 4, longest)))
        kinds: list[tuple[tuple[int, ...], Packing]] = [((n,) * (tokens // n), "packed") for n in equal]
        if halvings < 3:
            parts = (0.4, 0.2, 0.1, 0.1)
            kinds.append(
                (tuple(min(longest, round(tokens * part)) for part in parts), "packed" if halvings % 2 else "padded")
            )
        turn = halvings % len(kinds)
        yield from kinds[turn:] + kinds[:turn]


def _step(most_tokens: int, longest: int) -> TrainerPoint:
    """Micro-batches of equal tokens, each of one long and several short samples."""
    half = most_tokens // 2
    one = tuple(min(longest, part) for part in (half // 2, half // 4, half // 8, half // 8))
    return TrainerPoint("step", one * 3, "packed", micro_batches=3)
