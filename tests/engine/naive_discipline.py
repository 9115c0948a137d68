"""The naive scheduler under a discipline: futures are lived step by step, chunks shortened token by token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from naive import NaiveScheduler

from rlsim.core.streams import stream_key
from rlsim.core.ticks import Ticks
from rlsim.engine.discipline import Conservative, PastFuture
from rlsim.engine.requests import EngineLimits, Request
from rlsim.engine.steptime import StepTime, attention_pairs


@dataclass
class Batch:
    """One rank's part of a step."""

    decodes: int = 0
    kv_tokens: int = 0
    chunks: int = 0
    prefill_tokens: int = 0
    pairs: int = 0

    def ticks(self, law: StepTime) -> Ticks:
        if self.chunks:
            return law.mixed(self.decodes, self.kv_tokens, self.chunks, self.prefill_tokens, self.pairs)
        return law.decode(self.decodes, self.kv_tokens)

    def with_chunk(self, tokens: int, context: int) -> Batch:
        return replace(
            self,
            chunks=self.chunks + 1,
            prefill_tokens=self.prefill_tokens + tokens,
            pairs=self.pairs + attention_pairs(tokens, context),
        )


class DisciplinedScheduler(NaiveScheduler):
    """Asks every rule in every step; without a discipline, all of them say what vLLM does."""

    def __init__(self, limits: EngineLimits, law: StepTime) -> None:
        super().__init__(limits)
        self.law, self.rules = law, limits.discipline
        rule = self.rules.admission
        self.past = [limits.max_model_len] * rule.initial_calls if isinstance(rule, PastFuture) else []
        """Outputs of finished calls, all of them."""
        self.refused: Request | None = None
        self.stands = 0
        """Steps for which the refusal stands unless the batch changes."""
        self.tests = self.refusals = self.retaken = 0
        """How often memory was tested, in vain, and anew though the batch and the head were the same."""
        self._decodes: set[int] = set()
        """Running samples with output since they were admitted."""
        self._batch = Batch()
        self._cut_short = False

    def schedule(self) -> int:
        self._batch, self._cut_short = Batch(), False
        return super().schedule()

    def advance(self, steps: int) -> list[Request]:
        self.stands -= 1
        before = {sample: self.requests[sample].tokens for sample in self._step}
        served = {sample: self.requests[sample] for sample in self._step}
        finished = super().advance(steps)
        self._decodes |= {sample for sample, request in served.items() if request.tokens > before[sample]}
        self._decodes -= {request.sample for request in finished}
        self.past += [request.tokens - request.context_tokens for request in finished]
        return finished

    def _head(self) -> Request:
        ageing = self.rules.ageing
        if ageing is None:
            return super()._head()
        now = max(request.arrival for request in self.waiting)

        def urgency(request: Request) -> tuple[int, int, int]:
            waited = now - request.arrival
            return ageing.prefill_weight * request.tokens - ageing.waiting_weight * waited, -waited, request.sample

        return min(self.waiting, key=urgency)

    def _place(self, request: Request, tokens: int) -> None:
        left = request.tokens - request.computed
        if request.sample in self._decodes:
            self._batch.decodes += 1
            self._batch.kv_tokens += request.tokens
        else:
            self._batch = self._batch.with_chunk(tokens, request.computed)
            self._cut_short = tokens < left
        super()._place(request, tokens)

    def _adopt(self, request: Request, hits: object) -> None:
        self.refused = None
        super()._adopt(request, hits)  # type: ignore[arg-type]

    def _send_back(self, request: Request) -> None:
        self.refused = None
        if request.sample in self._step:
            self._batch.decodes -= 1
            self._batch.kv_tokens -= request.tokens
        self._decodes.discard(request.sample)
        super()._send_back(request)

    def _drop(self, request: Request) -> None:
        if request.sample in self._held:
            self.refused = None
        self._decodes.discard(request.sample)
        super()._drop(request)

    # -- chunks ---------------------------------------------------------------------------------------

    def _granted(self, request: Request, computed: int) -> int:
        tokens = super()._granted(request, computed)
        if request.sample in self._decodes:
            return tokens
        cap = self.rules.max_concurrent_prefills
        if self._cut_short or (cap is not None and self._batch.chunks >= cap):
            return 0
        target = self.rules.step_target
        if target is not None:
            least = target.min_chunk_tokens - self._batch.prefill_tokens
            while tokens > least and not self._in_time(tokens, computed):
                tokens -= 1
        return max(tokens, 0)

    def _in_time(self, tokens: int, computed: int) -> bool:
        target = self.rules.step_target
        assert target is not None
        predicted = self._batch.with_chunk(tokens, computed).ticks(self.law) * Fraction(target.predicted_scale)
        return tokens == 0 or predicted <= target.ticks

    # -- admission ------------------------------------------------------------------------------------

    def _may_enter(self, request: Request) -> bool:
        rule = self.rules.admission
        if rule is None or not self.running:
            return True
        if request is self.refused and self.stands > 0:
            return False
        self.tests += 1
        self.retaken += request is self.refused
        admitted = self._all_fit(request, rule) if isinstance(rule, Conservative) else self._peak_fits(request, rule)
        if not admitted:
            self.refusals += 1
            self.refused, self.stands = request, self._first_to_be_surprising()
        return admitted

    def _most(self, request: Request) -> int:
        room = self.limits.max_model_len - request.context_tokens
        return min(request.max_tokens or room, room)

    def _unreserved_blocks(self, rule: Conservative | PastFuture) -> int:
        blocks = self.limits.kv_blocks
        while blocks > self.limits.kv_blocks - self.limits.kv_blocks * rule.reserved_fraction:
            blocks -= 1
        return blocks

    def _all_fit(self, candidate: Request, rule: Conservative) -> bool:
        size, needed = self.limits.block_size, 0
        for request in (*self.running, candidate):
            tokens = request.context_tokens + self._most(request)
            needed += tokens // size + (tokens % size > 0)
        return needed <= self._unreserved_blocks(rule)

    def _peak_fits(self, candidate: Request, rule: PastFuture) -> bool:
        """Live the predicted future step by step."""
        size, calls = self.limits.block_size, (*self.running, candidate)
        rest = {call.sample: self._predicted(call, rule) for call in calls}
        for step in range(1, max(rest.values()) + 1):
            alive = [call for call in calls if rest[call.sample] >= step]
            if sum(call.tokens + step + size - 1 for call in alive) > self._unreserved_blocks(rule) * size:
                return False
        return True

    def _predicted(self, request: Request, rule: PastFuture) -> int:
        """Tokens that a call is predicted to make yet."""
        made = request.tokens - request.context_tokens
        longer = sorted(output for output in self.past[-rule.history_calls :] if output > made)
        word, most = stream_key(rule.seed, "predicted output", request.sample)[0], self._most(request)
        level = rule.quantile or ((word >> 11) + 0.5) / 2**53
        total = next((output for rank, output in enumerate(longer, 1) if rank >= level * len(longer)), most)
        return max(1, min(total, most) - made)

    def _first_to_be_surprising(self) -> int:
        rule = self.rules.admission
        if not isinstance(rule, PastFuture):
            return 10**9
        return min(self._predicted(request, rule) for request in self.running)
