"""Replicas set apart for prompts that are expected to be long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.errors import ParameterError
from rlsim.core.view import Group, Sample, Shape, View
from rlsim.policies.bounds import at_least
from rlsim.policies.ordering.predictors import ORACLES, Expected, Predictor, PredictorName


@dataclass(frozen=True, slots=True)
class Work:
    """Responses that are to be decoded together."""

    longest: float
    """Tokens of the longest one: as many steps are made."""
    reads: float
    """Context tokens that all their steps read."""

    def read_tokens(self, replicas: int, empty_step_tokens: float) -> float:
        """Time on so many replicas that share the responses evenly, in context tokens read."""
        return empty_step_tokens * self.longest + self.reads / replicas


def work_of(responses: Sequence[tuple[int, float]]) -> Work:
    """Of (context tokens, tokens still to come)."""
    longest = max((tokens for _, tokens in responses), default=0.0)
    return Work(longest, sum(tokens * (context + (tokens - 1) / 2) for context, tokens in responses))


def tail_replicas(bulk: Work, tail: Work, replicas: int, empty_step_tokens: float) -> int:
    """How many of the replicas serve the tail, so that the slower part is as quick as it can be.

    A part without work gets none.
    """
    if not tail.reads or not bulk.reads:
        return replicas if tail.reads else 0

    def slower(count: int) -> float:
        others = bulk.read_tokens(replicas - count, empty_step_tokens)
        return max(tail.read_tokens(count, empty_step_tokens), others)

    return min(range(1, replicas), key=slower)


class _Split:
    oracle: ClassVar[bool] = True

    def __init__(self, spec: TailSplit, predictor: Predictor, replicas: int) -> None:
        self._spec, self._predictor, self._replicas = spec, predictor, replicas
        self._batch, self._tail_replicas = -1, 0
        self._tail: dict[int, bool] = {}
        """Whether a group is of the tail, as judged when its first member was placed."""

    def replica(self, view: View, sample: Sample) -> int:
        if sample.group.target > self._batch:
            self._batch = sample.group.target
            self._split(view)
        bulk = self._replicas - self._tail_replicas
        part = range(bulk, self._replicas) if self._is_tail(view, sample.group) else range(bulk)
        return view.loads.least(part if view.loads.any_open(part) else None)

    def _split(self, view: View) -> None:
        """For the groups that are open when the first call of a batch is placed."""
        known, self._tail = self._tail, {}
        parts: tuple[list[tuple[int, float]], list[tuple[int, float]]] = ([], [])
        for number, group in view.open.items():
            expected = [(mate, self._predictor(view, mate)) for mate in group.members]
            tail = known[number] if number in known else self._is_long(tokens for _, tokens in expected)
            self._tail[number] = tail
            parts[tail].extend((mate.context_tokens, tokens) for mate, tokens in expected if mate.state != "ended")
        bulk, tail_work = (work_of(part) for part in parts)
        self._tail_replicas = tail_replicas(bulk, tail_work, self._replicas, self._spec.empty_step_tokens)

    def _is_tail(self, view: View, group: Group) -> bool:
        """As judged when its batch was split; of a group that came later, when its first member is placed."""
        if group.group not in self._tail:
            self._tail[group.group] = self._is_long(self._predictor(view, mate) for mate in group.members)
        return self._tail[group.group]

    def _is_long(self, expected: Iterable[float]) -> bool:
        return max(expected) >= self._spec.tail_tokens


@dataclass(frozen=True, slots=True)
class TailSplit:
    """Groups whose longest member is expected to reach ``tail_tokens`` go to the last replicas, the others to the rest.

    How many are the last is decided batch by batch, so that by the lengths expected both parts end as early as they
    can: a part decodes as many steps as its longest response has tokens, and reads the context of all its responses
    in them (TailSieve, paper text: the decode times of a static batch, there by its size alone). Within each part the
    least loaded serves. Simulated only: every predictor here reads lengths still to come.
    """

    tail_tokens: int
    """Expected response tokens from which a prompt is of the tail."""
    empty_step_tokens: int = 50_000
    """Context tokens whose reading takes as long as all else of a decode step: about the bytes of the weights over
    those of a token's KV."""
    predictor: PredictorName = "prompt-mean"
    """What lengths are expected: oracle, noisy or prompt-mean; no mate has ended when a group is placed."""
    sigma: float = 0.5
    """Of the noisy predictor: standard deviation of the log of predicted over true tokens."""
    seed: int = 0
    """Of the noisy predictor."""

    def start(self, shape: Shape) -> _Split:
        """Refuse a single replica, which cannot be split, and a predictor that is not of a prompt's length."""
        at_least("tail_tokens", self.tail_tokens, 1)
        at_least("empty_step_tokens", self.empty_step_tokens, 0)
        if shape.replicas < 2:
            raise ParameterError("use", "tail-split", "another part: this one needs two replicas or more")
        if self.predictor not in ORACLES:
            raise ParameterError("predictor", self.predictor, ", ".join(ORACLES))
        predictor = Expected(predictor=self.predictor, sigma=self.sigma, seed=self.seed).make(shape)
        return _Split(self, predictor, shape.replicas)
