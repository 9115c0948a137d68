"""The memory test of a discipline: whether the head of the waiting queue may enter the batch.

The test comes after vLLM's own (a seat, budget, blocks for the prompt now). An empty batch admits, whatever the
prediction, or a call longer than what is not reserved would wait for ever.

**When a refusal is taken again.** A refusal stands until another call is the head, a call enters or leaves the
batch, or a running call reaches the output that was predicted for it and so proves the prediction wrong; at no
other step is the test asked. In between the prediction might be refreshed and the answer change: it is not,
so that an engine which walks every step and one which jumps decide the same.

An admission test costs O(batch log batch), an upheld refusal O(1); nothing is done per token.

Prefill tokens of a step by its predicted time, instead of by a fixed budget.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Collection
from math import ceil
from sys import maxsize

from rlsim.core.streams import stream_key
from rlsim.engine.discipline import Conservative, PastFuture, StepTarget
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime, attention_pairs


class Reservation:
    """Conservative: the blocks of the longest outputs of all."""

    def __init__(self, rule: Conservative, limits: EngineLimits) -> None:
        self._limits = limits
        self._blocks = limits.kv_blocks - ceil(limits.kv_blocks * rule.reserved_fraction)

    def test(self, candidate: Request, running: Collection[Request], step: int) -> tuple[bool, int]:
        """Whether all fit, and how many steps a refusal stands at most."""
        blocks = sum(self._longest(request) for request in (*running, candidate))
        return blocks <= self._blocks, maxsize

    def learn(self, finished: list[Request]) -> None:
        """Nothing to learn."""

    def _longest(self, request: Request) -> int:
        tokens = request.context_tokens + most_output(request, self._limits)
        return -(-tokens // self._limits.block_size)


class Forecast:
    """Past-Future: the peak of the predicted memory, in tokens.

    Each call is charged one block less a token on top of its own tokens, for the block that it fills only in part;
    blocks shared by several calls are charged to each. Both err to the safe side.
    """

    def __init__(self, rule: PastFuture, limits: EngineLimits) -> None:
        self._rule, self._limits = rule, limits
        self._tokens = (limits.kv_blocks - ceil(limits.kv_blocks * rule.reserved_fraction)) * limits.block_size
        initial = [limits.max_model_len] * min(rule.initial_calls, rule.history_calls)
        self._history, self._sorted = deque(initial), initial
        self._levels: dict[int, float] = {}

    def test(self, candidate: Request, running: Collection[Request], step: int) -> tuple[bool, int]:
        """Whether the peak fits, and in how many steps a running call reaches its predicted output."""
        ahead = [self._ahead(request, step) for request in running]
        stands = min(ahead)[0]
        ahead.append(self._ahead(candidate, step))
        # Greatest sum of tokens at any predicted end; those that rest longest are there at all earlier ones.
        ahead.sort(reverse=True)
        held = peak = 0
        for calls, (rest, tokens) in enumerate(ahead, 1):
            held += tokens
            peak = max(peak, held + calls * rest)
        return peak <= self._tokens, stands

    def learn(self, finished: list[Request]) -> None:
        """Outputs of calls that ended by themselves, in the engine's order."""
        for request in finished:
            output = request.tokens - request.context_tokens
            self._levels.pop(request.sample, None)
            self._history.append(output)
            insort(self._sorted, output)
            if len(self._history) > self._rule.history_calls:
                del self._sorted[bisect_right(self._sorted, self._history.popleft()) - 1]

    def predicted(self, request: Request, generated: int) -> int:
        """Its whole output: a quantile of the history beyond ``generated``, or the most it can make."""
        most, known = most_output(request, self._limits), self._sorted
        shorter = bisect_right(known, generated)
        if shorter < len(known):
            most = min(most, known[shorter + ceil(self._level(request.sample) * (len(known) - shorter)) - 1])
        return max(most, generated + 1)

    def _ahead(self, request: Request, step: int) -> tuple[int, int]:
        """(predicted rest, tokens held and charged)."""
        tokens = request.tokens if request.finish_at < 0 else request.tokens + step - request.joined_at
        generated = tokens - request.context_tokens
        return self.predicted(request, generated) - generated, tokens + self._limits.block_size - 1

    def _level(self, sample: int) -> float:
        if self._rule.quantile is not None:
            return self._rule.quantile
        level = self._levels.get(sample)
        if level is None:
            word = stream_key(self._rule.seed, "predicted output", sample)[0]
            level = self._levels[sample] = ((word >> 11) + 0.5) / 2**53
        return level


class AdmissionTest:
    """A rule's answers, and how long its last refusal stands."""

    def __init__(self, rule: Conservative | PastFuture, limits: EngineLimits) -> None:
        self._rule = Reservation(rule, limits) if isinstance(rule, Conservative) else Forecast(rule, limits)
        self.learn = self._rule.learn
        self.refused_until = -1
        """The step at which the last refusal is taken again if nothing happens before; -1 after an admission."""
        self._refused: tuple[Request, int, int] | None = None

    def admits(self, candidate: Request, running: dict[int, Request], entries: int, step: int) -> bool:
        """Whether ``candidate`` may enter; all admissions so far and the size tell one batch from another."""
        if not running:
            return True
        about = (candidate, entries, len(running))
        if self._refused == about and step < self.refused_until:
            return False
        admitted, stands = self._rule.test(candidate, running.values(), step)
        self._refused, self.refused_until = (None, -1) if admitted else (about, step + stands)
        return admitted


def most_output(request: Request, limits: EngineLimits) -> int:
    """Tokens that a call can make: its ``max_tokens``, and what the longest sequence leaves."""
    room = limits.max_model_len - request.context_tokens
    return min(request.max_tokens, room) if request.max_tokens else room


Chunk = tuple[Request, int]


class PacedChunks:
    """The longest chunk with which the predicted time of the step stays within the target.

    The predictor is the replica's own step law times ``predicted_scale``. Whatever it says, a step may take
    ``min_chunk_tokens`` of prefill. The law never decreases with a chunk's tokens, so bisection finds the longest.
    A chunk that is cut short is the last of its step.
    """

    def __init__(self, target: StepTarget, law: StepTime) -> None:
        self._law, self._least = law, target.min_chunk_tokens
        self._ticks = int(target.ticks / target.predicted_scale)

    def tokens(self, decodes: int, kv_tokens: int, chunks: list[Chunk], computed: int, most: int) -> int:
        """Tokens, at most ``most``, of a chunk after ``computed`` ones beside decodes and earlier chunks; or 0."""
        before = sum(tokens for _, tokens in chunks)
        pairs = sum(attention_pairs(tokens, request.computed) for request, tokens in chunks)
        law, count = self._law, len(chunks) + 1

        def ticks(tokens: int) -> int:
            attended = pairs + attention_pairs(tokens, computed)
            return law.mixed(decodes, kv_tokens, count, before + tokens, attended)

        if ticks(most) <= self._ticks:
            return most
        fitting = bisect_right(range(1, most), self._ticks, key=ticks)
        return max(fitting, min(most, self._least - before))
