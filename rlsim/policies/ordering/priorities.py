"""Priorities of waiting calls: in order of arrival, by expected length, by class, or by fair shares.

Shortest or longest first by a predicted length, with ageing so that none starves; multi-level feedback, which
predicts nothing; static classes; and start-time fair queueing among classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlsim.core.checks import at_least
from rlsim.core.ticks import Ticks, to_seconds, to_ticks
from rlsim.core.view import RunSizes, Sample, View
from rlsim.policies.ordering.predictors import Expected, Predictor, teach
from rlsim.policies.registry import part


@dataclass(frozen=True, slots=True)
class Ranked:
    """Priority +1 or -1 times the expected tokens, recomputed whenever a chunk ends."""

    predictor: Predictor
    sign: int
    chunk: int
    shares_kv: bool
    oracle: bool
    ranks: ClassVar[bool] = True

    def priority(self, view: View, sample: Sample) -> int:
        """Whole tokens, at least one."""
        return self.sign * max(1, round(self.predictor(view, sample)))

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        """The same for every call."""
        return self.chunk

    def learn(self, view: View, sample: Sample, tokens: int) -> None:
        """What a turn made, for predictors that learn."""
        teach(self.predictor, view, sample, tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLength(Expected):
    """Either order, by the sign of a rank."""

    chunk_tokens: int = 0
    """Tokens after which a call is ended, and ranked anew; 0 for none."""
    shares_kv: bool = False
    """Whether the next chunk finds its KV in a pool instead of computing it again."""
    sign: ClassVar[int]

    def start(self, shape: RunSizes) -> Ranked:
        """Refuse parameters out of range."""
        at_least("chunk_tokens", self.chunk_tokens, 0)
        return Ranked(self.make(shape), self.sign, self.chunk_tokens, self.shares_kv, self.is_oracle)


@part("ordering", "shortest-first")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestFirst(ByLength):
    """The call that is expected to end first runs first: groups complete early, the tail begins late."""

    sign: ClassVar[int] = 1


@part("ordering", "longest-first")
@dataclass(frozen=True, slots=True, kw_only=True)
class LongestFirst(ByLength):
    """The call that is expected to end last runs first, as in list scheduling by longest processing time."""

    sign: ClassVar[int] = -1


@dataclass(frozen=True, slots=True)
class _Ageing:
    predictor: Predictor
    tokens_per_second: float
    oracle: bool
    shares_kv: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def priority(self, view: View, sample: Sample) -> int:
        return round(self.predictor(view, sample) + self.tokens_per_second * to_seconds(view.now))

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        return 0

    def learn(self, view: View, sample: Sample, tokens: int) -> None:
        teach(self.predictor, view, sample, tokens)


@part("ordering", "ageing")
@dataclass(frozen=True, slots=True)
class Ageing(Expected):
    """A call that waits t seconds ranks as one ``tokens_per_second * t`` tokens shorter than it is expected to be.

    All that wait age alike, so their order never changes and is fixed when they are submitted: the expected tokens
    plus ``tokens_per_second`` times the time of submission. At 0 it is shortest first; large, first come first served.
    A call is overtaken only by those submitted within (its tokens / ``tokens_per_second``) seconds after it: none
    starves.
    """

    tokens_per_second: float

    def start(self, shape: RunSizes) -> _Ageing:
        """Refuse parameters out of range."""
        at_least("tokens_per_second", self.tokens_per_second, 0)
        return _Ageing(self.make(shape), self.tokens_per_second, self.is_oracle)


@dataclass(frozen=True, slots=True)
class _Levels:
    level_ticks: Ticks
    shares_kv: ClassVar[bool] = False
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def priority(self, view: View, sample: Sample) -> int:
        level = view.shape.classes[sample.group.request_class].priority
        return level * self.level_ticks + view.now if self.level_ticks else level

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        return 0


@part("ordering", "class-priority")
@dataclass(frozen=True, slots=True)
class ClassPriority:
    """By the ``priority`` of the prompt's class, the lowest first; in order of arrival within it.

    With ``ageing_seconds`` a call that has waited so long counts as one level higher, so that none starves.
    """

    ageing_seconds: float | None = None
    """Waiting that is worth one level; None for never, which lets low classes starve under load."""

    def start(self, shape: RunSizes) -> _Levels:
        """Refuse an ageing in no time."""
        if self.ageing_seconds is None:
            return _Levels(0)
        at_least("ageing_seconds", self.ageing_seconds, 1e-6)
        return _Levels(to_ticks(self.ageing_seconds))


@part("ordering", "fcfs")
@dataclass(frozen=True, slots=True)
class Fcfs:
    """Calls run in the order in which they reach a replica, to their end."""

    shares_kv: ClassVar[bool] = False
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = False

    def start(self, shape: RunSizes) -> Fcfs:
        """Nothing to check."""
        return self

    def priority(self, view: View, sample: Sample) -> int:
        """All alike."""
        return 0

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        """No limit."""
        return 0


@part("ordering", "feedback-queue")
@dataclass(frozen=True, slots=True)
class FeedbackQueue:
    """Levels by response tokens so far, each ``factor`` times as long as the one before; no length is predicted."""

    first_level_tokens: int = 1024
    """Tokens after which a call leaves the first level and is put back in line."""
    factor: int = 2
    """Growth of the bound from level to level."""
    levels: int = 4
    """The last one has no bound."""
    shares_kv: bool = False
    """Whether a call that continues finds its KV in a pool instead of computing it again."""
    oracle: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def start(self, shape: RunSizes) -> FeedbackQueue:
        """Refuse levels that are none."""
        at_least("first_level_tokens", self.first_level_tokens, 1)
        at_least("factor", self.factor, 2)
        at_least("levels", self.levels, 2)
        return self

    def priority(self, view: View, sample: Sample) -> int:
        """The level, from 0."""
        return self._level(sample.response_tokens)[0]

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        """Tokens up to the end of the level."""
        level, bound = self._level(sample.response_tokens)
        return 0 if level == self.levels - 1 else bound - sample.response_tokens

    def _level(self, tokens: int) -> tuple[int, int]:
        """The level of a sample with so many tokens, and the tokens at which it ends."""
        level, bound = 0, self.first_level_tokens
        while tokens >= bound and level < self.levels - 1:
            level, bound = level + 1, bound * self.factor
        return level, bound


RANKS_PER_TOKEN = 1024
"""Priorities are whole numbers: virtual time is cut this fine."""


class _Fair:
    """The virtual time of every class, in tokens by weight."""

    shares_kv: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    def __init__(self, predictor: Predictor, shape: RunSizes, oracle: bool) -> None:
        self.oracle = oracle
        self._predictor = predictor
        self._paid = [0.0] * len(shape.classes)
        """Virtual time up to which the calls of a class are charged."""
        self._now = 0.0
        """Virtual time of the latest start among calls that have ended."""
        self._charged: dict[int, tuple[float, float]] = {}
        """Start and tokens of turns under way, by sample."""

    def priority(self, view: View, sample: Sample) -> int:
        if sample.sample not in self._charged:
            kind = sample.group.request_class
            if len(view.generating_samples) <= 1:  # The engines were idle: nobody is owed anything.
                self._now = max(self._now, *self._paid)
            start, tokens = max(self._now, self._paid[kind]), self._predictor(view, sample)
            self._charged[sample.sample] = start, tokens
            self._paid[kind] = start + tokens / view.shape.classes[kind].weight
        return round(self._charged[sample.sample][0] * RANKS_PER_TOKEN)

    def chunk_tokens(self, view: View, sample: Sample) -> int:
        return 0

    def learn(self, view: View, sample: Sample, tokens: int) -> None:
        kind = sample.group.request_class
        start, charged = self._charged.pop(sample.sample)
        self._now = max(self._now, start)
        self._paid[kind] += (tokens - charged) / view.shape.classes[kind].weight
        teach(self._predictor, view, sample, tokens)


@part("ordering", "weighted-fair")
@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedFair(Expected):
    """Classes that always wait get response tokens in proportion to their ``weight``, whatever they ask for.

    Start-time fair queueing (Goyal, Vin and Cheng 1996): a turn starts, in virtual time, when its class has paid for
    the turn before, or at the start of what was served last, and pays expected tokens by weight; the earliest start
    goes first. What a turn made beyond or below the expectation is charged when it ends, to the turns that come then.
    Calls of a class run in order of arrival.
    """

    def start(self, shape: RunSizes) -> _Fair:
        """Refuse parameters out of range."""
        return _Fair(self.make(shape), shape, self.is_oracle)
