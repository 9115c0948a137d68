"""Which points to measure: a geometric grid, and the candidates that would tighten the fit most.

A point is possible when the engine can hold it in one step: sequences, tokens, the longest sequence and KV blocks. Of
the possible ones some are never fitted (*checks*): points between the grid's, and every mixed step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibration.measure.points import StepPoint
from rlsim.core.errors import ParameterError
from rlsim.costs.fields import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

GROWTH_TOKENS = 32
"""Tokens a decode may grow by while it settles and is timed."""
RIDGE = 1e-6
"""Information on every coefficient before anything is measured, in units of one exact measurement."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What one step of the engine can hold."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    kv_blocks: int

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "kv_blocks"):
            count(name, getattr(self, name))
        if self.max_model_len <= 2 * GROWTH_TOKENS:
            raise ParameterError("max_model_len", self.max_model_len, f"more than {2 * GROWTH_TOKENS} tokens")

    def possible(self, point: StepPoint) -> bool:
        """Whether the engine can be put into the point and stay there while it is timed."""
        sequences = point.decodes + point.chunks
        tokens = point.decodes + point.chunks * point.tokens
        decode_blocks = -(-(point.context + GROWTH_TOKENS) // self.block_size)
        chunk_blocks = -(-(point.cached + point.tokens + 1) // self.block_size)
        return (
            1 <= sequences <= self.max_num_seqs
            and tokens <= self.max_num_batched_tokens
            and (not point.decodes or point.context + GROWTH_TOKENS <= self.max_model_len)
            and (not point.chunks or point.cached + point.tokens < self.max_model_len)
            and point.decodes * decode_blocks + point.chunks * chunk_blocks <= self.kv_blocks
        )


@dataclass(frozen=True, slots=True)
class StepDesign:
    """The possible points of an engine, by what they are for."""

    initial: tuple[StepPoint, ...]
    candidates: tuple[StepPoint, ...]
    """May be asked for again or anew, the initial ones included."""
    checks: tuple[StepPoint, ...]
    """Never fitted."""

    @property
    def domain(self) -> tuple[StepPoint, ...]:
        """All of it."""
        return (*self.candidates, *self.checks)


def make_design(limits: StepLimits) -> StepDesign:
    """Decodes over batch x context and prefill over tokens, by fours; between them by twos."""
    coarse = [*_decodes(limits, 4), *_prefills(limits, 4)]
    fine = sorted({*_decodes(limits, 2), *_prefills(limits, 2)} - set(coarse))
    initial = _possible(limits, coarse)
    if not initial:
        raise ParameterError("max_num_seqs", limits, "an engine that can hold at least one sequence")
    between = _possible(limits, fine)
    mixed = [
        StepPoint(decodes=batch, context=context, chunks=chunks, tokens=tokens)
        for batch in _geometric(4, limits.max_num_seqs, 8)
        for context, chunks, tokens in ((256, 1, 64), (128, 2, 256), (512, 1, limits.max_num_batched_tokens // 2))
    ]
    checks = between[1::6] + _possible(limits, mixed)
    return StepDesign(initial, tuple(sorted({*initial, *between} - set(checks))), checks)


def choose(
    candidates: Sequence[StepPoint],
    rows: NDArray[np.float64],
    domain: NDArray[np.float64],
    information: NDArray[np.float64],
    seconds: Sequence[float],
    budget_seconds: float,
) -> list[StepPoint]:
    """Candidates that lower the mean variance of the law over the domain most for their time, until the budget is full.

    ``rows`` are the candidates' regressors for relative errors (regressors / predicted seconds), ``domain`` the same
    of all steps that the law is for, ``information`` what the measurements so far give, ``seconds`` what one takes.
    Greedy; a candidate is taken at most twice (V-optimality: Atkinson, Donev and Tobias, Optimum Experimental
    Designs, 2007, chapter 10; the determinant would be raised by many cheap ones of what is known well already).
    """
    inverse = np.linalg.inv(information + RIDGE * np.eye(len(information)))
    wanted = domain.T @ domain / len(domain)
    cost, left = np.asarray(seconds, dtype=float), budget_seconds
    taken = np.zeros(len(candidates), dtype=int)
    while True:
        spread = rows @ inverse
        lowered = np.einsum("ij,jk,ik->i", spread, wanted, spread) / (1.0 + np.einsum("ij,ij->i", spread, rows))
        gains = lowered / cost
        gains[(taken >= 2) | (cost > left)] = -1.0
        best = int(gains.argmax())
        if gains[best] <= 0:
            return [point for point, times in zip(candidates, taken.tolist(), strict=True) for _ in range(times)]
        direction = inverse @ rows[best]
        inverse -= np.outer(direction, direction) / (1.0 + float(rows[best] @ direction))
        taken[best] += 1
        left -= float(cost[best])


def _possible(limits: StepLimits, points: Iterable[StepPoint]) -> tuple[StepPoint, ...]:
    return tuple(point for point in dict.fromkeys(points) if limits.possible(point))


def _decodes(limits: StepLimits, factor: int) -> Iterator[StepPoint]:
    longest = limits.max_model_len - GROWTH_TOKENS
    for batch in _geometric(1, min(limits.max_num_seqs, limits.max_num_batched_tokens), factor):
        for context in _geometric(min(64, longest), longest, factor):
            yield StepPoint(decodes=batch, context=context)


def _prefills(limits: StepLimits, factor: int) -> Iterator[StepPoint]:
    """Whole prompts; later chunks of long ones, which are also prompts of which a head is cached; several at once."""
    most = min(limits.max_num_batched_tokens, limits.max_model_len - 1)
    for tokens in _geometric(min(16, most), most, factor):
        yield StepPoint(chunks=1, tokens=tokens)
        for cached in _geometric(16 * tokens, limits.max_model_len - tokens - 1, 4 * factor):
            yield StepPoint(chunks=1, tokens=tokens, cached=cached)
        for chunks in _geometric(4, limits.max_num_seqs, 4 * factor):
            yield StepPoint(chunks=chunks, tokens=tokens)
    for chunks in (2, 4):
        yield StepPoint(chunks=chunks, tokens=max(1, most // chunks))


def _geometric(first: int, last: int, factor: int) -> list[int]:
    """``first``, by ``factor``, and ``last`` where it is half a factor or more beyond the one before it."""
    values = []
    at = first
    while at <= last:
        values.append(at)
        at *= factor
    if values and last >= values[-1] * factor // 2 and last != values[-1]:
        values.append(last)
    return values
